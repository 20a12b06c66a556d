"""Which code made a run: a version has many while it is written, and what a method sends may change between them."""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from importlib import metadata
from pathlib import Path

from cofactor.records import Manifest

PACKAGES = ("cofactor", "numpy", "scipy", "scikit-learn", "numba")
KEY = "cofactor's code"
"""Its name among the versions of a manifest."""


@cache
def code() -> str:
    """Return the beginning of the SHA-256 of all modules of this package, in the order of their names."""
    home, digest = Path(__file__).parent.parent, hashlib.sha256()
    for path in sorted(home.rglob("*.py")):
        digest.update(path.relative_to(home).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def versions() -> dict[str, str]:
    """Return what a run is made with, for its manifest."""
    return {"python": platform.python_version(), **{p: metadata.version(p) for p in PACKAGES}, KEY: code()}


def others(manifest: Manifest) -> str:
    """Say which code made a run, where it was not this one; else nothing."""
    here, there = (metadata.version("cofactor"), code()), (manifest.cofactor, manifest.versions.get(KEY, "not known"))
    return "" if here == there else f"cofactor {there[0]} (code {there[1]}; here: {here[0]}, code {here[1]})"
