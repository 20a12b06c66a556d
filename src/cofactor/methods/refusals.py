"""In what words a method refuses privacy."""

from __future__ import annotations

RECORD = (
    "unit='record' is refused: this method sends what a local solver found, and no bound is known for how much one "
    "record moves that. Ask for unit='client', or use 'dp-moments' or 'dp-nmf', which send sums over records."
)
START = (
    "privacy is refused: the start of this method reads private data and releases what it saw without noise. "
    "Use start='random' or a public factor."
)
SKETCH = (
    "privacy is refused: a sketch that all parties know is no protection. Its columns are rows or features in plain "
    "sight, and all of the data are recovered after ceil(n/d) rounds. Use 'dp-moments' or 'dp-nmf'."
)
NONE = (
    "privacy is refused: this method has no private form. Use 'dp-moments' or 'dp-nmf', or, with unit='client', a "
    "method that averages factors ('fedavg', 'fedmavg', 'felb', ...) or counts votes ('asso', ...), without sweeps."
)
NOT_ADDITIVE = (
    "secure summation gives the server sums and nothing else; this method needs the message of every single client. "
    "Use a method whose messages are summed (`cofactor methods` says which), such as 'exact' with start='moments'."
)
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
SCANNED = (
    "{run}: a scan of ranks computes errors without noise, and this is the folder of a private run. Choose another "
    "folder with --out, and keep what is in it to yourself; or choose the rank on public data."
)
