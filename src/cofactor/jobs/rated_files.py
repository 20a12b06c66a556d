"""Files of ratings as one matrix of users by items: names, titles, and what is held out of it."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from cofactor.data import load, ratings_split
from cofactor.data.formats.table import Table
from cofactor.jobs.config import Config
from cofactor.types import CofactorError


def titles(config: Config, items: list[str]) -> list[str] | None:
    """Return the titles of the items, where there is a file of them; an item without one keeps its name."""
    if config.titles is None:
        return None
    found = load.read_titles(config.titles)
    if not any(name in found for name in items):
        raise CofactorError(
            f"{config.titles}: expected lines of id,title with ids such as {items[0]!r}, found "
            f"{next(reversed(found))!r}; none is that of an item."
        )
    return [found.get(name, name) for name in items]


def triples(config: Config, column: str = "rating") -> list[Table]:
    """Read the ratings of every file, or their times."""
    return [load.read_ratings(p, duplicates=config.duplicates, column=column) for p in config.inputs]


def stacked(tables: list[Table]) -> tuple[list[str], Any]:
    """Return the names of all items, and the rows of all tables as one CSR matrix over them."""
    items = sorted({name for table in tables for name in table.feature_names or []}, key=_by_number(tables))
    place = {name: i for i, name in enumerate(items)}
    return items, sparse.vstack([in_places(table, place) for table in tables], format="csr")


def _by_number(tables: list[Table]) -> Any:
    """Sort names as the tables do: by number where all are whole numbers."""
    whole = all(name.isdecimal() for table in tables for name in table.feature_names or [])
    return (lambda name: (int(name), name)) if whole else None


def in_places(table: Table, place: dict[str, int]) -> Any:
    """Return the ratings with the columns of ``place``; items that it lacks are left out."""
    C = table.X.tocoo()
    column = np.array([place.get(name, -1) for name in table.feature_names or []], dtype=np.int64)[C.col]
    known = column >= 0
    shape = (C.shape[0], len(place))
    return sparse.csr_matrix((C.data[known], (C.row[known], column[known])), shape=shape)


def held_out(config: Config, R: Any) -> ratings_split.RatingsSplit:
    """Hold out what the configuration asks for; a run that would be judged by nothing, or by chance, is refused."""
    if config.holdout is None:
        return ratings_split.RatingsSplit(R, sparse.csr_matrix(R.shape))
    options = config.method_options
    if config.holdout == "user" and (options.get("alpha") is not None or options.get("biases") is False):
        raise CofactorError(
            "--holdout user: expected a model with biases, which say something to people that it never saw; found one "
            "without (of clicks, or biases=false), to which all items are alike. Take --holdout random, or time."
        )
    if config.holdout == "time":
        split = ratings_split.by_time(R, stacked(triples(config, "timestamp"))[1].data, share=config.holdout_share)
    else:
        by = {"random": ratings_split.at_random, "user": ratings_split.by_user}[config.holdout]
        split = by(R, share=config.holdout_share, seed=config.seed)
    if split.test.nnz == 0:
        least = int(np.ceil(1 / config.holdout_share))
        each = f"users with {least} ratings or more" if config.holdout != "user" else f"{least} users or more"
        raise CofactorError(
            f"--holdout {config.holdout}: expected {each}, of whom a share of {config.holdout_share:g} is something, "
            "found none. Take a larger --holdout-share, or no --holdout."
        )
    return split
