"""Secrets in files that their owners alone may read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from cofactor.privacy.errors import KeyFileError

OWNER_ONLY = 0o600


def read(path: Path, what: str, advice: str) -> bytes:
    """Read a secret; one that others may read is none, and is refused with advice for the case that somebody has."""
    try:
        mode, data = stat.S_IMODE(path.stat().st_mode), path.read_bytes()
    except OSError as error:
        raise KeyFileError(f"{path}: expected {what}, found: {error.strerror}.") from None
    if os.name == "posix" and mode & 0o077:
        raise KeyFileError(
            f"{path}: expected permissions 600 (its owner alone may read it), found {mode:o}. Run: chmod 600 '{path}'. "
            f"If somebody else may have read it, {advice}."
        )
    return data
