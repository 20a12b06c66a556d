"""What all estimators share: a plan, clients in, a run, attributes out, all or nothing."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from cofactor import kinds
from cofactor.engines.contract import Engine
from cofactor.engines.history import Round
from cofactor.engines.loop import Run, carrier, run
from cofactor.estimators import clients
from cofactor.kinds.kind import Kind, Score
from cofactor.kinds.measure import Measure
from cofactor.method import Method
from cofactor.methods.build import AUTO, Facts, build, rank_of, refuse, settle
from cofactor.methods.catalog import ENTRIES
from cofactor.plan import Plan
from cofactor.privacy.allowance import Privacy
from cofactor.types import Array, CofactorError, Data

MOST_BY_DEFAULT = 10
SHAPE_ONLY: dict[str, Any] = {"accept_sparse": ("csr", "csc"), "ensure_all_finite": False}
"""scikit-learn checks shape and type; values are checked here, with the client and the cell in the message."""
TAKES = {
    "FederatedNMF": ("real", "blocks"),
    "FederatedBMF": ("boolean",),
    "FederatedMF": ("ratings",),
    "FederatedKMeans": ("clusters",),
}
"""Which kinds of methods each estimator takes."""


def seed_of(random_state: Any) -> int:
    """Return the seed of a run: an int as it is, so that it gives the same numbers everywhere, or a draw."""
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def check_takes(kind: str, method: Any, estimator: str) -> None:
    """Refuse a method of a kind that belongs to another estimator."""
    other = next((name for name, takes in TAKES.items() if kind in takes), estimator)
    if other != estimator:
        known = ", ".join(entry.name for entry in ENTRIES if entry.kind in TAKES[estimator])
        raise CofactorError(
            f"method: {method!r} is a method of {other}, and this is {estimator}; use {other}(method=...), or one of: "
            f"{known}."
        )


class Federated(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base of the estimators. A subclass says what its data are, what its options mean, and how codes are found."""

    n_components: int | None
    method: str | Method
    random_state: Any
    options: dict[str, Any] | None
    callbacks: Any
    _dtype: Any
    _kind: Kind
    rounds: int | None = None
    tol: float = 0.0
    participation: float = 1.0
    engine: Engine | None = None
    privacy: Privacy | None = None
    secure: bool = False

    def _convert(self, X: Any, client: Any) -> Data:
        """Return one client's data as a matrix; its values are checked by its kind."""
        return clients.matrix(X, client)

    def _options(self) -> dict[str, Any]:
        """Return the options of the named method."""
        return dict(self.options or {})

    def _codes(self, X: Data) -> Array:
        """Return the codes of checked rows."""
        return self._made.refit(X, self.components_)

    def _conclude(self, score: Score, outcome: Run) -> None:
        """Set what only this estimator knows, and warn."""

    def fit(self, X: Any, y: Any = None, groups: Any = None) -> Self:
        """Fit to a list of matrices (one per client), or to one matrix whose ``groups`` name the client of each row.

        With ``engine=Dask(client)`` also to a dask array, whose row chunks are the clients, or to delayed blocks.
        """
        self._fit(X, groups)
        return self

    def fit_transform(self, X: Any, y: Any = None, groups: Any = None) -> Array | list[Array]:
        """Fit and return the codes: a list for a list of clients, otherwise one matrix in the order of the rows."""
        held = self._fit(X, groups)
        return self.codes_ if clients.is_many(X) else clients.in_order(self.codes_, held.rows)

    def _plan(self) -> Plan:
        """Return how the fit goes."""
        return Plan(
            self.rounds,
            self.participation,
            self.tol,
            seed_of(self.random_state),
            privacy=self.privacy,
            secure=self.secure,
        )

    def _fit(self, X: Any, groups: Any) -> clients.Clients:
        plan, options = self._plan(), self._options()
        name = next(base.__name__ for base in type(self).__mro__ if base.__name__ in TAKES)  # of a subclass too
        check_takes(refuse(self.method, plan, options, TAKES[name]), self.method, name)
        engine = None if self.engine is None else carrier(self.engine, plan)  # a text is refused before data are read
        elsewhere = clients.is_elsewhere(X)
        names = None if elsewhere else clients.feature_names(X)
        if not elsewhere and not clients.is_many(X):
            X = validate_data(self, X, dtype=self._dtype, **SHAPE_ONLY)
        held = (
            clients.left_there(X, groups)
            if elsewhere
            else clients.split(X, groups, kind=self._kind, convert=self._convert)
        )
        facts = clients.facts(held.data, plan)
        rank, chosen = self._rank(facts), self.method
        if chosen == AUTO:
            self.choice_ = settle(AUTO, rank, plan, facts)
            chosen = self.choice_.method
        method, plan = build(chosen, rank, plan, facts, options)
        data = clients.in_form(held.data, method)
        kind = kinds.KINDS[method.traits.kind]
        work = [Measure(kind, method)] * len(data)
        outcome = run(method, data, plan, engine=engine, callbacks=self.callbacks, work=work)
        self._made = method
        self.components_, self.codes_, self.clients_ = outcome.factor, outcome.codes, held.names
        self.history_: list[Round] = outcome.history
        self.n_rounds_ = len(outcome.history)
        self.ledger_, self.epsilon_ = outcome.ledger, outcome.epsilon
        self.n_features_in_ = self.components_.shape[1]
        if names is not None:
            self.feature_names_in_ = names
        self._conclude(kind.score(np.sum(outcome.findings, axis=0)), outcome)
        return held

    def _rank(self, facts: Facts) -> int:
        """Return the number of components; of a private fit rows are no limit unless they are public."""
        n, m, k = facts.rows, facts.features, self.n_components
        limit = min((size for size in (n, m) if size is not None), default=k)
        if limit is None:
            raise CofactorError("n_components: expected a whole number for blocks whose shapes are not known here.")
        k = min(MOST_BY_DEFAULT, limit) if k is None else k
        if not isinstance(k, int | np.integer) or not 1 <= k <= limit:
            rows = "" if n is None else f"the smaller of n_samples={n} and "
            raise CofactorError(
                f"n_components: expected a whole number from 1 to {limit} ({rows}n_features={m}), found {k!r}."
            )
        made = rank_of(self.method)
        if made not in (None, k) and self.n_components is not None:
            raise CofactorError(f"n_components is {k}, but the method was made with rank {made}.")
        return int(k)

    def transform(self, X: Any) -> Array | list[Array]:
        """Return the codes of new rows for the shared factor; a list of clients gives a list."""
        check_is_fitted(self)
        codes = [self._codes(x) for x in self._new_data(X)]
        return codes if clients.is_many(X) else codes[0]

    def _new_data(self, X: Any) -> list[Data]:
        """Check rows that were not fitted: one matrix or a list of clients."""
        check_is_fitted(self)
        new = enumerate(X if clients.is_many(X) else [X])
        read = [(validate_data(self, x, reset=False, dtype=self._dtype, **SHAPE_ONLY), j) for j, x in new]
        return [self._kind.check(self._convert(x, j), j) for x, j in read]

    def _score(self, X: Any) -> Score:
        """Return the errors of new rows, codes refitted."""
        tallies = [self._kind.tally(self._made, x, self._codes(x), self.components_) for x in self._new_data(X)]
        return self._kind.score(np.sum(tallies, axis=0))

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)
