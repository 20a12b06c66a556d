"""Data that cells need: which files are here, and where the others can be had."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from cofactor.data import datasets
from cofactor.reproduce.experiment import PACKAGE, Settings


def missing(cells: Sequence[Settings]) -> dict[str, str]:
    """Return every dataset that cells name under "data" and that is not here, with what to do about it."""
    wanted = dict.fromkeys(cell["data"] for cell in cells if "data" in cell)
    return {name: text for name in wanted if (text := _why_not(name))}


def _why_not(name: str) -> str:
    """Say why a dataset cannot be read; "" where it can."""
    file = datasets.file_of(name)
    if file is None:
        return ""
    folder = os.environ.get(datasets.VARIABLE)
    if folder and (Path(folder) / file).is_file():
        return ""
    where = f"not in {folder}" if folder else f"the environment variable {datasets.VARIABLE} names no folder"
    return f"{file}: {where}. It can be made from {sources().get(file.removesuffix('.npz'), 'a source of your own')}."


def sources() -> dict[str, str]:
    """Return where each file can be had."""
    text = (resources.files(PACKAGE) / "data.toml").read_text(encoding="utf-8")
    return {name: str(entry) for name, entry in tomllib.loads(text).items()}
