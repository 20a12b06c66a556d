"""What a fitted model of numbers offers: markers, AnnData, one file, reconstructions, and new rows."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from cofactor.engines.contract import Engine
from cofactor.engines.totals import totals
from cofactor.estimators import clients, growing, losses
from cofactor.estimators.base import seed_of
from cofactor.estimators.given import cell_weights, weighted
from cofactor.estimators.keeping import Kept
from cofactor.estimators.places import agree
from cofactor.estimators.tables import as_table
from cofactor.local import arrays, devices
from cofactor.local.apart import codes as apart_codes
from cofactor.local.apart import own_part
from cofactor.local.refit import refit
from cofactor.local.stacked import Summary
from cofactor.methods.build import Facts
from cofactor.plan import Plan
from cofactor.privacy.errors import PrivacyError
from cofactor.select.markers import Marker, Regressed, table
from cofactor.types import Array, CofactorError, Data, unknown


class Factored(Kept, auto_wrap_output_keys=None):  # type: ignore[call-arg]
    """A model ``X ~ W H`` that is fitted, and what one does with it."""

    beta_loss: Any
    alpha_W: Any
    alpha_H: Any
    l1_ratio: Any
    orthogonality: Any
    own_components_: list[Array] | None = None
    silhouette_: Array | None = None
    clustergram_: Array | None = None

    def _codes(self, X: Data) -> Array:
        return self._refit()(X, self._factor)

    def _refit(self) -> Any:
        """Return what finds codes: the method, unless it needs blocks of the whole matrix."""
        return refit if self._made.traits.kind == "blocks" else self._made.refit

    def transform(self, X: Any, *, client: Any = None, cell_weight: Any = None) -> Any:
        """Return the codes of new rows for the shared factor; a list of clients gives a list.

        Rows are prepared as those of the fit were, and features matched by name. To ``shared-own`` the rows of a call
        are one client, whose own part is found from them, so that all of them belong in one call; those of a
        ``client`` of the fit have codes of its own factor ``H + V_j``. ``cell_weight``, given as X is, says how much
        each cell counts, where the fit was told so; how much a row counts does not change its codes.
        """
        if client is None and cell_weight is None:
            return super().transform(X)
        check_is_fitted(self)
        if client is not None and (cell_weight is not None or clients.is_many(X)):
            raise CofactorError("client: expected one matrix of that client's rows, and no cell_weight beside it.")
        held = self._new_data(X)
        if client is not None:
            found = [self._codes_of(client, held[0])]
        else:
            agree(X, {"cell_weight": cell_weight})
            weights = list(cell_weight) if clients.is_many(X) else [cell_weight]
            found = [self._codes(x) for x in self._weighed(X if clients.is_many(X) else [X], held, weights)]
        return self._contained(found if clients.is_many(X) else found[0], X)

    def _codes_of(self, client: Any, X: Data) -> Array:
        """Return codes of rows of a client of the fit, with the own part that it has."""
        if self._made.traits.apart is None or self.own_components_ is None:
            raise CofactorError(
                "client: expected a fit of method='shared-own' whose clients were here, found one without parts of "
                "their own: they stay with their clients, and in no file."
            )
        if client not in self.clients_:
            raise unknown("client", client, map(str, self.clients_))
        V = devices.plain(self.own_components_[self.clients_.index(client)])
        return apart_codes(X, self._factor, V, self._made.traits.apart)

    def _weighed(self, given: Any, held: list[Data], weights: list[Any]) -> list[Data]:
        """Return new rows with the weights of their cells."""
        if self._made.traits.kind != "gaps":
            raise CofactorError(
                "cell_weight: expected a fit with cell_weight, or by method='exact-gaps', found one whose cells count "
                "alike."
            )
        named = [as_table(x, "X").feature_names for x in given]
        if any(names not in (None, list(vars(self).get("feature_names_in_", []))) for names in named):
            raise CofactorError("cell_weight: expected the features of the fit in their order, found others.")
        if len(weights) != len(held) or any(map(arrays.is_held, held)):
            raise CofactorError("cell_weight: expected one matrix of weights for each of X, all of them in memory.")
        return [weighted(x, cell_weights(w, x.shape)) for x, w in zip(held, weights, strict=True)]

    def _add(self, data: list[Data], facts: Facts, plan: Plan, engine: Engine | None) -> None:
        weight, H = self._made.traits.apart, self.components_
        self.own_components_ = None
        if weight is not None and self.codes_:
            small = [str(c) for c, W in zip(self.clients_, self.codes_, strict=True) if len(W) < len(H)]
            if small:
                warnings.warn(
                    f"clients with fewer rows than components ({len(H)}): {', '.join(small)}. Their own part can take "
                    "up all they have; take a larger weight, or leave them out.",
                    stacklevel=4,
                )
            self.own_components_ = [own_part(X, W, H, weight) for X, W in zip(data, self.codes_, strict=True)]
        self.marker_scores_ = None
        if self.features_ is not None and plan.privacy is None:
            self.marker_scores_ = self._scores(data, facts.groups, engine=engine, secure=plan.secure)

    def _scores(self, data: list[Data], groups: tuple[int, ...] | None = None, **how: Any) -> Array:
        question = Regressed(self._refit(), self._factor, groups)
        return question.scores(totals(question, data, self._factor.shape[1], **how))

    def markers(self, X: Any = None, *, top: int = 20) -> list[Marker]:
        """Return the ``top`` features that go with each component more than with the others, best first.

        Scores are those of cNMF: ordinary least squares of every feature, at mean 0 and variance 1, on the codes; from
        sums over clients. Without X they are those of the fit, which features with names have; else those of the rows
        of X (one matrix, or a list of clients). ``pandas.DataFrame(model.markers())`` is a table.
        """
        check_is_fitted(self)
        if self._budget or self._paid:
            raise PrivacyError(
                "markers are refused after a private fit: they need sums over all rows, which would leave without "
                "noise and outside the budget. The weights in components_ are what was paid for."
            )
        scores = self.marker_scores_ if X is None else self._scores(self._new_data(X))
        if scores is None:
            raise CofactorError("markers: expected a fit of features with names, or rows to score: markers(X).")
        return table(scores, self._factor, self.features_, top=top)

    def inverse_transform(self, X: Any) -> Array | list[Array]:
        """Return the reconstruction ``W H`` of codes W; a list of codes gives a list."""
        check_is_fitted(self)
        given = X if clients.is_many(X) else [X]
        found = [devices.returned(np.asarray(devices.plain(W)) @ self._factor, W) for W in given]
        return found if clients.is_many(X) else found[0]

    def score(self, X: Any, y: Any = None) -> float:
        """Return the explained share ``1 - |X - W H|^2 / |X|^2`` with codes refitted for X."""
        return 1 - self._score(X).error ** 2

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Go on with new rows: one matrix, or a list of clients; the first call is a fit.

        New rows count as they are; rows that were seen stand in summaries (:mod:`cofactor.combine.summaries`), in which
        their codes are made of those they had and of some of their own. The factor goes on on all of them.
        ``codes_``, ``clients_`` and ``reconstruction_err_`` are those of the new rows.
        """
        if self._budget or self._paid or self.secure:
            raise PrivacyError(
                "partial_fit is refused with privacy or secure sums, and after a private fit: it needs each client's "
                "summary. Fit anew, or begin at what was released: fit(X, H=model.components_)."
            )
        more = losses.options(self.beta_loss, self.alpha_W, self.alpha_H, self.l1_ratio, self.orthogonality)
        growing.refuse(self.method, self._kind.name, {**more, **self._options()})
        first = "components_" not in vars(self)
        if first:
            self.fit(X)
            self._kept: list[Summary] = []
        elif "_kept" not in vars(self):  # rows of a fit: of them codes are left
            if not self.codes_:
                raise CofactorError(
                    "partial_fit: expected the codes of the rows that were fitted, found none: the model was loaded, "
                    "or its clients are on other machines. Begin at its factor: fit(X, H=model.components_)."
                )
            self._kept = [growing.recalled([devices.plain(W) for W in self.codes_], self._factor)]
        data, seed = self._new_data(X), seed_of(self.random_state)
        if first:
            self._kept = [growing.summary(x, self._codes(x), seed) for x in data]
            return self
        self._kept, self.components_ = growing.grow(self._kept, data, self._factor, seed)
        self.codes_, self.clients_ = [self._codes(x) for x in data], list(range(len(data)))
        tallies = [self._kind.tally(self._made, x, W, self.components_) for x, W in zip(data, self.codes_, strict=True)]
        self.reconstruction_err_ = self._kind.score(np.sum(tallies, axis=0)).error
        self.n_rounds_ = self.n_iter_ = self.n_iter_ + 1
        self.marker_scores_ = self.own_components_ = self.stability_ = None
        self.silhouette_ = self.clustergram_ = None
        return self
