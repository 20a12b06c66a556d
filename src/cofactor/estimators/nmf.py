"""FederatedNMF: non-negative matrix factorization over clients whose rows may not be pooled."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from cofactor.engines.history import Round, Stop
from cofactor.engines.rounds import Callback, Engine, run
from cofactor.estimators import clients
from cofactor.local.refit import refit
from cofactor.method import Method
from cofactor.methods import catalog
from cofactor.metrics import pooled_error
from cofactor.types import Array, CofactorError, Data

MOST_BY_DEFAULT = 10


class FederatedNMF(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """One factor H >= 0 shared by all clients, private codes W_j >= 0, ``X_j ~ W_j H``.

    Parameters
    ----------
    n_components : the rank k; None takes min(10, features, rows).
    method : a name from :func:`cofactor.methods.catalog.names` or a method object. ``"exact"`` reaches the
        pooled answer in a few rounds, ``"oneshot"`` comes within 1-2 % of it with one upload per client.
    rounds : the most rounds to run.
    tol : stop when the loss falls by less than this share in three rounds; 0 runs all rounds.
    participation : the share of clients drawn for each round.
    random_state : seed; an int gives the same numbers everywhere.
    engine : what carries the messages; None runs all clients in this process.
    options : options of the named method, such as ``{"start": "lap"}``.
    callbacks : functions of (round, shared) called after every round; a true answer ends the fit.

    Attributes
    ----------
    components_ : the shared factor H (k x m), rows at norm 1.
    codes_ : list of the codes W_j (n_j x k), one per client in the order of ``clients_``.
    clients_ : names of the clients: positions in the list, or the distinct groups.
    history_ : one :class:`~cofactor.engines.history.Round` per round: loss, drift, bytes, seconds, participants.
    reconstruction_err_ : ``|X - W H|_F / |X|_F`` over all rows.
    n_rounds_ : rounds that were run.

    Examples
    --------
    >>> import numpy as np
    >>> from cofactor import FederatedNMF
    >>> rng = np.random.default_rng(0)
    >>> H = rng.uniform(size=(3, 8))
    >>> hospitals = [rng.uniform(size=(n, 3)) @ H for n in (30, 50, 20)]
    >>> model = FederatedNMF(3, random_state=0, tol=0).fit(hospitals)
    >>> model.components_.shape, [W.shape for W in model.codes_]
    ((3, 8), [(30, 3), (50, 3), (20, 3)])
    >>> bool(model.reconstruction_err_ < 0.01)
    True
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        method: str | Method = "exact",
        rounds: int = 50,
        tol: float = 1e-4,
        participation: float = 1.0,
        random_state: Any = None,
        engine: Engine | None = None,
        options: dict[str, Any] | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.n_components = n_components
        self.method = method
        self.rounds = rounds
        self.tol = tol
        self.participation = participation
        self.random_state = random_state
        self.engine = engine
        self.options = options
        self.callbacks = callbacks

    def fit(self, X: Any, y: Any = None, groups: Any = None) -> Self:
        """Fit to a list of matrices (one per client), or to one matrix whose ``groups`` name the client of each row."""
        self._fit(X, groups)
        return self

    def fit_transform(self, X: Any, y: Any = None, groups: Any = None) -> Array | list[Array]:
        """Fit and return the codes: a list for a list of clients, otherwise one matrix in the order of the rows."""
        held = self._fit(X, groups)
        if clients.is_many(X):
            return self.codes_
        if held.rows is None:
            return self.codes_[0]
        codes = np.empty((sum(map(len, held.rows)), len(self.components_)), self.codes_[0].dtype)
        for rows, W in zip(held.rows, self.codes_, strict=True):
            codes[rows] = W
        return codes

    def _fit(self, X: Any, groups: Any) -> clients.Clients:
        names = clients.feature_names(X)
        if not clients.is_many(X):
            X = validate_data(self, X, accept_sparse=("csr", "csc"), dtype=[np.float64, np.float32], **UNCHECKED)
        held = clients.split(X, groups)
        method = self._method(held.data)
        outcome = run(
            method,
            held.data,
            rounds=self.rounds,
            seed=self._seed(),
            engine=self.engine,
            participation=self.participation,
            stop=Stop(self.tol),
            callbacks=self.callbacks,
        )
        self.components_ = outcome.factor
        self.codes_ = outcome.codes
        self.clients_ = held.names
        self.history_: list[Round] = outcome.history
        self.n_rounds_ = len(outcome.history)
        self.n_features_in_ = self.components_.shape[1]
        self.reconstruction_err_ = pooled_error(held.data, self.codes_, self.components_)
        if names is not None:
            self.feature_names_in_ = names
        if self.tol > 0 and not outcome.converged:
            warnings.warn(
                f"{self.n_rounds_} rounds were not enough to reach tol={self.tol}; raise `rounds` or `tol`.",
                ConvergenceWarning,
                stacklevel=3,
            )
        return held

    def _method(self, data: list[Data]) -> Method:
        n, m = sum(X.shape[0] for X in data), data[0].shape[1]
        k = self.n_components if self.n_components is not None else min(MOST_BY_DEFAULT, n, m)
        if not isinstance(k, int | np.integer) or not 1 <= k <= min(n, m):
            raise CofactorError(
                f"n_components: expected a whole number from 1 to {min(n, m)} "
                f"(the smaller of n_samples={n} and n_features={m}), found {k!r}."
            )
        if isinstance(self.method, str):
            return catalog.make(self.method, int(k), **(self.options or {}))
        if self.n_components is not None and self.method.rank != k:
            raise CofactorError(f"n_components is {k}, but the method was made with rank {self.method.rank}.")
        return self.method

    def _seed(self) -> int:
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def transform(self, X: Any) -> Array | list[Array]:
        """Return the codes of new rows for the shared factor; a list of clients gives a list."""
        check_is_fitted(self)
        if clients.is_many(X):
            return [self._transform(x, client=j) for j, x in enumerate(X)]
        return self._transform(X)

    def _transform(self, X: Any, client: int = 0) -> Array:
        X = validate_data(
            self, X, reset=False, accept_sparse=("csr", "csc"), dtype=[np.float64, np.float32], **UNCHECKED
        )
        return refit(clients.check_one(X, client=client), self.components_)

    def inverse_transform(self, X: Any) -> Array | list[Array]:
        """Return the reconstruction ``W H`` of codes W."""
        check_is_fitted(self)
        if clients.is_many(X):
            return [self.inverse_transform(W) for W in X]  # type: ignore[misc]
        return np.asarray(X) @ self.components_

    def score(self, X: Any, y: Any = None) -> float:
        """Return the explained share ``1 - |X - W H|^2 / |X|^2`` with codes refitted for X."""
        items = X if clients.is_many(X) else [X]
        codes = [self._transform(x, client=j) for j, x in enumerate(items)]
        return 1 - pooled_error([clients.check_one(x) for x in items], codes, self.components_) ** 2

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


UNCHECKED = {"ensure_all_finite": False}
"""Values are checked by :mod:`cofactor.local.arrays`, which names the client and the cell."""
