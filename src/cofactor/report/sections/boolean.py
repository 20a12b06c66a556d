"""Boolean runs as pictures: data, reconstruction and error of each client, rows and columns ordered by component."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from cofactor.report import pictures
from cofactor.report.folder import Folder
from cofactor.types import Array, CofactorError

PANELS = ("data", "reconstruction", "error")
SHOWN = 12
SIDE = 240


class View(NamedTuple):
    """The three pictures of one client."""

    client: str
    panels: list[tuple[str, str]]


def view(folder: Folder) -> list[View]:
    """Read the pictures from the clients' own folders; they show rows, so a report has them only when asked."""
    files = sorted((folder.path / "clients").glob("*/view.npz"))
    if not files:
        raise CofactorError(f"{folder.path}: expected pictures of a Boolean run (clients/*/view.npz), found none.")
    return [View(file.parent.name, _panels(file)) for file in files[:SHOWN]]


def _panels(file: Path) -> list[tuple[str, str]]:
    with np.load(file, allow_pickle=False) as arrays:
        return [(name, pictures.data_uri(arrays[name])) for name in PANELS]


def shrunk(X: Array, W: Array, H: Array) -> dict[str, Array]:
    """Return small grey pictures (block means) of dense bits X, of ``W o H`` and of where they differ.

    Rows are ordered by their codes and columns by the components that have them, so that tiles stand together.
    """
    rows, columns = (np.lexsort(M[::-1]) for M in (1 - W.T.astype(int), 1 - H.astype(int)))
    X, R = X[np.ix_(rows, columns)] > 0, (W.astype(int) @ H.astype(int) > 0)[np.ix_(rows, columns)]
    named = dict(zip(PANELS, (X, R, X != R), strict=True))
    return {name: pictures.shrink(M.astype(np.float32), SIDE) for name, M in named.items()}
