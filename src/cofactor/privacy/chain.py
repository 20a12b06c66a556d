"""Hash chains: entries that cannot be changed, removed or moved without recomputing all that follow.

Every entry holds the hash of the one before it, and its own hash covers that: SHA-256 over the canonical JSON of the
entry. The first ``previous`` is the hash of a header that says whose chain it is. Whoever can write the file can
recompute a chain: that shows in the ``signature`` of an entry, which is of its hash. What is cut off at the end shows
only against a count and a last hash that are kept beside it: that is a :class:`Seal`, and it is signed too, as the
statement of :func:`end`, since whoever can write the chain can write what lies beside it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from cofactor.privacy.signing import signed

UNSIGNED = "is not signed by the key that the run began with: it was changed, and the chain was recomputed"


class Seal(NamedTuple):
    """Where a chain ends: how many entries it has, and the hash of the last (of the header if there is none)."""

    entries: int
    last: str


class Break(NamedTuple):
    """The first entry, counted from 0, that does not fit into its chain, and why."""

    at: int
    reason: str


def digest(value: Any) -> str:
    """Return the SHA-256 of canonical JSON: sorted keys, no spaces, no NaN.

    >>> digest({"b": 1, "a": [2.5, None]}) == digest({"a": [2.5, None], "b": 1})
    True
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def end(of: str, owner: str, seal: Seal) -> str:
    """Return what the owner of a chain signs of where it ends: nothing that the signature of an entry would fit."""
    return digest({"end of": of, "owner": owner, "entries": seal.entries, "last": seal.last})


def link(entry: Mapping[str, Any], previous: str) -> dict[str, Any]:
    """Return the entry with the hash of the one before it and its own."""
    body = {**entry, "previous": previous}
    return {**body, "hash": digest(body)}


def extend(entries: Iterable[Mapping[str, Any]], seal: Seal) -> tuple[list[dict[str, Any]], Seal]:
    """Return the entries as links of a chain that goes on after its seal, and the new seal."""
    links: list[dict[str, Any]] = []
    for entry in entries:
        links.append(link(entry, links[-1]["hash"] if links else seal.last))
    return links, Seal(seal.entries + len(links), links[-1]["hash"]) if links else seal


def check(entries: Iterable[Mapping[str, Any]], header: str, public: str | None = None) -> tuple[Seal, Break | None]:
    """Return the seal of a chain up to its first break, and that break; with a public key, entries must be signed."""
    seal = Seal(0, header)
    for i, entry in enumerate(entries):
        body = {name: value for name, value in entry.items() if name not in ("hash", "signature")}
        if "hash" not in entry or digest(body) != entry["hash"]:
            return seal, Break(i, "was changed: its hash is not that of its content")
        if body.get("previous") != seal.last:
            return seal, Break(i, "does not follow the one before it: entries were removed, added or moved")
        if public is not None and not signed(public, entry["hash"], entry.get("signature")):
            return seal, Break(i, UNSIGNED if "signature" in entry else "is not signed")
        seal = Seal(i + 1, entry["hash"])
    return seal, None
