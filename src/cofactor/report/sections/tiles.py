"""Boolean runs: how large and how pure the tiles are, and pictures of each client, ordered by component."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import numpy as np

from cofactor.files import undamaged
from cofactor.kinds.zero_one import COUNTS, PANELS
from cofactor.report import pictures
from cofactor.report.contents import Folder
from cofactor.types import Array, CofactorError

SHOWN = 12


class View(NamedTuple):
    """The three pictures of one client."""

    client: str
    panels: list[tuple[str, str]]


class Tile(NamedTuple):
    """A component as a tile: its features, the rows that use it, and the share of ones among the cells of both."""

    size: int
    support: int
    rows: int
    precision: float


def tiles(folder: Folder) -> list[Tile] | None:
    """Return the tile of every component, summed over clients; None where not every client's counts are here."""
    found = {unquote(file.parent.name): _counts(file) for file in (folder.path / "clients").glob("*/view.npz")}
    counts = [c for name in folder.client_names if (c := found.get(name)) is not None]
    if folder.withheld or not counts or len(counts) < len(folder.client_names):
        return None
    support, hits = np.sum(counts, axis=0)
    rows = sum(client.rows for client in folder.evaluation.clients)
    sizes = np.count_nonzero(folder.factor.H, axis=1)
    cells = np.maximum(sizes * support, 1)
    return [Tile(int(s), int(u), rows, h / c) for s, u, h, c in zip(sizes, support, hits, cells, strict=True)]


def _counts(file: Path) -> Array | None:
    """Read support and hits (2 x k); None in folders that do not have them yet."""
    with undamaged(file), np.load(file, allow_pickle=False) as arrays:
        return np.stack([arrays[name] for name in COUNTS]) if set(COUNTS) <= set(arrays) else None


def view(folder: Folder) -> list[View]:
    """Read the pictures from the clients' own folders; they show rows, so a report has them only when asked."""
    files = sorted((folder.path / "clients").glob("*/view.npz"))
    if not files:
        raise CofactorError(f"{folder.path}: expected pictures of a Boolean run (clients/*/view.npz), found none.")
    return [View(unquote(file.parent.name), _panels(file)) for file in files[:SHOWN]]


def _panels(file: Path) -> list[tuple[str, str]]:
    with undamaged(file), np.load(file, allow_pickle=False) as arrays:
        return [(name, pictures.data_uri(arrays[name])) for name in PANELS]
