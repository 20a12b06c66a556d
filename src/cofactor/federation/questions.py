"""Questions besides those of the method, over a network: sums for a preparation before it, and for markers after it.

A client is told which question of the run it is, and makes it itself: code is never sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np

from cofactor.data.preparation import TEXT, Asked, Preparation
from cofactor.data.steps import Step
from cofactor.engines.contract import Answer, Engine, Session, Wrapping
from cofactor.engines.flare import Flare
from cofactor.engines.flare_clients import Clients
from cofactor.engines.flare_refusals import Refused, Short
from cofactor.engines.totals import totals
from cofactor.federation.terms import RunTerms
from cofactor.method import Method
from cofactor.plan import Plan
from cofactor.types import Array, Data, DataError


@dataclass(frozen=True)
class Asking(Wrapping):
    """The flare engine for one question: ``orders`` say to every client which one."""

    clients: Clients
    op: str
    orders: Mapping[int, Any]

    @contextmanager
    def open(self, method: Method, Xs: Sequence[Data], plan: Plan) -> Iterator[Session]:
        """Tell the clients, and begin with all of them."""
        if len(self.clients.ask(self.op, self.orders)) < len(self.orders):
            raise Short("expected all clients where sums are asked for, found fewer; the run can be resumed.")
        with self.engine.open(method, Xs, plan) as session:
            yield session


def learned(steps: Sequence[Step]) -> dict[str, Array]:
    """Return what steps have learned, as arrays that can be sent; which steps they are, everybody knows."""
    return {name: a for name, a in Preparation(tuple(steps)).arrays().items() if name != TEXT}


def prepare(
    terms: RunTerms, clients: Clients, told: Mapping[int, Any], width: int
) -> tuple[Preparation, list[tuple[int, Sequence[Answer]]]]:
    """Settle the steps of a run by sums over its clients; return them, and what has left the clients for it.

    ``told`` is what every client needs to find its columns, ``width`` their number.
    """
    config, asked = terms.config, list[tuple[int, Sequence[Answer]]]()
    steps, done, n = config.preparation, list[Step](), width
    for i, step in enumerate(steps.steps):
        made = step
        if step.asks:
            t = len(asked) - steps.questions
            orders = {j: {**order, "step": i, "known": learned(done)} for j, order in told.items()}
            engine: Engine = Asking(Flare(clients, n), clients, "question", orders)
            heard = list[tuple[int, Sequence[Answer]]]()
            more: Any = {"engine": engine, "secure": config.secure, "watch": partial(_hear, heard)}
            made = Asked(step).settled(totals(Asked(step), [], n, **more))
            asked.append((t, heard[0][1]))
        if made.keeps is not None and not made.keeps.any():
            raise DataError(f"prepare: expected {step.word} to keep some features, found that none varies.")
        n = n if made.keeps is None else int(made.keeps.sum())
        done.append(made)
    return Preparation(tuple(done)), asked


def _hear(heard: list[tuple[int, Sequence[Answer]]], t: int, answers: Sequence[Answer]) -> None:
    heard.append((t, answers))


def markers(engine: Flare, clients: Clients, factor: Array, t: int) -> Engine | None:
    """Return what asks for the sums of the markers, after the last round t; None where not all clients are there."""
    if clients.absent:
        return None
    order = {"factor": factor, "t": t}
    return Asking(engine, clients, "markers", {j: order for j in range(len(clients.names))})  # noqa: C420


def prepared(X: Data, steps: Sequence[Step], known: Mapping[str, Array]) -> Data:
    """Client: return its rows after some steps, with what all have learned.

    Only steps that ask can have learned anything: the others are as the terms of the run say, whatever the server does.
    """
    may = {f"{TEXT}.{i}.{f.name}" for i, step in enumerate(steps) if step.asks for f in fields(step)}  # type: ignore[arg-type]
    if not set(known) <= may:
        raise Refused("order")
    if not steps:
        return X
    text = Preparation(tuple(steps)).text
    return Preparation.from_arrays({TEXT: np.array(text), **known})(X)
