"""Boolean runs as pictures: data, reconstruction and error of each client, rows and columns ordered by component."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import numpy as np

from cofactor.kinds.zero_one import PANELS
from cofactor.report import pictures
from cofactor.report.contents import Folder
from cofactor.types import CofactorError

SHOWN = 12


class View(NamedTuple):
    """The three pictures of one client."""

    client: str
    panels: list[tuple[str, str]]


def view(folder: Folder) -> list[View]:
    """Read the pictures from the clients' own folders; they show rows, so a report has them only when asked."""
    files = sorted((folder.path / "clients").glob("*/view.npz"))
    if not files:
        raise CofactorError(f"{folder.path}: expected pictures of a Boolean run (clients/*/view.npz), found none.")
    return [View(unquote(file.parent.name), _panels(file)) for file in files[:SHOWN]]


def _panels(file: Path) -> list[tuple[str, str]]:
    with np.load(file, allow_pickle=False) as arrays:
        return [(name, pictures.data_uri(arrays[name])) for name in PANELS]
