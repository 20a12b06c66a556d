"""FederatedBMF: Boolean matrix factorization over clients whose rows may not be pooled."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from cofactor.boolean import Tally, check_boolean, greedy_refit, product, tally, unpack
from cofactor.engines.history import Round
from cofactor.engines.rounds import Callback, Engine, run
from cofactor.estimators import clients
from cofactor.estimators.bits import KEPT, split, to_bits
from cofactor.method import Method
from cofactor.methods import catalog
from cofactor.types import Array, CofactorError, Data

MOST_BY_DEFAULT = 10
DEFAULT_ROUNDS = 50


class FederatedBMF(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """One 0/1 factor H shared by all clients, private 0/1 codes W_j, ``X_j ~ W_j o H`` (OR of ANDs).

    Parameters
    ----------
    n_components : the rank k; None takes min(10, features, rows).
    method : a name from :func:`cofactor.methods.catalog.names` with ``boolean=True``, or a method object.
        ``"boolean-oneshot"`` needs one upload per client, ``"boolean-exact"`` sums only, ``"felb"`` is the paper's.
    align : "every", "first" or None: when components are matched between clients (felb, falb and the one-shot
        baselines); "auto" leaves it to the method.
    aggregate : "vote", "round" or "or" (one-shot baselines); None leaves it to the method.
    sweeps : rounds of Boolean coordinate sweeps at the end, each one more upload of counts; 0 for none.
    rounds : length of the plan, sweeps included (felb, falb, boolean-exact); None leaves it to the method.
    threshold : values >= threshold are ones, others zeros; None accepts only 0 and 1.
    participation : the share of clients drawn for each round.
    random_state : seed; an int gives the same bits everywhere.
    engine : what carries the messages; None runs all clients in this process.
    options : further options of the named method, such as ``{"local": "asso"}``.
    callbacks : functions of (round, shared) called after every round; a true answer ends the fit.

    Attributes
    ----------
    components_ : the shared factor H (k x m), uint8 zeros and ones.
    codes_ : list of the codes W_j (n_j x k, uint8), one per client in the order of ``clients_``.
    clients_ : names of the clients: positions in the list, or the distinct groups.
    history_ : one :class:`~cofactor.engines.rounds.Round` per round; its loss is half the errors in a sweep.
    reconstruction_err_ : the loss ``|X xor (W o H)| / |X|`` over all rows.
    n_rounds_ : rounds that were run.

    Examples
    --------
    >>> from cofactor import FederatedBMF
    >>> from cofactor.data import synthetic
    >>> data = synthetic.tiles(300, 40, 3, density=1.0, noise=0.0)
    >>> model = FederatedBMF(3, random_state=0).fit([data.X[:100], data.X[100:]])
    >>> model.components_.shape, model.components_.dtype.name
    ((3, 40), 'uint8')
    >>> model.score(data.X)
    1.0
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        method: str | Method = "boolean-oneshot",
        align: str | None = "auto",
        aggregate: str | None = None,
        sweeps: int = 3,
        rounds: int | None = None,
        threshold: float | None = None,
        participation: float = 1.0,
        random_state: Any = None,
        engine: Engine | None = None,
        options: dict[str, Any] | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.n_components = n_components
        self.method = method
        self.align = align
        self.aggregate = aggregate
        self.sweeps = sweeps
        self.rounds = rounds
        self.threshold = threshold
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
        codes = np.empty((sum(map(len, held.rows)), len(self.components_)), np.uint8)
        for rows, W in zip(held.rows, self.codes_, strict=True):
            codes[rows] = W
        return codes

    def _fit(self, X: Any, groups: Any) -> clients.Clients:
        names = clients.feature_names(X)
        if not clients.is_many(X):
            X = validate_data(self, X, **KEPT)
        held = split(X, groups, threshold=self.threshold)
        method = self._method(held.data)
        outcome = run(
            method,
            held.data,
            rounds=method.rounds or self.rounds or DEFAULT_ROUNDS,
            seed=self._seed(),
            engine=self.engine,
            participation=self.participation,
            callbacks=self.callbacks,
        )
        self.components_ = outcome.factor
        self.codes_ = outcome.codes
        self.clients_ = held.names
        self.history_: list[Round] = outcome.history
        self.n_rounds_ = len(outcome.history)
        self.n_features_in_ = self.components_.shape[1]
        counts = self._tally(held.data, self.codes_)
        self.reconstruction_err_ = counts.loss
        if names is not None:
            self.feature_names_in_ = names
        if counts.ones and not self.components_.any():
            warnings.warn(
                f"The model is empty: no component was left after rounding {method.rank}. The noise level swamps the "
                "signal, or the clients have too few rows; try fewer components, fewer clients or cleaner data.",
                UserWarning,
                stacklevel=3,
            )
        return held

    def _method(self, data: list[Data]) -> Method:
        n, m = sum(X.shape[0] for X in data), data[0].shape[1]
        k = self.n_components if self.n_components is not None else min(MOST_BY_DEFAULT, n, m)
        if not isinstance(k, int | np.integer) or not 1 <= k <= min(n, m):
            raise CofactorError(
                f"n_components: expected a whole number from 1 to {min(n, m)} "
                f"(the smaller of {n} rows and {m} features), found {k!r}."
            )
        if not isinstance(self.method, str):
            if self.n_components is not None and self.method.rank != k:
                raise CofactorError(f"n_components is {k}, but the method was made with rank {self.method.rank}.")
            return self.method
        if self.method not in catalog.names(boolean=True):
            known = ", ".join(catalog.names(boolean=True))
            raise CofactorError(f"method: expected a Boolean method ({known}), found {self.method!r}.")
        return catalog.make(self.method, int(k), **self._options())

    def _options(self) -> dict[str, Any]:
        """Return the options of the named method: those that were set here, and ``options``."""
        chosen: dict[str, Any] = {"sweeps": self.sweeps}
        if self.align != "auto":
            chosen["align"] = self.align
        for name in ("aggregate", "rounds"):
            if getattr(self, name) is not None:
                chosen[name] = getattr(self, name)
        return {**chosen, **(self.options or {})}

    def _seed(self) -> int:
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _tally(self, Xs: Sequence[Data], Ws: Sequence[Array]) -> Tally:
        return sum((tally(X, W, self.components_) for X, W in zip(Xs, Ws, strict=True)), Tally())

    def _bits(self, X: Any, client: int = 0) -> Data:
        return to_bits(validate_data(self, X, reset=False, **KEPT), client=client, threshold=self.threshold)

    def transform(self, X: Any) -> Array | list[Array]:
        """Return the Boolean codes of new rows by greedy cover (uint8); a list of clients gives a list."""
        check_is_fitted(self)
        if clients.is_many(X):
            return [greedy_refit(self._bits(x, j), self.components_) for j, x in enumerate(X)]
        return greedy_refit(self._bits(X), self.components_)

    def inverse_transform(self, X: Any) -> Array | list[Array]:
        """Return the reconstruction ``W o H`` (uint8) of 0/1 codes W."""
        check_is_fitted(self)
        if clients.is_many(X):
            return [self.inverse_transform(W) for W in X]  # type: ignore[misc]
        W = np.asarray(X)
        check_boolean(W)
        if W.shape[1] != len(self.components_):
            raise CofactorError(f"codes: expected {len(self.components_)} columns, found {W.shape[1]}.")
        return unpack(product(W, self.components_))

    def score(self, X: Any, y: Any = None) -> float:
        """Return ``1 - |X xor (W o H)| / |X|`` with codes refitted for X."""
        check_is_fitted(self)
        Xs = [self._bits(x, j) for j, x in enumerate(X if clients.is_many(X) else [X])]
        return 1 - self._tally(Xs, [greedy_refit(x, self.components_) for x in Xs]).loss

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = []
        return tags
