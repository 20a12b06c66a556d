"""Lists of items for users: what a fitted model of ratings recommends, what is alike, and how good the lists are."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from cofactor.data.formats.triples import places_of
from cofactor.estimators.named_ratings import check_values, names, places, read, triples, unique
from cofactor.estimators.tables import in_memory, is_frame
from cofactor.ratings import Layout, solve_codes
from cofactor.ratings.ranking import Ranking, coverage, rank_users, similar, top
from cofactor.types import Array, CofactorError, DataError

NOTHING_KNOWN = (
    "recommend: nothing is known of a user without clicks or ratings of items of the fit, and the model has no biases: "
    "all items have the same score, and are listed in their own order."
)


class Recommender:
    """What :class:`~cofactor.FederatedMF` does with factors of items and codes of users once it has them."""

    factor_: Array
    codes_: Array
    users_: Array
    items_: Array
    layout_: Layout
    rating_range: tuple[float, float] | None
    duplicates: str
    _seen: Any

    def transform(self, R: Any) -> Array:
        """Return the extended codes of new users from their ratings and the shared factor alone.

        Ratings are CSR (n x items), or for one user a mapping from names of items to ratings; or triples, a tuple or a
        data frame as ``fit`` takes them: one row for each user, in the order of their names.
        """
        check_is_fitted(self)
        R = self._rows(R)
        if R.shape[1] != len(self.items_):
            raise DataError(f"expected ratings of {len(self.items_)} items, found {R.shape[1]}.")
        return solve_codes(R if R.dtype.kind == "f" else R.astype(np.float64), self.factor_, self.layout_)

    def _rows(self, R: Any) -> Any:
        """Return CSR ratings; of items by name, those that nobody rated in the fit are left out: they say nothing."""
        R = in_memory(R)
        if isinstance(R, Mapping):
            R = (["new"] * len(R), list(R), np.array(list(R.values()), np.float64))
        elif not isinstance(R, tuple) and not is_frame(R):
            return read(R, duplicates=self.duplicates, limits=self.rating_range).matrix
        elif is_frame(R) and places_of([str(name) for name in R.columns], ("user",)) == [None]:  # one user's own
            items, values = triples(R, "item", "rating")
            R = (["new"] * len(items), items, values)
        users, items, values = triples(R, counts=self.layout_.implicit)
        check_values(users, items, values := np.asarray(values, np.float64), self.rating_range)
        people, row = np.unique(names(users), return_inverse=True)
        place = places(names(items), self.items_) if len(values) else np.empty(0, int)
        known, shape = place < len(self.items_), (max(len(people), 1), len(self.items_))
        u, i, values = unique(row[known], place[known], values[known], (people, self.items_, self.duplicates))
        return sparse.csr_matrix((values, (u, i)), shape=shape)

    def recommend(self, user: Any = None, n: int = 10, *, ratings: Any = None) -> Any:
        """Return the names of the n best items that a user has not rated, best first; of several users a list of these.

        An unknown user gets the best rated items, and a warning; of clicks (or without biases) nothing is known of such
        a user, and the list is in the order of the items. With ``ratings`` (as
        :meth:`transform` takes them) users need not be known: codes and seen items come from them.
        """
        if isinstance(user, Mapping) or is_frame(in_memory(user)):
            user, ratings = None, user
        check_is_fitted(self)
        if n < 1:
            raise CofactorError(f"n must be at least 1. Found {n}.")
        if ratings is not None:
            R = self._rows(ratings)
            lists = [self._best(w, R[u].indices, n) for u, w in enumerate(self.transform(R))]
            return lists[0] if len(lists) == 1 else lists
        found = places(names(user), self.users_)
        if user is not None and (found == len(self.users_)).any():
            known = self.layout_.biases
            unknown = names(user)[found == len(self.users_)].ravel()[0]
            warnings.warn(
                f"recommend: {str(unknown)!r} is no user of the fit{', and gets the best rated items' * known}; give "
                "what a new user has rated as ratings={item: rating}.",
                UserWarning,
                stacklevel=2,
            )
        lists = [self._best(*self._known(int(u)), n) for u in found.ravel()]
        return lists[0] if found.ndim == 0 else lists

    def _best(self, codes: Array, seen: Array, n: int) -> Array:
        if self.layout_.says_nothing(codes):
            warnings.warn(NOTHING_KNOWN, UserWarning, stacklevel=4)
        return self.items_[top(codes @ self.factor_, n, seen=seen)]

    def _known(self, u: int) -> tuple[Array, Array]:
        """Return codes and rated items of the user in row u (one beyond the last: unknown)."""
        if u == len(self.users_):
            return self.layout_.empty_codes(1, self.codes_.dtype)[0], np.empty(0, int)
        return self.codes_[u], self._seen.indices[self._seen.indptr[u] : self._seen.indptr[u + 1]]

    def similar_items(self, item: Any, n: int = 10) -> Any:
        """Return the names of the n items whose factors point most nearly the way of this one's, best first.

        By the cosine of ``h_i`` and ``h_j``: alike are items that the same users like, however well they are rated. Of
        several items a list of such lists.
        """
        check_is_fitted(self)
        if n < 1:
            raise CofactorError(f"n must be at least 1. Found {n}.")
        wanted = names(item)
        found = places(wanted, self.items_)
        if (unknown := wanted[found == len(self.items_)]).size:
            raise CofactorError(f"similar_items: expected items of the fit, found {unknown.ravel()[0].item()!r}.")
        H = self.factor_[: self.layout_.rank]
        lists = [self.items_[similar(H, int(i), n)] for i in found.ravel()]
        return lists[0] if found.ndim == 0 else lists

    def coverage(self, n: int = 10) -> float:
        """Return the share of items that are among the n recommended ones of at least one user of the fit."""
        check_is_fitted(self)
        return coverage(self.codes_, self.factor_, self._seen, n=n)

    def _ranking(self, u: Array, i: Array, n: int) -> Ranking:
        """Judge the lists of all users of the fit by held-out pairs of names."""
        u, i = places(u, self.users_), places(i, self.items_)
        shape = (len(self.users_) + 1, len(self.items_) + 1)  # unknown names are the last row and column
        hits = sparse.csr_matrix((np.ones(len(u)), (u, i)), shape=shape)
        return rank_users(self.codes_, self.factor_, self._seen, hits, n=n)
