"""Absent clients and tiny clients: who is away stays in the sums, and stacking small clients changes nothing."""

from contextlib import contextmanager
from itertools import pairwise

import numpy as np
import pytest
from scipy import sparse
from tests.helpers.methods import KIND, NAMES, case, play, same_bits

from cofactor import metrics, run
from cofactor.data import synthetic
from cofactor.engines import inline
from cofactor.engines.over import in_order
from cofactor.local import batches
from cofactor.local.symmetric import triangle
from cofactor.method import SERVER
from cofactor.method import rng as address
from cofactor.methods import catalog
from cofactor.plan import Plan

STARTS = pytest.mark.parametrize("start", ["random", "summaries", "svd", "moments", "lap"])
SHARES = pytest.mark.parametrize("share", [1.0, 0.5, 0.2])
MISSABLE = pytest.mark.parametrize("name", [name for name in NAMES if KIND[name] != "blocks"])
"""All but methods on blocks, which refuse absent clients (test_law_runs)."""
TEN = [12] * 10


@pytest.fixture
def planted():
    return synthetic.blocks(10, 40, features=30, rank=4, seed=1).Xs


def error(Xs, result):
    return metrics.pooled_error(Xs, result.codes, result.factor)


@STARTS
def test_half_of_the_clients_per_round_come_near_the_full_answer(start, planted):
    method = catalog.make("exact", 4, start=start)
    full, half = (run(method, planted, rounds=60, participation=p) for p in (1.0, 0.5))
    assert error(planted, half) <= 1.02 * error(planted, full)


@pytest.mark.parametrize("name", ["fnmf-lap", "fnmf-lap-rho", "fnmf-sinkhorn"])
def test_averaging_with_absent_clients_comes_near_the_full_answer(name, planted):
    full, half = (run(catalog.make(name, 4), planted, rounds=15, participation=p) for p in (1.0, 0.5))
    assert error(planted, half) <= 1.02 * error(planted, full)


@MISSABLE
def test_participants_are_drawn_reproducibly(name):
    _, method, Xs = case(name, rows=TEN, **({"sweeps": 10} if name.startswith("fnmf") else {}))
    a, b = (run(method, Xs, rounds=3, seed=7, participation=0.5) for _ in range(2))
    same_bits(a, b)
    assert [line.participants for line in a.history] == [5] * len(a.history)


@MISSABLE
def test_a_run_with_absent_clients_is_what_those_who_are_there_do_by_hand(name):
    """Everybody joins where a stage begins, there or not, and who is absent stays as it was."""
    _, method, Xs = case(name, rows=TEN, **({"sweeps": 10} if name.startswith("fnmf") else {}))

    def drawn(t):
        return np.sort(address(0, SERVER, t).choice(10, 4, replace=False))

    result = run(method, Xs, rounds=6, participation=0.4)
    played = [*play(method.partial(), Xs, 6, who=drawn)]
    last = played[-1].shared
    np.testing.assert_array_equal(result.factor, in_order(method.partial().factor(last), last.memory)[0])
    np.testing.assert_array_equal([r.loss for r in result.history], [p.shared.loss for p in played])


@MISSABLE
def test_everybody_present_or_drawn_is_the_same_run(name):
    """A share that all clients make up is the form for absent clients, with nobody absent."""
    _, method, Xs = case(name, rows=[12] * 3, **({"sweeps": 10} if name.startswith("fnmf") else {}))
    drawn, partial = run(method, Xs, rounds=3, participation=0.99), run(method.partial(), Xs, rounds=3)
    same_bits(drawn, partial)


def test_draws_change_with_round_and_seed_and_reach_everybody(planted):
    def who(seed):
        seen = []

        class Watch:
            def __getattr__(self, name):
                return getattr(method, name)

            def partial(self):
                return self

            def step(self, data, shared, local, t, rng):
                seen.append((t, next(j for j, X in enumerate(planted) if np.array_equal(X, data))))
                return method.step(data, shared, local, t, rng)

        method = catalog.make("exact", 4, start="random").partial()
        run(Watch(), planted, rounds=12, seed=seed, participation=0.3, engine=inline.Inline(1))
        return [tuple(j for s, j in seen if s == t) for t in range(12)]

    draws = who(0)
    assert draws == [tuple(sorted(address(0, SERVER, t).choice(10, 3, replace=False))) for t in range(12)]
    assert all(len(set(d)) == 3 for d in draws)
    assert len(set(draws)) > 3
    assert set().union(*draws) == set(range(10))
    assert draws != who(1)


def test_running_sums_are_the_sums_of_everybodys_last_statistics(planted):
    """After rounds with absentees the server's gram and cross are W^T W and W^T X over all who ever came."""
    method = catalog.make("exact", 4, start="random").partial()
    shared = method.start(30, address(0, SERVER, -1))
    states = [method.join(X, shared.broadcast(), 0, address(0, j, -1)) for j, X in enumerate(planted)]
    for t, here in enumerate([(0, 1, 2), (3, 4, 0), (5, 6, 7), (8, 9, 1), (2, 3, 4)]):
        messages = []
        for j in here:
            states[j], message = method.step(planted[j], shared.broadcast(), states[j], t, address(0, j, t))
            messages.append(message)
        shared = method.aggregate(shared, messages, t)
    W, X = np.vstack([s.codes for s in states]), np.vstack(planted)
    np.testing.assert_allclose(shared.memory["gram"][0], triangle(W.T @ W), rtol=1e-9)
    np.testing.assert_allclose(shared.memory["cross"].T, W.T @ X, rtol=1e-9, atol=1e-12)
    assert shared.memory["square"] == pytest.approx(np.sum(X**2))
    assert shared.loss == pytest.approx(0.5 * np.sum((X - W @ shared.memory["factor"]) ** 2), rel=1e-9)


def test_changes_with_everybody_present_are_plain_statistics(planted):
    plain = catalog.make("exact", 4, start="random", momentum=0.0)
    a, b = (run(m, planted, rounds=20) for m in (plain, plain.partial()))
    np.testing.assert_allclose([r.loss for r in b.history], [r.loss for r in a.history], rtol=1e-9)


def test_loss_does_not_rise_once_everybody_came(planted):
    history = run(catalog.make("exact", 4, start="random"), planted, rounds=60, participation=0.5).history
    late = [line.loss for line in history[20:]]
    assert max(b - a for a, b in pairwise(late)) <= 1e-10 * late[0]


@STARTS
@SHARES
def test_batched_tiny_clients_equal_the_same_clients_alone(start, share, tiny_clients, monkeypatch):
    method = catalog.make("exact", 4, start=start)

    def go():
        return run(method, tiny_clients, rounds=12, seed=3, participation=share)

    batched = go()
    monkeypatch.setattr(batches, "SMALL", 0)
    alone = go()
    np.testing.assert_allclose([r.loss for r in batched.history], [r.loss for r in alone.history], rtol=1e-10)
    np.testing.assert_allclose(batched.factor, alone.factor, atol=1e-10)
    for V, W in zip(batched.codes, alone.codes, strict=True):
        np.testing.assert_allclose(V, W, atol=1e-9)
    for name in ("round", "bytes_up", "bytes_down", "participants"):
        assert [getattr(r, name) for r in batched.history] == [getattr(r, name) for r in alone.history]


def test_tiny_clients_are_really_batched(tiny_clients):
    method = catalog.make("exact", 4, start="random")
    with inline.Inline(1).open(method, tiny_clients, Plan()) as session:
        shared = method.start(15, address(0, SERVER, -1))
        answers = session.round(shared.broadcast(), 0, np.arange(11))
    assert [list(answer.clients) for answer in answers] == [[0, 1, 3, 4, 6, 7, 8, 9], [2], [5], [10]]
    assert [answer.message.weight for answer in answers] == [33, 20, 30, 12]


@pytest.mark.parametrize(
    ("sparse_ones", "expected"),
    [(0, [[0, 1, 3, 4], [2], [5], [6, 7, 8, 9], [10]]), (4, [[0, 1, 3], [2], [4], [5], [6, 7, 8, 9], [10]])],
)
def test_batches_are_of_one_layout_and_of_bounded_size(sparse_ones, expected, tiny_clients, monkeypatch):
    monkeypatch.setattr(batches, "BATCH", 15 * 16)
    Xs = [sparse.csr_matrix(X + 1) if j < sparse_ones else X for j, X in enumerate(tiny_clients)]
    method = catalog.make("exact", 4, start="random")
    with inline.Inline(1).open(method, Xs, Plan()) as session:
        answers = session.round(method.start(15, address(0, SERVER, -1)).broadcast(), 0, np.arange(11))
    assert [list(answer.clients) for answer in answers] == expected


def test_under_masks_every_tiny_client_answers_for_itself(tiny_clients):
    method = catalog.make("exact", 4, start="random")
    with inline.Inline(1).open(method, tiny_clients, Plan(secure=True)) as session:
        shared = method.start(15, address(0, SERVER, -1))
        answers = session.round(shared.broadcast(), 0, np.arange(11))
    assert [list(answer.clients) for answer in answers] == [[j] for j in range(11)]


@MISSABLE
@pytest.mark.parametrize("share", [1.0, 0.6])
def test_stacking_tiny_clients_changes_no_run(name, share, monkeypatch):
    """Batches of rows send what their clients would have sent one by one; the seed belongs to none of them."""
    rows = (3, 1, 20, 5, 8, 30, 2, 6, 1, 7, 12)
    options = {"sweeps": 10} if name.startswith("fnmf") else {}
    _, method, Xs = case(name, rows=rows, **options)
    plan = {"rounds": 6, "seed": 3, "participation": share}
    batched = run(method, Xs, **plan)
    monkeypatch.setattr(batches, "SMALL", 0)
    alone = run(method, Xs, **plan)
    np.testing.assert_allclose(batched.factor, alone.factor, atol=1e-9)
    for field in ("round", "bytes_up", "bytes_down", "participants", "stage"):
        assert [getattr(r, field) for r in batched.history] == [getattr(r, field) for r in alone.history]


def test_thousand_clients_of_one_row_equal_one_client(rng):
    X = rng.uniform(size=(1000, 12))
    method = catalog.make("exact", 3, start="random")
    many, one = run(method, list(X[:, None, :]), rounds=10), run(method, [X], rounds=10)
    np.testing.assert_allclose([r.loss for r in many.history], [r.loss for r in one.history], rtol=1e-12)
    np.testing.assert_allclose(np.vstack(many.codes), one.codes[0], atol=1e-10)


class Losing(inline.Inline):
    """An engine that loses the first answer of every round from the third on, ``stepped`` or not even asked."""

    def __init__(self, *, stepped: bool) -> None:
        super().__init__()
        object.__setattr__(self, "stepped", stepped)

    @contextmanager
    def open(self, method, Xs, plan):
        with super().open(method, Xs, plan) as session:
            full, here = session.round, session.host

            def lossy(shared, t, who):
                if t < 2 or not self.stepped:
                    return full(shared, t, who if t < 2 else who[1:])
                before = here.states()
                answers = full(shared, t, who)
                here.restore([b if j == who[0] else a for j, (b, a) in enumerate(zip(before, here.states()))], t)
                return answers[1:]

            session.round = lossy
            yield session


@MISSABLE
def test_a_lost_answer_is_as_if_the_client_had_not_been_asked(name):
    _, method, Xs = case(name, rows=TEN, **({"sweeps": 10} if name.startswith("fnmf") else {}))
    before, after = (
        run(method, Xs, rounds=8, participation=0.5, engine=Losing(stepped=stepped)) for stepped in (False, True)
    )
    np.testing.assert_array_equal(before.factor, after.factor)
    assert [line.participants for line in after.history] == ([5, 5] + [4] * 6)[: len(after.history)]
