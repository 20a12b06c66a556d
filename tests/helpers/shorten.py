"""A private run made shorter by somebody who can write its files and has no key."""

from __future__ import annotations

import json
from pathlib import Path

from cofactor.assurance import ledger
from cofactor.privacy.book import Book


def shorten(run: Path, rounds: int, signatures: dict[str, str] | None = None) -> None:
    """Keep so many rounds in history, ledger and charges; take the end from the manifest, and write seals that fit."""
    manifest = json.loads((run / "manifest.json").read_text())
    manifest.pop("ledger", None)
    (run / "manifest.json").write_text(json.dumps(manifest))
    for name in ("history.jsonl", ledger.FILE, ledger.CHARGES):
        lines = (run / name).read_text().splitlines(keepends=True)
        (run / name).write_text("".join(line for line in lines if json.loads(line)["round"] < rounds))
    for name in (ledger.FILE, ledger.CHARGES):
        Book(run / name).seal.unlink(missing_ok=True)
        Book(run / name).add([], ledger.ends(run / name, name), signatures)
