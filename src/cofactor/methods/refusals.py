"""In what words a method refuses privacy: why, and what its kind of data has instead."""

from __future__ import annotations

FOR_RECORDS = {
    "real": "Ask for unit='client', or use 'dp-moments' or 'dp-nmf', which send sums over records.",
    "boolean": "Ask for unit='client' (--unit client): no method for zeros and ones has another unit.",
}
"""What to do instead, by kind of data; of all other kinds nothing has a private form."""


def no_record(kind: str) -> str:
    """Refuse the unit record for a method whose data are of this kind, and say what to do."""
    return (
        "unit='record' is refused: this method sends what a local solver found, and no bound is known for how much one "
        f"record moves that. {FOR_RECORDS[kind]}"
    )


START = (
    "privacy is refused: the start of this method reads private data and releases what it saw without noise. "
    "Use start='random' or a public factor."
)
SKETCH = (
    "privacy is refused: a sketch that all parties know is no protection. Its columns are rows or features in plain "
    "sight, and all of the data are recovered after ceil(n/d) rounds. Use 'dp-moments' or 'dp-nmf'."
)
INSTEAD = {
    "real": "Use 'dp-moments' or 'dp-nmf', or, with unit='client', a method that averages factors ('fedavg', "
    "'fedmavg', ...).",
    "boolean": "Use, with unit='client' (--unit client) and without sweeps, 'felb', 'falb', or a method that counts "
    "votes, such as 'asso'.",
    "gaps": "No method for missing cells has one. Fill them by a rule that reads no data, and use 'dp-moments' or "
    "'dp-nmf'.",
    "blocks": "Use 'dp-moments' or 'dp-nmf'.",
    "ratings": "No method for ratings has one; secure summation ('exact-als' takes it) shows the server sums only.",
    "clusters": "No method for clusters has one. Numbers >= 0 can be factorized by 'dp-moments', and every client can "
    "cluster its own codes.",
}
SUMMED = {
    "real": "such as 'exact' with start='moments'.",
    "gaps": "such as 'exact-gaps'.",
    "boolean": "such as 'boolean-exact'.",
    "ratings": "such as 'exact-als'.",
}


def no_private(kind: str) -> str:
    """Refuse privacy for a method that has no private form, and say what its kind of data has instead."""
    return f"privacy is refused: this method has no private form. {INSTEAD[kind]}"


def not_additive(kind: str) -> str:
    """Refuse secure sums for a method that needs every message, and say which ones of its kind need sums only."""
    why = "secure summation gives the server sums and nothing else; this method needs the message of every client. "
    if kind not in SUMMED:
        return f"{why}No method for {kind} works from sums alone: leave secure summation out."
    return f"{why}Use a method whose messages are summed (`cofactor methods` says which), {SUMMED[kind]}"


MATCHED = (
    "privacy is refused for features that are matched by what clients have: which ones are left, or lacking, would be "
    "told without noise. Give every client the same features, from a public list."
)
GROUPED = (
    "privacy is refused for clients that are made of groups of rows: names and number of the groups would be told "
    "without noise. Make one matrix for each client of a public list; a client may be empty."
)
DEALT = (
    "privacy is refused for clients that are cut out of one file: who has a row depends on the other rows, so that one "
    "row more or less changes the messages of all, while each has the noise for one row of its own, and under masks "
    "each is rounded on its own. Give a file for each client; what lies in one place may as well be one client."
)
AGAIN = "{what} once, found {again} again: epsilon is for a row that one client has once."
SCANNED = (
    "{run}: a scan of ranks computes errors without noise, and this is the folder of a private run. Choose another "
    "folder with --out, and keep what is in it to yourself; or choose the rank on public data."
)
