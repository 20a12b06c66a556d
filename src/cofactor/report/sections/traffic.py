"""What was sent: bytes, what left each client, and what that costs in privacy."""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import accumulate
from typing import Any, NamedTuple

from cofactor.records import PrivacyRecord, Release
from cofactor.report import words
from cofactor.report.charts import BARS, Series, chart, finite
from cofactor.report.contents import Folder
from cofactor.report.meanings import meaning

OPEN, MUCH, NAMED = 40, 20, 4


def communication(folder: Folder) -> dict[str, Any]:
    """Bytes by round, and in total."""
    history = folder.history
    up, down = [float(r.bytes_up) for r in history], [float(r.bytes_down) for r in history]
    both = [a + b for a, b in zip(up, down)]
    total, x = list(accumulate(both)), [r.round + 1 for r in history]
    kind = "bars" if len(history) <= BARS else "line"
    series = [
        Series("down, to clients", both if kind == "bars" else down, "c", kind),
        Series("up, from clients", up, "a", kind),
    ]
    text = f"Bytes by round: {words.size(sum(up))} up and {words.size(sum(down))} down in all."
    growth = f"Bytes sent up to each round: {words.size(total[-1])} at the end."
    titles = ("round", "bytes")
    sent = chart(growth, x, [Series("sent so far", total)], titles=titles, label=words.size, zero=True)
    return {
        "rounds": chart(text, x, series, titles=titles, label=words.size, zero=True),
        "total": sent if len(total) > 1 else None,
        "up": sum(up),
        "down": sum(down),
        "per_client": sum(both) / max(sum(r.participants for r in history), 1),
        "stacked": kind == "bars",
        "times": _times(folder, sum(both)),
        **_raters(folder, sum(both)),
        "row": meaning(folder).row,
    }


def _raters(folder: Folder, sent: float) -> dict[str, Any]:
    """Return, of ratings: how many users are clients and what they would send as one; whether messages name items."""
    config = folder.manifest.config
    apart, named = config.get("users_as_clients") is True, config.get("rated_only") is True
    users = len(folder.client_names)
    return {"users": users if apart else None, "as_one": None if named else sent / max(users, 1), "named": named}


def _times(folder: Folder, sent: float) -> float | None:
    """Return how many times the data themselves were sent, where that is many times; ratings count as triples."""
    result, m = folder.evaluation, folder.factor.H.shape[1]
    values = 3 * sum(part.ratings for part in result.parts) or m * sum(c.rows for c in result.clients)
    return sent / (8 * values) if values and sent > MUCH * 8 * values else None


class Sent(NamedTuple):
    """All releases of one array."""

    array: str
    times: int
    shapes: str
    dtypes: str
    bytes: int
    guard: str


def ledger(folder: Folder) -> dict[str, Any]:
    """What left each client, by array; and whether its size follows the number of rows."""
    groups: dict[tuple[str, str], list[Release]] = defaultdict(list)
    for release in folder.ledger:
        groups[release.client, release.array].append(release)
    sent: dict[str, list[Sent]] = defaultdict(list)
    for (client, array), found in groups.items():
        sent[client].append(_sent(array, found))
    return {
        "sent": list(sent.items()),
        "collapsed": len(groups) > OPEN,
        "guarded": any(s.guard for found in sent.values() for s in found),
        "arrays": _by_array(folder.ledger),
        "bytes": sum(r.bytes for r in folder.ledger),
        "times": sum(r.clients for r in folder.ledger),
        "clients": max(len(sent), *(r.clients for r in folder.ledger), 0),
        "batched": any(r.clients > 1 for r in folder.ledger),
        "masked": any(r.masked for r in folder.ledger),
        "verdict": verdict(folder),
    }


def _sent(array: str, releases: list[Release]) -> Sent:
    shapes = _few([_shape(r.shape) for r in releases])
    guards = [text for r in releases for text in _guard(r)]
    total = sum(r.bytes for r in releases)
    times = sum(r.clients for r in releases)
    return Sent(array, times, shapes, _few([r.dtype for r in releases]), total, _few(guards))


def _guard(r: Release) -> list[str]:
    """Return what protected a release, in words."""
    if _numbers(r):
        return [f"clip {words.number(r.clip)}, noise {words.number(r.noise)}"]
    named = (("clip", r.clip), ("noise", r.noise), ("cost", r.cost))
    return [f"{name} {value}" for name, value in named if value is not None]


def _numbers(r: Release) -> bool:
    return all(isinstance(value, int | float) for value in (r.clip, r.noise, r.multiplier))


class Noise(NamedTuple):
    """How one array was released: in which rounds, with which bound, noise and price."""

    array: str
    rounds: str
    clip: str
    noise: str
    mechanism: str
    multiplier: str


def noise(folder: Folder) -> list[Noise]:
    """Return the noise of every array that was released with one."""
    groups: dict[str, list[Release]] = defaultdict(list)
    for release in folder.ledger:
        if _numbers(release):
            groups[release.array].append(release)
    return [
        Noise(
            array,
            _span([r.round + 1 for r in found]),
            _few([words.number(r.clip) for r in found]),
            _few([words.number(r.noise) for r in found]),
            _few([str(r.mechanism) for r in found]),
            _few([words.number(r.multiplier) for r in found]),
        )
        for array, found in groups.items()
    ]


def _span(rounds: list[int]) -> str:
    first, last = min(rounds), max(rounds)
    return str(first) if first == last else f"{first} to {last}"


def _by_array(releases: list[Release]) -> list[Sent]:
    groups: dict[str, list[Release]] = defaultdict(list)
    for release in releases:
        groups[release.array].append(release)
    return [_sent(array, found) for array, found in groups.items()]


def _few(texts: list[str]) -> str:
    distinct = list(dict.fromkeys(texts))
    more = f" and {len(distinct) - NAMED} more" if len(distinct) > NAMED else ""
    return ", ".join(distinct[:NAMED]) + more


def _shape(shape: list[int]) -> str:
    return " × ".join(str(n) for n in shape) or "one number"


class Verdict(NamedTuple):
    """Whether the ledger shows sizes that depend on rows: ``same`` is None where it cannot tell."""

    same: bool | None
    text: str


def verdict(folder: Folder) -> Verdict:
    """Compare the shapes that clients with different numbers of rows sent in the same round."""
    rows = {c.client: c.rows for c in folder.evaluation.clients}
    shapes: dict[tuple[int, str], set[tuple[int, ...]]] = defaultdict(set)
    for r in folder.ledger:
        shapes[r.round, r.array].add(tuple(r.shape))
    if folder.manifest.config.get("rated_only") is True:
        return Verdict(
            False, "Messages are of rated items only: they name the items that a client rated, and their size follows."
        )
    different = sorted({array for (_, array), found in shapes.items() if len(found) > 1})
    if different:
        return Verdict(
            False, f"Clients sent different shapes of {', '.join(different)}: check whether they follow the rows."
        )
    if folder.apart:
        return Verdict(None, "Every array had one shape at all clients; how many rows they hold was not released.")
    counts = {rows[r.client] for r in folder.ledger if r.client in rows}
    if len(counts) < 2:
        return Verdict(
            None, "All clients hold the same number of rows, so this run cannot show whether sizes depend on it."
        )
    held = f"{min(counts):,} to {max(counts):,} rows"
    return Verdict(True, f"Sizes do not depend on rows: every array had one shape at all clients, which hold {held}.")


RELATIONS = {"record": "add/remove one", "client": "zero out one"}
"""How the neighbours of each unit differ; of any other relation nothing is known."""


def guarantee(folder: Folder) -> PrivacyRecord | None:
    """Return the privacy record if, and only if, it is one that may be printed as a guarantee."""
    p = folder.privacy
    if p is None or not p.private or p.unit not in RELATIONS or p.epsilon is None or p.delta is None:
        return None
    return (
        p
        if p.relation == RELATIONS[p.unit] and math.isfinite(p.epsilon) and p.epsilon >= 0 and 0 <= p.delta < 1
        else None
    )


def privacy(folder: Folder) -> dict[str, Any]:
    """The spend of the whole run, or the plain statement that there is no guarantee."""
    spent = [r.epsilon for r in folder.history]
    known = finite(spent)
    text = f"Epsilon by round: {words.number(known[-1])} at the end." if known else ""
    figure = chart(
        text, [r.round + 1 for r in folder.history], [Series("epsilon", spent)], titles=("round", "epsilon"), zero=True
    )
    return {
        "claim": guarantee(folder),
        "record": folder.privacy,
        "remark": folder.evaluation.remark,
        "noise": noise(folder),
        "chart": figure if len(known) > 1 else None,
        "secure": folder.manifest.config.get("secure") is True,
        "masks": folder.manifest.masks,
        "stays": stays(folder),
        "shows": folder.evaluation.shows,
    }


def stays(folder: Folder) -> bool:
    """Whether it may be said that rows stay: no size follows them, and nothing that was shared is one of them."""
    return verdict(folder).same is not False and not folder.evaluation.shows
