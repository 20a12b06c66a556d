"""Chained lines on disk: what is added to a book is there as a whole before anything else happens, or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from cofactor import files
from cofactor.privacy import chain
from cofactor.privacy.chain import Seal
from cofactor.privacy.signing import signed

NOBODY = (
    "is not signed: an edition of cofactor that did not sign it yet wrote it, or somebody without the key did; lines "
    "may have been removed"
)


NOTHING = Seal(0, "")
"""Where a chain ends that has no entry yet."""


class Ends(NamedTuple):
    """What lies beside a book: the text that was added last, the byte where it begins, and where all chains end.

    ``signatures`` are of these ends, by the owner of each chain.
    """

    at: int
    text: str
    chains: dict[str, Seal]
    signatures: dict[str, str]

    @property
    def size(self) -> int:
        """Bytes of the whole book."""
        return self.at + len(self.text.encode())

    def fault(self, of: str, owner: str, public: str) -> str:
        """Say whether the owner of a chain has signed where it ends; nothing where it has."""
        if not self.signatures:
            return NOBODY
        if signed(public, chain.end(of, owner, self.chains.get(owner, NOTHING)), self.signatures.get(owner)):
            return ""
        return f"the end of {owner} is not signed by the key that it began with: lines may have been removed"


@dataclass(frozen=True)
class Book:
    """A file of JSON lines, and its seal beside it.

    The seal is written first, whole, with the lines that are about to be added. So an addition that a crash cut off is
    completed by the next one who opens the book, and lines that are missing at the end show against the seal. Where
    lines are signed, so is what the seal says: else whoever cuts off the lines would write the seal to go with them.
    """

    path: Path

    @property
    def seal(self) -> Path:
        """Where the seal lies."""
        return self.path.with_name(f"{self.path.name}.seal")

    def ends(self) -> Ends | None:
        """Read the seal; None where there is none, or nothing that is one."""
        try:
            found = json.loads(self.seal.read_text(encoding="utf-8"))
            chains = {n: Seal(*s) for n, s in found["chains"].items()}
            return Ends(int(found["at"]), str(found["text"]), chains, dict(found.get("signatures", {})))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def text(self) -> str:
        """Return all lines, those too that a crash kept from the file."""
        data = self.path.read_bytes() if self.path.exists() else b""
        ends = self.ends()
        if ends is not None and len(data) >= ends.at and ends.text.encode().startswith(data[ends.at :]):
            data = data[: ends.at] + ends.text.encode()
        return data.decode("utf-8", errors="replace")

    def complete(self) -> None:
        """Bring to the file what a crash kept from it."""
        ends = self.ends()
        if ends is not None and self.path.exists() | (ends.at == 0) and self.text() != _read(self.path):
            files.write_at(self.path, ends.at, ends.text.encode())

    def add(
        self,
        lines: Sequence[Mapping[str, Any]],
        chains: Mapping[str, Seal],
        signatures: Mapping[str, str] | None = None,
    ) -> None:
        """Add lines; ``chains`` says where all chains end then, signed by their owners. On disk when this returns."""
        at = self.path.stat().st_size if self.path.exists() else 0
        text = "".join(json.dumps(line) + "\n" for line in lines)
        with files.atomic(self.seal) as file:
            file.write(json.dumps({"at": at, "text": text, "chains": chains, "signatures": signatures or {}}).encode())
        files.write_at(self.path, at, text.encode())


def _read(path: Path) -> str:
    return path.read_bytes().decode("utf-8", errors="replace") if path.exists() else ""
