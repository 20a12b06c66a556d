"""What all estimators share: a plan, clients in, a run, attributes out, all or nothing."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from cofactor import kinds
from cofactor.data.harmonise import How, onto
from cofactor.data.preparation import Preparation, hint
from cofactor.engines.contract import Engine
from cofactor.engines.history import ENDED, Round
from cofactor.engines.inline import Inline
from cofactor.engines.loop import carrier, run
from cofactor.engines.outcome import Run
from cofactor.engines.team import Team
from cofactor.engines.totals import totals
from cofactor.estimators import among, clients, places
from cofactor.estimators.containers import Containers
from cofactor.estimators.ending import doubt, lacking, mind
from cofactor.estimators.ending import name as name_ending
from cofactor.estimators.families import TAKES, check_takes, family
from cofactor.estimators.given import NOTHING, Given
from cofactor.estimators.tables import as_table, is_annotated, is_frame, set_aside
from cofactor.kinds import measure
from cofactor.kinds.kind import Kind, Score
from cofactor.kinds.measure import Measure
from cofactor.local import arrays, devices
from cofactor.method import Method
from cofactor.methods.build import About, Facts, about, ready, refuse
from cofactor.plan import Plan
from cofactor.privacy.allowance import Privacy
from cofactor.types import Array, CofactorError, Data

SHAPE_ONLY: dict[str, Any] = {"accept_sparse": ("csr", "csc"), "ensure_all_finite": False}
"""scikit-learn checks shape and type; values are checked here, with the client and the cell in the message."""


def seed_of(random_state: Any) -> int:
    """Return the seed of a run: an int as it is, so that it gives the same numbers everywhere, or a draw."""
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


class Federated(Containers, TransformerMixin, BaseEstimator, auto_wrap_output_keys=None):  # type: ignore[call-arg]
    """Base of the estimators. A subclass says what its data are, what its options mean, and how codes are found."""

    n_components: Any
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
    device: Any = None
    privacy: Privacy | None = None
    secure: bool = False
    features: How = "same"
    layer: str | None = None
    prepare: Any = None
    _column: str | None = None
    _preparation: Preparation = Preparation()

    def _convert(self, X: Any, client: Any) -> Data:
        """Return one client's data as a matrix; its values are checked by its kind."""
        return clients.matrix(X, client)

    def _options(self) -> dict[str, Any]:
        """Return the options of the named method."""
        return dict(self.options or {})

    def _asked(self, given: Given) -> tuple[str | Method, dict[str, Any]]:
        """Return the method that is asked for, and its options; it may begin at something given."""
        return self.method, self._options()

    def _codes(self, X: Data) -> Array:
        """Return the codes of checked rows."""
        return self._made.refit(X, self._factor)

    def _watchers(self) -> list[Any]:
        """Return what is called after every round."""
        return list(self.callbacks)

    def _conclude(self, score: Score, outcome: Run) -> None:
        """Set what only this estimator knows, and warn."""

    def fit(self, X: Any, y: Any = None, groups: Any = None) -> Self:
        """Fit to a list of matrices (one per client), or to one matrix whose ``groups`` name the client of each row.

        A matrix may be an array, a scipy sparse matrix, a data frame of pandas or polars, or AnnData; ``groups`` may
        be the name of a column of the data frame, or of ``obs``. With ``engine=Dask(client)`` X may also be a dask
        array, whose row chunks are the clients, or delayed blocks.
        """
        self._fit(X, groups)
        return self

    def _given(self) -> Given:
        """Return what a fit is given besides data."""
        return NOTHING

    def fit_transform(self, X: Any, y: Any = None, groups: Any = None, **given: Any) -> Array | list[Array]:
        """Fit and return the codes: a list for a list of clients, otherwise one matrix in the order of the rows."""
        held = self._fit(X, groups, self._given(**given))
        codes = [devices.plain(W) for W in self.codes_]
        return self._contained(codes if clients.is_many(X) else clients.in_order(codes, held.rows), X)

    @property
    def _about(self) -> About:
        return about(self.method)

    @property
    def _budget(self) -> Privacy | None:  # a method object may have a budget of its own
        return self._about.privacy if self.privacy is None else self.privacy

    @property
    def _paid(self) -> Privacy | None:
        """The budget that the fit was made with, whatever the parameters say since; None before it."""
        allowance = self._made.traits.allowance if "_made" in vars(self) else None
        return None if allowance is None else allowance.privacy

    def _plan(self) -> Plan:
        """Return how the fit goes."""
        return Plan(
            self.rounds,
            self.participation,
            self.tol,
            seed_of(self.random_state),
            privacy=self._budget,
            secure=self.secure,
        )

    def _fit(self, X: Any, groups: Any, given: Given = NOTHING) -> clients.Clients:
        plan, (chosen, options) = self._plan(), self._asked(given)
        name = family(type(self))
        asked = refuse(chosen, plan, options, TAKES[name], features=self.features, groups=groups)
        check_takes(asked, chosen, name)
        engine = self._carrier(plan)  # a text, or a device that is not there, is refused before data are read
        preparation, private = Preparation(), plan.privacy is not None
        if self.prepare is not None:
            preparation = Preparation.of(self.prepare, self._kind, private=private)
        team = among.ALONE if engine is None else engine.team
        with among.starting(team):
            plan = among.of_one_seed(plan, team)
            with among.unheard(team, private=private):
                places.agree(X, {"groups": groups, **given.named})
                held = self._held(X, groups, plan, preparation, team)
                preparation, whole, left = self._prepared(preparation, held, plan, engine, chosen)
                start = given.start(held, whole)
                data = given.weigh(held, whole)
            everyone = among.everyone(held.names, team, grouped=groups is not None)
            facts = clients.facts(data, plan, team)
            rank = self._rank(facts, data)
            method, plan, _, choice, foreseen = ready(chosen, rank, plan, facts, options)
            formed = clients.in_form(data, method)
        if choice is not None:
            self.choice_, chosen = choice, choice.method
        mind(foreseen)
        kind = kinds.KINDS[method.traits.kind]
        work = [] if plan.privacy is not None else [Measure(kind, method)] * len(formed)  # which other processes hear
        outcome = run(method, formed, plan, engine=engine, callbacks=self._watchers(), start=start, work=work)
        codes = [] if clients.is_elsewhere(formed) else outcome.codes
        found = outcome.findings if work else measure.here(kind, method, formed, codes, outcome.factor)
        told = measure.verdict(kind, outcome, found, everyone if work else held.names, features=left)
        lacking(told, found)
        self._made, self._preparation, self._chosen = method, preparation, (chosen, options)
        self.components_, self.codes_, self.clients_ = outcome.factor, outcome.codes, held.names
        if given.weight is not None and given.cells is None:  # codes of the rows themselves; those of others stay there
            self.codes_ = [] if clients.is_elsewhere(whole) else [self._codes(X) for X in whole]
        self.history_: list[Round] = outcome.history
        self.n_rounds_ = self.n_iter_ = len(outcome.history)
        self.ended_, self.empty_components_ = ENDED[outcome.ended], list(outcome.empty)
        self.stability_, self.absent_ = outcome.stability, [everyone[j] for j in outcome.absent]
        self.ledger_, self.epsilon_ = outcome.ledger, outcome.epsilon
        self.n_components_, self.n_features_in_ = len(outcome.factor), held.width or outcome.factor.shape[1]
        self._column, self.features_ = groups if isinstance(groups, str) else None, left
        if held.features is not None:
            self.feature_names_in_ = np.array(held.features, dtype=object)
        name_ending(outcome, everyone, kind)
        doubt(outcome, self.features_)
        self._conclude(told.whole, outcome)
        self._add(whole if given.cells is None else data, facts, plan, engine)
        self._give_back(X)
        return held

    def _carrier(self, plan: Plan) -> Engine | None:
        """Return the engine; None for the one that needs no name."""
        if self.device is None:
            return None if self.engine is None else carrier(self.engine, plan)
        if self.engine is not None:
            raise CofactorError(
                "device: expected no engine beside it, found one; give it to the engine: Inline(device=...)."
            )
        devices.refuse(self.device, self._kind.name, private=plan.privacy is not None)
        return carrier(Inline(device=self.device), plan)

    def _held(self, X: Any, groups: Any, plan: Plan, steps: Preparation, team: Team) -> clients.Clients:
        """Return the clients of what was given; nothing of data that are elsewhere is read."""
        if clients.is_elsewhere(X):
            if self.prepare is not None:
                raise CofactorError("prepare: expected None for data on workers; prepare them there.")
            return clients.left_there(X, plan, groups)
        many, empty = clients.is_many(X), plan.privacy is not None
        shape = SHAPE_ONLY | {"ensure_min_samples": int(not empty)}

        def convert(x: Any, client: Any) -> Data:
            kinds = clients.NUMBERS if is_frame(x) else self._dtype  # frames have types of their own, with NA
            return self._convert(x if many else validate_data(self, x, dtype=kinds, **shape), client)

        kind = steps.takes if steps.steps else self._kind
        how: Any = {"kind": kind, "features": self.features, "layer": self.layer, "empty": empty}
        return clients.split(X, groups, convert=convert, team=team, **how)

    def _prepared(
        self, preparation: Preparation, held: clients.Clients, plan: Plan, engine: Engine | None, chosen: str | Method
    ) -> tuple[Preparation, list[Data], list[str] | None]:
        """Carry it out over all clients; return it, data and names after it. Counts that look unprepared get a hint."""
        looked = held.features is not None and plan.privacy is None and self._kind.compares
        if looked and (said := hint(held.data, held.names, preparation, chosen)):
            warnings.warn(said, UserWarning, stacklevel=4)
        if not preparation.steps:
            return preparation, held.data, held.features
        made, data = preparation.settle(held.data, held.width or 0, partial(totals, engine=engine, secure=plan.secure))
        private, left = plan.privacy is not None, made.names(held.features)
        return made, kinds.check(self._kind, data, features=left, private=private), left

    def _add(self, data: list[Data], facts: Facts, plan: Plan, engine: Engine | None) -> None:
        """Add what only this estimator finds out once it is fitted, while the data are here."""

    def _rank(self, facts: Facts, data: list[Data]) -> int:
        """Return the number of components; of a private fit rows are no limit unless they are public."""
        k = clients.rank(self.n_components, facts)
        made = self._about.rank
        if made not in (None, k) and self.n_components is not None:
            raise CofactorError(f"n_components is {k}, but the method was made with rank {made}.")
        return k

    def transform(self, X: Any) -> Any:
        """Return the codes of new rows for the shared factor; a list of clients gives a list.

        Rows are prepared as those of the fit were, and features matched by name. To ``shared-own`` the rows of a call
        are one client, whose own part is found from them: give all rows of a client at once.
        """
        check_is_fitted(self)
        codes = [self._codes(self._there(x)) for x in self._new_data(X)]
        return self._contained(codes if clients.is_many(X) else codes[0], X)

    def _there(self, X: Data) -> Data:
        """Put checked rows where the fit was."""
        return X if self.device is None else devices.place(X, self.device)

    def _new_data(self, X: Any) -> list[Data]:
        """Check rows that were not fitted, one matrix or a list of clients, and prepare them."""
        check_is_fitted(self)
        clients.refuse_others(X)
        return [self._new(x, j) for j, x in enumerate(X if clients.is_many(X) else [X])]

    def _new(self, x: Any, client: int) -> Data:
        table = as_table(x, f"client {client}", layer=self.layer if is_annotated(x) else None)
        if self._column is not None and self._column in (table.feature_names or []):
            table, _ = set_aside(table, self._column)
        known = list(vars(self).get("feature_names_in_", []))
        if arrays.is_held(table.X) and table.feature_names is None:
            X = table.X
        elif known and table.feature_names is not None:
            X = clients.converted(table.X, client, self._convert, splits=False)
            lacking, others = self.features != "same", self.features == "intersection"
            X = onto(replace(table, X=X), known, lacking=lacking, others=others)
        else:
            X = self._convert(validate_data(self, table.X, reset=False, dtype=self._dtype, **SHAPE_ONLY), client)
        if not self._preparation.steps:
            return kinds.check_one(self._kind, X, client, known or None)
        raw = kinds.check_one(self._preparation.takes, X, client, known or None)
        return kinds.check_one(self._kind, self._preparation(raw), client, self.features_)

    def _score(self, X: Any) -> Score:
        """Return the errors of new rows, codes refitted."""
        data = self._new_data(X)
        tallies = [self._kind.tally(self._made, x, self._codes(x), self._factor) for x in data]
        return self._kind.score(np.sum(tallies, axis=0))

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)
