"""The round loop: arguments, history, bytes, the stop rule, callbacks and what clients do in the end."""

from functools import partial

import numpy as np
import pytest
from tests.helpers.methods import NAMES, ROUNDS, case, same_bits

from cofactor import metrics, run
from cofactor.data import synthetic
from cofactor.engines.history import Round
from cofactor.engines.inline import Inline
from cofactor.engines.over import still
from cofactor.methods import catalog
from cofactor.plan import Plan, Stop
from cofactor.schedules import Schedule, Switch, at
from cofactor.types import CofactorError


class Watched:
    """A method that keeps the messages of every round."""

    def __init__(self, method):
        self.method, self.sent = method, []

    def __getattr__(self, name):
        return getattr(self.method, name)

    def step(self, data, shared, local, t, rng):
        local, message = self.method.step(data, shared, local, t, rng)
        self.sent.append((t, message))
        return local, message


def lines(losses):
    return [Round(t, loss, 0.0, 0, 0, 0.0, 1) for t, loss in enumerate(losses)]


@pytest.mark.parametrize("share", [0, -0.1, 1.2, np.nan])
def test_participation_must_be_a_share(share, clients):
    with pytest.raises(CofactorError, match=rf"participation must be in \(0, 1\]. Found {share}"):
        run(catalog.make("exact", 2), clients, participation=share)


@pytest.mark.parametrize("rounds", [0, -3])
def test_rounds_must_be_positive(rounds, clients):
    with pytest.raises(CofactorError, match=f"rounds must be a whole number of at least 1. Found {rounds}"):
        run(catalog.make("exact", 2), clients, rounds=rounds)


@pytest.mark.parametrize("shape", [(3, 12), (2, 11), (12, 2), (24,)])
def test_start_must_have_the_shape_of_the_factor(shape, clients):
    with pytest.raises(CofactorError) as error:
        run(catalog.make("fedavg", 2), clients, start=np.ones(shape))
    assert "(2, 12)" in str(error.value)
    assert str(shape) in str(error.value)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
def test_start_must_be_finite_and_nonnegative(bad, clients):
    start = np.ones((2, 12))
    start[1, 3] = bad
    with pytest.raises(CofactorError, match="start"):
        run(catalog.make("fedavg", 2), clients, start=start)


def test_history_has_a_line_per_round(clients):
    history = run(catalog.make("fedavg", 3), clients, rounds=7).history
    assert [line.round for line in history] == list(range(7))
    assert all(line.participants == 3 and line.seconds >= 0 for line in history)


@pytest.mark.parametrize("name", NAMES)
def test_bytes_up_are_the_bytes_of_the_messages(name):
    _, method, Xs = case(name)
    watched = Watched(method)
    history = run(watched, Xs, rounds=ROUNDS, engine=Inline(1)).history
    assert len(history) == min(ROUNDS, method.rounds or ROUNDS)
    for line in history:
        sent = [m for t, m in watched.sent if t == line.round]
        arrays = sum(np.asarray(a).size * np.asarray(a).dtype.itemsize for m in sent for a in m.arrays.values())
        assert len(sent) == 3
        assert line.bytes_up == arrays + 8 * len(sent)


@pytest.mark.parametrize(("dtype", "width"), [(np.float32, 4), (np.float64, 8)])
def test_exact_uploads_km_and_half_a_gram(dtype, width, clients):
    """k m + k (k + 1) / 2 numbers, |X_j|^2 in double precision and the weight."""
    k, m = 3, 12
    history = run(catalog.make("exact", k, start="random"), [X.astype(dtype) for X in clients], rounds=3).history
    assert [line.bytes_up for line in history] == [3 * (width * (k * m + k * (k + 1) // 2) + 8 + 8)] * 3


def test_bytes_down_are_the_factor_and_its_companions_for_every_participant(clients):
    k, m = 3, 12
    for line in run(catalog.make("fedavg", k), clients, rounds=3).history:
        assert line.bytes_down == 3 * 8 * k * m
    for line in run(catalog.make("exact", k, start="random"), clients, rounds=3).history:
        assert line.bytes_down == 3 * (8 * k * m + 8 + 1)


def test_run_counts_all_bytes(clients):
    """Up k m + k^2 numbers, the loss and the weight; down the factor, in one round of one upload and in all of ten."""
    k, m = 3, 12
    once = run(catalog.make("oneshot", k), clients)
    assert once.bytes == 3 * 8 * (k * m + k * k + 2) + 3 * 8 * k * m
    assert run(catalog.make("fedavg", k), clients, rounds=10).bytes == 10 * 3 * 8 * (2 * k * m + 2)


def test_one_upload_methods_stop_after_their_rounds(clients):
    result = run(catalog.make("oneshot", 3), clients, rounds=50)
    assert len(result.history) == 1
    assert result.converged
    assert len(run(catalog.make("exact", 3, start="lap"), clients, rounds=2).history) == 2


def test_stop_rule_waits_for_its_patience():
    stop = partial(still, tol=0.01, patience=3)
    assert not stop(lines([100, 100, 100]))
    assert stop(lines([100, 100, 100, 100]))
    assert stop(lines([100, 99.9, 99.8, 99.7]))
    assert not stop(lines([100, 90, 80, 70]))
    assert not stop(lines([100, 99, 98.9, 98.8]))
    assert stop(lines([100, 50, 50, 60, 70]))


def test_stop_rule_of_zero_never_stops():
    assert still(lines([1.0] * 50), 0, 3) == ""


def test_run_ends_when_the_loss_stalls_and_says_so(clients):
    short = run(catalog.make("exact", 3), clients, rounds=500, stop=Stop(1e-4))
    assert short.converged
    assert len(short.history) < 200
    long = run(catalog.make("exact", 3), clients, rounds=5, stop=Stop(1e-12))
    assert not long.converged
    assert len(long.history) == 5


@pytest.mark.parametrize("start", ["summaries", "svd", "moments", "lap"])
def test_stop_rule_ignores_the_losses_of_the_first_stage(start, clients):
    """One-shot losses are those of the clients' own factors: lower than any shared factor can reach."""
    method = catalog.make("exact", 3, start=start)
    result = run(method, clients, rounds=200, stop=Stop(1e-7, patience=2))
    assert len(result.history) > method.traits.stages[-1] + 2


def test_callbacks_see_every_round_and_can_end_the_run(clients):
    seen, others = [], []

    def stop_at_three(line, shared):
        seen.append((line.round, shared.factor.shape))
        return line.round == 3

    result = run(catalog.make("fedavg", 3), clients, rounds=10, callbacks=[stop_at_three, lambda *a: others.append(a)])
    assert seen == [(t, (3, 12)) for t in range(4)]
    assert len(others) == len(result.history) == 4
    assert not result.converged


def test_callbacks_that_answer_nothing_change_nothing(clients):
    with_, without = (run(catalog.make("exact", 3), clients, rounds=5, callbacks=c) for c in ([lambda *_: None], []))
    np.testing.assert_array_equal(with_.factor, without.factor)


@pytest.mark.parametrize("rows", [[23, 31, 17], [3, 1, 20, 5]])
def test_clients_work_in_the_end_where_they_are(rows):
    """Each sees its own data, with the codes and the factor that come out, stacked with others or not."""
    _, method, Xs = case("exact", rows=rows)

    def work(client, factor):
        np.testing.assert_array_equal(client.data, Xs[client.number])
        return client.number, client.codes, factor

    result = run(method, Xs, rounds=4, work=[work] * len(Xs))
    for j, (number, codes, factor) in enumerate(result.findings):
        assert number == j
        np.testing.assert_array_equal(codes, result.codes[j])
        np.testing.assert_array_equal(factor, result.factor)
    assert run(method, Xs, rounds=4).findings == []


def test_a_plan_or_its_fields_but_not_both(clients):
    method = catalog.make("fedavg", 3)
    a, b = run(method, clients, Plan(4, seed=3)), run(method, clients, rounds=4, seed=3)
    same_bits(a, b)
    with pytest.raises(CofactorError, match="expected either a plan or its fields, found a plan and seed"):
        run(method, clients, Plan(4), seed=3)


def test_schedules_give_values_by_round():
    assert [at(Switch("a", "b", at=2), t) for t in range(4)] == ["a", "a", "b", "b"]
    assert at("constant", 5) == "constant"
    with pytest.raises(TypeError, match="Schedule"):
        Schedule()(0)


def moving(losses, steps):
    return [Round(t, loss, 0.0, 0, 0, 0.0, 1, moved=step) for t, (loss, step) in enumerate(zip(losses, steps))]


def test_a_flat_loss_does_not_end_a_run_while_a_component_moves():
    stop = partial(still, tol=0.01, patience=3)
    assert stop(moving([100.0] * 5, [0.001] * 5))
    assert not stop(moving([100.0] * 5, [0.2] * 5))
    assert not stop(moving([100.0, 80, 60, 40, 20], [0.005] * 5))


def test_a_factor_that_stands_still_ends_a_run_whatever_is_left_of_the_loss():
    losses = [1e-9, 5e-10, 2e-10, 1e-10, 5e-11]
    assert still(moving(losses, [1e-5] * 5), 1e-4, 3)
    assert not still(moving(losses, [1e-3] * 5), 1e-4, 3)


def test_methods_that_average_are_judged_by_their_factor():
    assert not still(moving([100.0] * 6, [0.01] * 6), 1e-3, 3, "factor")
    assert still(moving([100.0, 110, 120, 130, 140, 150], [1e-4] * 6), 1e-3, 3, "factor")


@pytest.mark.parametrize("share", [0.5, 0.25])
def test_clients_that_join_late_do_not_end_a_run(share):
    """The loss of running sums grows as clients join: runs over some of them ended after five rounds."""
    Xs = synthetic.blocks(8, 30, features=25, rank=4, seed=3).Xs
    short, long = (run(catalog.make("exact", 4), Xs, participation=share, stop=Stop(tol), seed=1) for tol in (1e-4, 0))
    a, b = (metrics.pooled_error(Xs, found.codes, found.factor) for found in (short, long))
    assert a <= 1.02 * b
    assert len(long.history) == 50 / share


def test_exact_rank_data_end_as_converged(rng):
    programs = rng.gamma(0.3, size=(5, 60))
    Xs = [rng.gamma(0.5, size=(n, 5)) @ programs for n in (80, 50)]
    found = run(catalog.make("exact", 5), Xs, stop=Stop(1e-4))
    assert found.converged
    assert metrics.pooled_error(Xs, found.codes, found.factor) < 1e-3
