"""What all estimators share: clients in, a run, attributes out, all or nothing."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from cofactor.engines.history import Round
from cofactor.engines.inline import Inline
from cofactor.engines.rounds import Engine, Run
from cofactor.estimators import clients
from cofactor.masked import Layout
from cofactor.method import Method
from cofactor.methods import catalog
from cofactor.privacy.plan import Privacy
from cofactor.types import Array, CofactorError, Data

MOST_BY_DEFAULT = 10
SHAPE_ONLY: dict[str, Any] = {"accept_sparse": ("csr", "csc"), "ensure_all_finite": False}
"""scikit-learn checks shape and type; values are checked here, with the client and the cell in the message."""


def seed_of(random_state: Any) -> int:
    """Return the seed of a run: an int as it is, so that it gives the same numbers everywhere, or a draw."""
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


KINDS = {
    "FederatedNMF": "real",
    "FederatedBMF": "boolean",
    "FederatedMF": "ratings",
    "FederatedKMeans": "clusters",
}
"""Which names of the catalog each estimator takes."""


def check_kind(method: str, estimator: str) -> None:
    """Refuse the name of a method that belongs to another estimator; unknown names are left to the catalog."""
    for other, kind in KINDS.items():
        if other != estimator and method in catalog.names(kind):
            known = ", ".join(catalog.names(KINDS[estimator]))
            raise CofactorError(
                f"method: {method!r} is a method of {other}, and this is {estimator}; use {other}(method={method!r}), "
                f"or one of: {known}."
            )


class Federated(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base of the estimators. A subclass says what its data are, which method it runs and how codes are found."""

    n_components: int | None
    method: str | Method
    random_state: Any
    _dtype: Any
    participation: float = 1.0
    engine: Engine | None = None
    privacy: Privacy | None = None
    secure: bool = False

    def _check(self, X: Any, client: Any) -> Data:
        """Return one client's data, checked and converted."""
        raise TypeError(f"{type(self).__name__} does not say what its data are")

    def _options(self) -> dict[str, Any]:
        """Return the options of the named method."""
        return {}

    def _rounds(self) -> int:
        """Return the most rounds to run."""
        raise TypeError(f"{type(self).__name__} does not say how long it runs")

    def _named_method(self, rank: int, data: list[Data]) -> Method:
        """Build the method that was named, for this number of clients and features."""
        assert isinstance(self.method, str)
        return catalog.make_for(self.method, rank, self._options(), **self._setting(data))

    def _setting(self, data: list[Data]) -> dict[str, Any]:
        """Return what of a run its method depends on."""
        participants = max(1, round(self.participation * len(data)))
        return {
            "participants": participants,
            "rounds": self._rounds(),
            "privacy": self.privacy,
            "secure": self.secure,
        }

    def _carrier(self) -> Engine | None:
        """Return the engine, under masks if sums are to be secure."""
        if not self.secure:
            return self.engine
        from cofactor.engines.secure import Secure  # needs the extra "secure"

        return Secure(self.engine or Inline())

    def _run(self, method: Method, data: list[Data]) -> Run:
        """Run the method."""
        raise TypeError(f"{type(self).__name__} does not run anything")

    def _codes(self, X: Data) -> Array:
        """Return the codes of checked rows."""
        raise TypeError(f"{type(self).__name__} does not say how codes are found")

    def _conclude(self, outcome: Run, data: list[Data]) -> None:
        """Set what only this estimator knows, and warn."""

    def fit(self, X: Any, y: Any = None, groups: Any = None) -> Self:
        """Fit to a list of matrices (one per client), or to one matrix whose ``groups`` name the client of each row."""
        self._fit(X, groups)
        return self

    def fit_transform(self, X: Any, y: Any = None, groups: Any = None) -> Array | list[Array]:
        """Fit and return the codes: a list for a list of clients, otherwise one matrix in the order of the rows."""
        held = self._fit(X, groups)
        return self.codes_ if clients.is_many(X) else clients.in_order(self.codes_, held.rows)

    def _fit(self, X: Any, groups: Any) -> clients.Clients:
        names = clients.feature_names(X)
        if not clients.is_many(X):
            X = validate_data(self, X, dtype=self._dtype, **SHAPE_ONLY)
        held = clients.split(X, groups, check=self._check)
        outcome = self._run(self._method(held.data), held.data)
        self.components_ = outcome.factor
        self.codes_ = outcome.codes
        self.clients_ = held.names
        self.history_: list[Round] = outcome.history
        self.n_rounds_ = len(outcome.history)
        self.ledger_ = outcome.ledger
        self.epsilon_ = outcome.epsilon
        self.n_features_in_ = self.components_.shape[1]
        if names is not None:
            self.feature_names_in_ = names
        self._conclude(outcome, held.data)
        return held

    def _rank(self, data: list[Data]) -> int:
        n, m = sum(X.shape[0] for X in data), data[0].shape[1]
        k = self.n_components if self.n_components is not None else min(MOST_BY_DEFAULT, n, m)
        if not isinstance(k, int | np.integer) or not 1 <= k <= min(n, m):
            raise CofactorError(
                f"n_components: expected a whole number from 1 to {min(n, m)} "
                f"(the smaller of n_samples={n} and n_features={m}), found {k!r}."
            )
        return int(k)

    def _method(self, data: list[Data]) -> Method:
        k = self._rank(data)
        if isinstance(self.method, str):
            check_kind(self.method, type(self).__name__)
            return self._named_method(k, data)
        if isinstance(getattr(self.method, "layout", None), Layout):
            raise CofactorError(
                f"method: expected one for all cells, found {type(self.method).__name__} for observed entries; "
                "use FederatedMF(method=...)."
            )
        if self.n_components is not None and self.method.rank != k:
            raise CofactorError(f"n_components is {k}, but the method was made with rank {self.method.rank}.")
        return catalog.adapt(self.method, **self._setting(data))

    def _seed(self) -> int:
        return seed_of(self.random_state)

    def transform(self, X: Any) -> Array | list[Array]:
        """Return the codes of new rows for the shared factor; a list of clients gives a list."""
        check_is_fitted(self)
        codes = [self._codes(x) for x in self._new_data(X)]
        return codes if clients.is_many(X) else codes[0]

    def _new_data(self, X: Any) -> list[Data]:
        """Check rows that were not fitted: one matrix or a list of clients."""
        check_is_fitted(self)
        return [
            self._check(validate_data(self, x, reset=False, dtype=self._dtype, **SHAPE_ONLY), client=j)
            for j, x in enumerate(X if clients.is_many(X) else [X])
        ]

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)
