"""The client's side of a run: read the data, ask the policy, settle, step; codes and ledger stay in its own folder."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np

from cofactor import __version__, kinds
from cofactor.data.formats.row_blocks import RowBlocks
from cofactor.data.formats.table import Table
from cofactor.data.preparation import Asked, Preparation
from cofactor.engines.flare_member import Desk, Member, told, told_nothing
from cofactor.engines.flare_refusals import Refused
from cofactor.engines.history import dtype_of
from cofactor.engines.secure import in_words
from cofactor.engines.totals import Question, Totals
from cofactor.federation import hand_over
from cofactor.federation.features import DTYPES, Said, hashes
from cofactor.federation.own_run import Closing, Own, OwnRun, hold, kept_once, show
from cofactor.federation.policy import Policy
from cofactor.federation.questions import prepared
from cofactor.federation.terms import RunTerms
from cofactor.jobs import preparing
from cofactor.jobs.conclude import Conclude
from cofactor.jobs.folder import RunFolder
from cofactor.jobs.hashing import sha256
from cofactor.jobs.judge import LOCAL_CELLS
from cofactor.kinds.own_fits import own_cells
from cofactor.local.columns import SomeColumns
from cofactor.method import Method
from cofactor.methods.build import Facts, adapted
from cofactor.records import Input
from cofactor.select.markers import Regressed
from cofactor.types import Array, CofactorError, Data, Message, Shared

LOG = logging.getLogger("cofactor.client")
PLACE: Mapping[str, Any] = {"number": int, "clients": int, "width": int, "union": bool, "columns": np.ndarray}
"""What a client is told to find its columns."""


class ClientJob:
    """One run at one client: first what it is like, then settled, then a member that steps."""

    def __init__(self, told_terms: Any, own: Own) -> None:
        self.own = own
        self.member: Member | None = None
        self.terms: RunTerms | None = None
        try:
            self.terms = RunTerms.read(told_terms)
        except CofactorError:
            LOG.exception("the terms of a run could not be read")
        run = self.terms.run if self.terms else "none"
        self.folder = own.home / "runs" / run
        known = (self.hello, self.question, self.settle, self.names, self.markers)
        self.ops: dict[str, Callable[[Any], Any]] = {op.__name__: op for op in known}
        self.desk = Desk(run, self.ops)
        self.table: Table | None = None
        self.columns: Array | None = None
        self.digest = ""
        self.facts: Facts | None = None
        self.held = ExitStack()

    def hello(self, value: Any) -> dict[str, Any]:
        """Say what the client is like, if its policy allows the run at all."""
        told_nothing(value)
        if self.terms is None:
            raise Refused("order")
        terms, home = self.terms, self.own.home
        if terms.version != __version__:
            raise Refused("version")
        policy = Policy.read(home)
        policy.check(terms.config, home, terms.run)
        if not self._first("terms.json", terms.digest):
            raise Refused("terms")
        exchanged = hand_over.has_all(home, terms.names)
        if policy.keys and terms.config.secure and not exchanged:
            raise Refused("keys")
        policy.check_approved(home, terms)  # before the data are read: what they refuse would tell of them
        X = self._data()
        policy.check_rows(X.shape[0], terms.config)
        self.digest = sha256(self.own.data)
        if not self._first("data.json", self.digest):
            raise Refused("changed")
        assert self.table is not None
        shown = None if terms.config.privacy or terms.config.secure else int(X.shape[0])
        names = hashes(self.table.feature_names, self.own.salt)
        dtype = X.dtype.newbyteorder("<").str
        return Said(int(X.shape[1]), dtype, names, shown, __version__, exchanged).plain()

    @property
    def _known(self) -> tuple[RunTerms, Table]:
        """The terms and the data, once the client has said hello."""
        if self.terms is None or self.table is None:
            raise Refused("order")
        return self.terms, self.table

    def _data(self) -> Data:
        if self.terms is None:
            raise Refused("order")
        if self.table is None:
            config = self.terms.config
            kind = config.preparation.takes if config.preparation else kinds.named(config.kind)
            try:
                table = self.own.table(private=config.privacy is not None)
                table = replace(table, X=kinds.check_one(kind, table.X, 0, private=config.privacy is not None))
            except (CofactorError, OSError, ValueError) as error:
                LOG.exception("the data cannot be used")
                raise Refused("data") from error
            self.table = table
        return self.table.X

    def _first(self, name: str, found: str) -> bool:
        """Whether this is what the run began with: the first time, write it down; on a full disk, if it is private."""
        if self.terms is None:
            raise Refused("order")
        return kept_once(self.folder / name, {"sha256": found}, needed=self.terms.config.privacy is not None)

    def question(self, value: Any) -> None:
        """Take the question of a step of the preparation: sums over its rows, with what was learned before."""
        *place, step, known = told(value, **PLACE, step=int, known=dict)
        config = self._known[0].config
        steps = config.preparation.steps
        if self.member is not None:
            raise Refused("order")
        if not 0 <= step < len(steps) or not steps[step].asks or config.privacy is not None:
            raise Refused("order")
        X = prepared(self._chosen(*place), steps[:step], known)
        self._show(place[1], place[2], None)
        t = sum(one.asks for one in steps[:step]) - config.preparation.questions
        self._ask(Asked(steps[step]), X, place[0], t)

    def _ask(self, question: Question, X: Data, number: int, t: int) -> None:
        """Be ready to answer one question by a sum, under masks where the run has them."""
        method, secure = Totals(question, X.shape[1]), self._known[0].config.secure
        run = self._own_run(method, number)

        def sending(_: int, message: Message, shared: Shared) -> None:
            run.asked(t, message)

        self._work(Member(method, X, number, 0, 1, masks=secure, sending=sending))

    def _work(self, member: Member) -> None:
        """Let orders go to this member; with keys that were handed over, if all are here."""
        names = self._known[0].names
        if hand_over.has_all(self.own.home, names):
            member.host.kept["keys"] = hand_over.keys(self.own.home, names)
        self.ops.update(member.ops)

    def _own_run(self, method: Method, number: int) -> OwnRun:
        """Open the client's own run folder."""
        terms, table = self._known
        config, name = terms.config, terms.names[number]
        self.held.close()  # by an order that has failed
        run = OwnRun(RunFolder(self.folder), name, method, config.secure, held=self.held)
        rows, m = table.X.shape
        line = Input(name, "" if config.privacy else str(self.own.data), int(m), self.digest, int(rows))
        exchanged = hand_over.has_all(self.own.home, terms.names)
        masks = in_words(config.plan, len(terms.names), keys=exchanged) if config.secure else None
        run.open(replace(config, inputs=[str(self.own.data)]), line, masks)
        return run

    def settle(self, value: Any) -> None:
        """Take a number and the columns of the run, and build the method as the server does."""
        *place, features, rows, parts, dtype, known = told(
            value,
            **PLACE,
            features=int,
            rows=(int, type(None)),
            groups=(np.ndarray, type(None)),
            dtype=str,
            known=dict,
        )
        (terms, table), (number, clients, width, union) = self._known, place[:4]
        if self.member is not None or dtype not in DTYPES:
            raise Refused("order")
        config, raw = terms.config, self._chosen(*place)
        X = prepared(raw, config.preparation.steps, known)
        if X.shape[1] != features:
            raise Refused("order")
        facts = Facts(clients, features, rows, None if parts is None else tuple(parts.tolist()))
        method, plan, *_ = terms.made(facts)
        formed, limit, _ = adapted(method, plan)
        Policy.read(self.own.home).check_messages(formed, features, limit)
        [data] = kinds.as_dtype([self._checked(X)], dtype_of(method.traits, [dtype]))
        self._show(clients, width, features)
        run = self._own_run(formed, number)
        self._charge(run, limit)
        private = method.traits.allowance is not None
        each = LOCAL_CELLS + 1 if rows is None else own_cells(-(-rows // clients), features, config.rank)
        kind = kinds.KINDS[method.traits.kind]
        compares = kind.compares and not (private or config.secure or union) and clients * each <= LOCAL_CELLS
        more: Any = {"rows": table.row_names, "masks": config.secure}
        close = Conclude(kind, formed, run.name, run.own, config.seed, private, compares, **more)
        self.facts = facts
        self.member = Member(
            formed,
            data,
            number,
            config.seed,
            plan.stream.updates if plan.stream else limit,
            keep=self.folder,
            masks=config.secure,
            close=Closing(close, run, *self._left(known, width)),
            sending=run,
        )
        self._work(self.member)

    def _checked(self, X: Data) -> Data:
        """Check what a preparation has left, as data of the method."""
        config = self._known[0].config
        if not config.preparation.steps:
            return X
        try:
            if isinstance(X, SomeColumns):
                kinds.named(config.kind).check(X.inner, 0)
                return X
            return kinds.check_one(kinds.named(config.kind), X, 0, private=config.privacy is not None)
        except CofactorError as error:
            LOG.exception("the data cannot be used after their preparation")
            raise Refused("data") from error

    def _charge(self, run: OwnRun, limit: int) -> None:
        """Check what a private run will cost against policy and ledger; it is noted before the first round leaves.

        So a run that others refuse costs nothing here.
        """
        terms, table = self._known
        policy, allowance = Policy.read(self.own.home), run.method.traits.allowance
        policy.check_cost(run.method, self.own.home, terms.run, note=False)
        run.noted = lambda: policy.check_cost(run.method, self.own.home, terms.run)
        if policy.ledger is not None and allowance is not None:
            planned = [allowance.costs(t) for t in range(len(run.rounds), limit)]
            run.account, run.data = hold(self.own.home / policy.ledger, table.X, planned, run.held)

    def _show(self, clients: int, width: int, features: int | None) -> None:
        """Write down what was agreed on, for the page of this client; how many features are left may not be known."""
        terms, table = self._known
        config = terms.config
        found = {"clients": clients, "own": table.X.shape[1], "common": width, "features": features}
        show(self.folder, {**found, "how": config.features, "prepare": config.prepare})

    def _chosen(self, number: int, clients: int, width: int, union: bool, columns: Array) -> Data:
        """Return the data with the columns of the run; each column at most once, and none that is not there."""
        terms, table = self._known
        if not 0 <= number < clients <= 10_000 or clients != len(terms.names):
            raise Refused("order")
        # what a method cannot take would fail by how many rows there are
        if union and terms.config.features != "union":
            raise Refused("order")
        X = table.X
        bound = width if union else X.shape[1]
        count = X.shape[1] if union else width
        if columns.dtype.kind != "i" or columns.shape != (count,) or len(np.unique(columns)) < count:
            raise Refused("order")
        if columns.min() < 0 or columns.max() >= bound:
            raise Refused("order")
        self.columns = np.arange(X.shape[1]) if union else columns
        if union:
            return SomeColumns(X, columns, width)
        if np.array_equal(columns, np.arange(X.shape[1])):
            return X
        return X.columns(columns) if isinstance(X, RowBlocks) else X[:, columns]

    def names(self, value: Any) -> list[str] | None:
        """Say what the features of the run are called, once the run is settled."""
        told_nothing(value)
        if self.member is None or self.columns is None:
            raise Refused("order")
        names = self._known[1].feature_names
        return None if names is None else [names[i] for i in self.columns]

    def _left(self, known: Mapping[str, Array], width: int) -> tuple[list[str] | None, dict[str, Array]]:
        """Return the names of the features that are left, where this client has all, and what led to them."""
        terms, table = self._known
        names, columns, steps = table.feature_names, self.columns, terms.config.preparation
        here = names is not None and columns is not None and terms.config.features != "union"
        own = [names[i] for i in columns] if here and names is not None and columns is not None else None
        if not steps.steps:
            return own, {}
        made = Preparation.from_arrays({"prepare": np.array(steps.text), **known})
        return None if own is None else made.names(own), preparing.learned(made, own, width)

    def markers(self, value: Any) -> None:
        """Take the question of the markers, once the codes are there: sums that tell features of components apart."""
        factor, t = told(value, factor=np.ndarray, t=int)
        if self.member is None or self.facts is None or self.member.method.traits.allowance is not None:
            raise Refused("order")
        if factor.ndim != 2 or factor.shape[1] != self.member.data.shape[1] or not np.isfinite(factor).all():
            raise Refused("order")
        if not 0 < t <= self.member.limit:
            raise Refused("order")
        question = Regressed(self.member.method.refit, factor, self.facts.groups)
        self._ask(question, self.member.data, self.member.number, t)
