"""Small files of every kind of data, and the options with which they are fitted: what tests of whole runs go over."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import sparse

from cofactor.data import synthetic

CLIENTS = (25, 17, 31)
"""Rows of the three clients."""


class Sample(NamedTuple):
    """Names of files, and options of a configuration."""

    files: tuple[str, ...]
    options: dict[str, Any]

    def words(self) -> list[str]:
        """The same on the command line."""
        words = list(self.files)
        for name, value in self.options.items():
            flag = "--" + name.replace("_", "-")
            if name == "options":
                words += [word for pair in value.items() for word in ("--option", "=".join(map(str, pair)))]
            else:
                words += [flag] if value is True else [flag, str(value)]
        return words


REAL = ("a.csv", "b.csv", "c.csv")
BOOLEAN = ("a-bits.npz", "b-bits.npz", "c-bits.npz")
PRIVATE = {"epsilon": 2.0, "delta": 1e-5, "insecure_noise_seed": 3}
SAMPLES = {
    "real": Sample(REAL, {"rank": 3, "rounds": 6}),
    "union": Sample(("a.csv", "b.csv", "less.csv"), {"rank": 3, "rounds": 6, "features": "union"}),
    "averaged": Sample(REAL, {"rank": 3, "rounds": 4, "method": "fedavg"}),
    "boolean": Sample(BOOLEAN, {"rank": 3, "boolean": True}),
    "swept": Sample(BOOLEAN, {"rank": 3, "method": "felb", "rounds": 8, "options": {"sweeps": 3}}),
    "ratings": Sample(
        ("stars.csv",), {"rank": 2, "ratings": True, "users_as_clients": True, "rounds": 6, "holdout": "time"}
    ),
    "several": Sample(
        ("x-stars.csv", "y-stars.csv", "z-stars.csv"), {"rank": 2, "ratings": True, "rounds": 6, "holdout": "random"}
    ),
    "clicks": Sample(
        ("stars.csv",),
        {
            "rank": 2,
            "ratings": True,
            "users_as_clients": True,
            "rounds": 4,
            "holdout": "random",
            "options": {"alpha": 2},
        },
    ),
    "clusters": Sample(("a-points.npy", "b-points.npy", "c-points.npy"), {"rank": 3, "method": "k-means"}),
    "blocks": Sample(("all.npy",), {"rank": 3, "method": "hals", "split": 3, "rounds": 4}),
    "private": Sample(REAL, {"rank": 3, **PRIVATE}),
    "secure": Sample(REAL, {"rank": 3, "rounds": 5, "secure": True}),
}
"""Every way in which the job differs."""


def write(folder: Path) -> Path:
    """Write all files; return their folder."""
    numbers = synthetic.blocks(3, list(CLIENTS), features=12, rank=3, seed=4).Xs
    names = [f"gene{i}" for i in range(12)]
    for name, X in zip("abc", numbers, strict=True):
        pd.DataFrame(X, columns=names).to_csv(folder / f"{name}.csv", index=False)
    pd.DataFrame(numbers[2][:, 2:], columns=names[2:]).to_csv(folder / "less.csv", index=False)
    np.save(folder / "all.npy", np.vstack(numbers))
    ends = np.cumsum(CLIENTS)[:-1]
    bits = synthetic.tiles(sum(CLIENTS), 12, 3, noise=0.03, width=(0.2, 0.4), seed=4).X
    for name, X in zip("abc", np.split(bits, ends), strict=True):
        sparse.save_npz(folder / f"{name}-bits.npz", sparse.csr_matrix(X.astype(np.float64)))
    draw = np.random.default_rng(0)
    centres = 4 * draw.normal(size=(3, 5))
    for name, n in zip("abc", CLIENTS, strict=True):
        np.save(folder / f"{name}-points.npy", centres[draw.integers(3, size=n)] + draw.normal(size=(n, 5)))
    _write_ratings(folder, draw)
    return folder


def _write_ratings(folder: Path, draw: np.random.Generator) -> None:
    """Write 24 users with one planted taste as one file, and as three."""
    taste = draw.normal(size=(24, 1)) @ draw.normal(size=(1, 15))
    stars = np.clip(np.round(3 + taste + 0.3 * draw.normal(size=(24, 15))), 1, 5)
    users, items = np.nonzero(draw.uniform(size=stars.shape) < 0.6)
    times = draw.permutation(len(users))
    lines = [f"u{u},m{i},{stars[u, i]:g},{t}" for u, i, t in zip(users, items, times, strict=True)]
    head = "user,item,rating,timestamp"
    (folder / "stars.csv").write_text("\n".join([head, *lines]) + "\n")
    for name, first in zip("xyz", (0, 8, 16), strict=True):
        own = [line for line, u in zip(lines, users, strict=True) if first <= u < first + 8]
        (folder / f"{name}-stars.csv").write_text("\n".join([head, *own]) + "\n")
