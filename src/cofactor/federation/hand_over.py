"""What clients hand to each other, and not to the server: the public keys that sign their masks.

`cofactor join` makes ``HOME/keys/NAME.key`` and ``NAME.pub``. When the ``.pub`` files of all clients of a run are in
that folder, secure sums rest on them, and on no key that came with the messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cofactor.privacy.secure_sum import keys as files
from cofactor.privacy.secure_sum.keys import Keys

FOLDER = "keys"


def make(home: Path, name: str) -> str:
    """Make the key of a client, once; return its fingerprint, for the telephone."""
    own = home / FOLDER / f"{name}{files.PRIVATE}"
    if not own.exists():
        files.make(home / FOLDER, name)
    return files.fingerprint(files.read_private(own).public)


def has_all(home: Path, names: Sequence[str]) -> bool:
    """Whether the public keys of all clients of a run are here."""
    return set(names) <= set(files.read_folder(home / FOLDER))


def keys(home: Path, names: Sequence[str]) -> Keys:
    """Return the keys of a run."""
    return Keys(str(home / FOLDER), tuple(names))
