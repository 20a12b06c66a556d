"""The round loop: the one place where server and clients meet, whatever carries the messages."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np

from cofactor.engines import paying
from cofactor.engines.checkpoint import Checkpoint
from cofactor.engines.contract import Answer, Callback, Engine, Session, Watch, Work, shared_bytes
from cofactor.engines.history import Round, draws, stage_of
from cofactor.engines.inline import Inline
from cofactor.engines.merging import merged
from cofactor.engines.outcome import Run
from cofactor.engines.over import Over, in_order
from cofactor.engines.settled import settled
from cofactor.kinds import Checked
from cofactor.local import devices
from cofactor.method import SERVER, Method
from cofactor.methods.build import adapted
from cofactor.plan import ByShare, Plan, Stream
from cofactor.privacy.charges import Charges, Costs
from cofactor.types import Array, ClientError, CofactorError, Data, Message, Shared, unknown


def run(
    method: Method,
    Xs: Sequence[Data],
    plan: Plan | None = None,
    *,
    engine: Engine | None = None,
    callbacks: Sequence[Callback] = (),
    start: Array | None = None,
    checkpoint: Checkpoint | None = None,
    watch: Watch | None = None,
    begun: Callable[[int], Any] | None = None,
    charges: Charges | None = None,
    work: Sequence[Work] = (),
    **how: Any,
) -> Run:
    """Run a method over the clients' data and return the shared factor with each client's codes.

    How it goes is said by a :class:`~cofactor.plan.Plan`, or by its fields as keywords: ``rounds``, ``participation``,
    ``stop``, ``seed``, ``secure``. ``start`` is a public factor to begin at. With a ``checkpoint`` the run goes on
    after the last round that it holds, to the same result bit for bit; ``begun`` is told how many rounds that were.
    ``watch`` sees every message, before anything is done with it. What a private run may release in a round is written
    down before it begins: into ``charges``, or beside the checkpoint. ``work`` (one for each client) is done by the
    clients in the end, where they are. Of tensors of torch, factor and codes are tensors too.

    >>> import numpy as np
    >>> from cofactor.methods import catalog
    >>> Xs = [np.eye(4), np.ones((3, 4))]
    >>> run(catalog.make("exact", 2, start="random"), Xs, rounds=5).factor.shape
    (2, 4)
    """
    plan = _plan(plan, how)
    engine = carrier(engine, plan)
    asked, (method, limit, rank) = method, adapted(method, plan, Xs)  # refused, before anybody looks at the data
    if not isinstance(Xs, Checked) and devices.are_tensors(Xs):
        more: dict[str, Any] = {"engine": engine, "callbacks": callbacks, "checkpoint": checkpoint, "watch": watch}
        more |= {"start": devices.plain(start), "begun": begun, "charges": charges, "work": work}
        data = devices.settled(Xs, here=method.traits.allowance is not None)
        return _of_tensors(run(asked, data, plan, **more), Xs)
    draw = _drawing(plan, Xs)
    opened = partial(paying.opened, method, team=engine.team, checkpoint=checkpoint, charges=charges)
    with engine.open(method, Xs, plan) as session, opened(session=session) as till:
        _check_start(start, rank, session.n_features)
        paying.check_noise(method, masks=session.masks)
        paying.check_prices(method, session.n_features, limit)
        if plan.stream is not None:
            return _streamed(session, rank, plan, plan.stream, start, watch=watch, callbacks=callbacks, work=work)
        shared, history = _begin(method, session, plan.seed, start, checkpoint)
        ledger = till.begin(len(history), limit)
        _ = begun and begun(len(history))
        over = Over(method, plan, session.n_clients, limit)
        shared = over.begin(shared, method.factor(shared) if over.judges else None)
        for line in history:
            over.heard(line.round, draw(session.n_clients, line.round)[0])
        ended, saved = over.why(history), time.monotonic()
        while not ended:
            drawn = draw(session.n_clients, t := len(history))
            ledger, costs = till.charge(t, drawn[0])
            shared, line, who = _round(session, shared, t, drawn=drawn, watch=watch, costs=costs)
            over.heard(t, who, drawn[0])
            history.append(over.seen(line, method.factor(shared) if over.looks(t) else None))
            ended = over.why(history)
            history[-1] = history[-1]._replace(ended=ended, epsilon=math.nan if ledger is None else ledger.spent)
            since = math.inf if ended else time.monotonic() - saved
            if checkpoint and (checkpoint.due(t, since) or ledger is not None):
                session.save(checkpoint, over.kept(shared), history)
                saved = time.monotonic()
            if any([callback(history[-1], shared) for callback in callbacks]):
                ended = ended or "callback"
        history[-1] = history[-1]._replace(ended=ended)
        factor, known = in_order(method.factor(shared), shared.memory)
        done = session.finish(factor, work)
        spent, said = (math.inf, "") if ledger is None else (ledger.spent, paying.remark_of(method, shared))
        known |= {"findings": done.findings, "remark": said, "recent": list(over.recent)}
        found = Run(factor, done.codes, history, ended, ledger, spent, **known)
        return settled(found, method, rank, done.used, (np.flatnonzero(over.never), np.flatnonzero(over.undrawn)))


def run_stream(
    method: Method,
    Xs: Sequence[Data],
    *,
    updates: int = 200,
    speeds: Any = None,
    seed: int = 0,
    deadline: float = math.inf,
    **more: Any,
) -> Run:
    """Run a method over clients that answer one by one, until the server has merged ``updates`` messages.

    A client that has not answered ``deadline`` simulated seconds after it was sent the factor is given up: a warning
    names it, ``Run.absent`` too, and the others go on; its codes still belong to the final factor.

    With ``engine=Mpi()`` every process gives its own client (process 0, the server, may have none), time is real, and
    ``deadline`` is in real seconds. Then the order of arrivals, and with it the result, differs from run to run;
    callbacks and ``watch`` are called on process 0.

    >>> from cofactor.methods import catalog
    >>> result = run_stream(catalog.make("asyn-sd", 2), [np.eye(4), np.ones((3, 4))], updates=6)
    >>> result.factor.shape, len(result.arrivals)
    ((2, 4), 6)
    """
    return run(method, Xs, Plan(seed=seed, stream=Stream(updates, deadline, speeds)), **more)


def _of_tensors(found: Run, Xs: Sequence[Data]) -> Run:
    """Return the run with tensors, as the data were."""
    codes = [devices.returned(W, X) for W, X in zip(found.codes, Xs, strict=True)]
    return replace(found, factor=devices.returned(found.factor, Xs[0]), codes=codes)


def _plan(plan: Plan | None, how: dict[str, Any]) -> Plan:
    known = [field.name for field in fields(Plan)]
    if other := [name for name in how if name not in known]:
        raise unknown("field of a plan", other[0], known)
    if plan is None:
        return Plan(**{name: value for name, value in how.items() if not (name == "stop" and value is None)})
    if how:
        raise CofactorError(f"expected either a plan or its fields, found a plan and {', '.join(how)}.")
    return plan


def carrier(engine: Engine | None, plan: Plan) -> Engine:
    """Return the engine, under masks if sums are to be secure; a name is no engine."""
    if isinstance(engine, str):
        raise CofactorError(
            f"engine: expected an engine, such as cofactor.engines.mpi.Mpi() or None. Found the text {engine!r}."
        )
    found = engine or Inline()
    if not plan.secure:
        return found
    from cofactor.engines.secure import Secure  # needs the extra "secure"

    return found if isinstance(found, Secure) else Secure(found)


def _begin(
    method: Method, session: Session, seed: int, start: Array | None, checkpoint: Checkpoint | None
) -> tuple[Shared, list[Round]]:
    """Start anew, or where the checkpoint ended."""
    saved = session.load(checkpoint) if checkpoint else None
    if saved is not None:  # a run that has ended may go on for more rounds
        if method.traits.allowance is not None:
            paying.check_factor(saved.shared, method.rank, session.n_features)
        return saved.shared, [line._replace(ended="") for line in saved.history]
    return method.start(session.n_features, draws(seed, SERVER, -1), start), []


def _streamed(
    session: Session,
    rank: int,
    plan: Plan,
    stream: Stream,
    start: Array | None,
    *,
    watch: Watch | None,
    callbacks: Sequence[Callback],
    work: Sequence[Work],
) -> Run:
    shared = session.method.start(session.n_features, draws(plan.seed, SERVER, -1), start)
    over = Over(session.method, plan, session.n_clients, stream.updates)

    def kept(line: Round, shared: Shared) -> None:
        over.recent.append(session.method.factor(shared))

    found = session.stream(shared, stream, watch=watch, callbacks=[kept, over.look, *callbacks])
    done = session.finish(found.factor, work)
    ended = over.why(found.history) or "callback"
    history = [*found.history[:-1], found.history[-1]._replace(ended=ended)]
    told: dict[str, Any] = {"arrivals": found.arrivals, "findings": done.findings, "recent": list(over.recent)}
    result = Run(found.factor, done.codes, history, ended, **told)
    never = set(range(session.n_clients)) - {arrival.client for arrival in found.arrivals}
    return settled(result, session.method, rank, done.used, (sorted(never | set(found.absent)), ()))


def _check_start(start: Array | None, rank: int, m: int) -> None:
    if start is not None and start.shape != (rank, m):
        raise CofactorError(f"start: expected a factor of shape {(rank, m)}, found {start.shape}.")
    if start is not None and not (np.isfinite(start).all() and (start >= 0).all()):
        raise CofactorError("start: expected finite numbers >= 0, found NaN, infinite or negative ones.")


Drawn = tuple[Array, Array | None]
"""The participants of a round in order, and how much each one counts (None: once)."""


def _drawing(plan: Plan, Xs: Sequence[Data]) -> Callable[[int, int], Drawn]:
    """Return how the clients of a round are drawn: without replacement, unless by their share of the rows."""
    share = plan.participation
    if isinstance(share, ByShare):

        def by_share(clients: int, t: int) -> Drawn:
            rows = np.array(share.rows or [X.shape[0] for X in Xs])
            if len(rows) != clients:
                raise CofactorError(
                    "participation: a draw by share needs all clients in one process; give a share instead."
                )
            return share(rows, draws(plan.seed, SERVER, t))

        return by_share

    def plain(clients: int, t: int) -> Drawn:
        if share == 1:
            return np.arange(clients), None
        return np.sort(draws(plan.seed, SERVER, t).choice(clients, plan.participants(clients), replace=False)), None

    return plain


def _round(
    session: Session, shared: Shared, t: int, *, drawn: Drawn, watch: Watch | None, costs: Costs | None
) -> tuple[Shared, Round, Array]:
    begin, (participants, counts) = time.perf_counter(), drawn
    answers = session.round(shared._replace(memory={}), t, participants)  # which stays at the server
    if not answers:
        raise ClientError(f"round {t}: none of the {len(participants)} participants answered.")
    if watch:
        watch(t, answers)
    if costs is not None:
        for answer in answers:
            paying.check_paid(answer, costs, t)
    new, answers = merged(session, shared, answers, [_counted(r, participants, counts) for r in answers], t)
    line = Round(
        t,
        float(new.loss),
        float(new.drift),
        sum(r.nbytes for r in answers),
        _received(answers, shared_bytes(shared) * len(participants)),
        time.perf_counter() - begin,
        sum(len(r.clients) for r in answers),
        stage=stage_of(session.method.traits, t),
    )
    return new, line, np.concatenate([r.clients for r in answers])


def _received(answers: Sequence[Answer], whole: int) -> int:
    """Return the bytes that all participants were sent: parts of what all may see, where their engine sends parts."""
    parts = [answer.received for answer in answers]
    return whole if None in parts else sum(part for part in parts if part is not None)


def _counted(answer: Answer, participants: Array, counts: Array | None) -> Message:
    """Return a message as often as it counts."""
    if counts is None:
        return answer.message
    count = float(counts[np.searchsorted(participants, answer.client)])
    arrays = {name: (a * count).astype(np.asarray(a).dtype) for name, a in answer.message.arrays.items()}
    return Message(arrays, answer.message.weight * count)
