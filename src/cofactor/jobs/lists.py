"""Lists of items from a finished run on ratings: for new users, for users of the run, and what is like an item."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cofactor.estimators.recommender import NOTHING_KNOWN
from cofactor.files import undamaged
from cofactor.jobs.folder import RunFolder
from cofactor.jobs.new_rows import public_ratings, ratings_of
from cofactor.jobs.rated_files import stacked, triples
from cofactor.ratings.ranking import top
from cofactor.types import Array, CofactorError

TITLES = "titles"


def recommend(folder: RunFolder, path: Path, n: int) -> dict[str, list[str]]:
    """Return the n best unrated items of every user of a file, from the factor alone."""
    model, users, R = ratings_of(folder, path)
    return {user: model.recommend(n=n, ratings=R[u]).tolist() for u, user in enumerate(users)}


def recommend_known(folder: RunFolder, users: Sequence[str], n: int) -> dict[str, list[str]]:
    """Return the n best unrated items of users of the run, from their codes, where these and the ratings are here."""
    if n < 1:
        raise CofactorError(f"n must be at least 1. Found {n}.")
    model, config = public_ratings(folder), folder.config()
    tables = triples(config)
    items, R = stacked(tables)
    rated = [name for table in tables for name in table.row_names or []]
    out = {}
    for user in users:
        seen = np.unique(np.concatenate([R[u].indices for u, name in enumerate(rated) if name == user] or [[]]))
        codes = _codes(folder, user)
        if model.layout_.says_nothing(codes):
            warnings.warn(NOTHING_KNOWN, UserWarning, stacklevel=2)
        best = top(codes @ model.factor_, n, seen=seen.astype(int))
        out[user] = [items[i] for i in best]
    return out


def _codes(folder: RunFolder, user: str) -> Array:
    """Return the codes of one user, from the folder of the client that has it."""
    found = []
    for line in folder.manifest_record().inputs:
        own = folder.client(line.client)
        rows = own.row_names()
        if user in rows:
            with undamaged(own.path / "codes.npy"):
                found.append(np.load(own.path / "codes.npy")[rows.index(user)])
    if len(found) != 1:
        there = (
            "nobody of that name at the clients whose codes are here" if not found else f"one at {len(found)} clients"
        )
        raise CofactorError(f"user {user!r}: expected one user of the run, found {there}; give a file of ratings.")
    return found[0]


def similar(folder: RunFolder, items: Sequence[str], n: int) -> dict[str, list[str]]:
    """Return the n items that are most alike each of these, by the cosine of their factors."""
    model = public_ratings(folder)
    return {item: model.similar_items(item, n).tolist() for item in items}


def titled(folder: RunFolder, found: dict[str, list[str]], *, of: str) -> list[tuple[str, list[str]]]:
    """Return lists with titles in place of the names of items, where the run has some; lists ``of`` an "item" too.

    A user may have the name of an item, as numbers do, and two items the same title.
    """
    public = folder.public()
    if TITLES not in public:
        return list(found.items())
    title = dict(zip(map(str, public["feature_names"]), map(str, public[TITLES]), strict=True))
    heads = {who: title.get(who, who) if of == "item" else who for who in found}
    return [(heads[who], [title[item] for item in best]) for who, best in found.items()]
