"""The asynchronous stream: order by simulated time, staleness, deadlines, and the same result every time."""

import numpy as np
import pytest
from tests.helpers.methods import NAMES, case, factor_fits, same_bits

from cofactor import metrics, run
from cofactor.data import synthetic
from cofactor.engines.loop import run_stream
from cofactor.engines.speeds import ByRows, Fixed, LogNormal
from cofactor.methods import catalog
from cofactor.plan import Plan, Stream
from cofactor.privacy.errors import PrivacyError
from cofactor.types import ClientError, CofactorError

ASYNCHRONOUS = ["asyn-sd", "asyn-ssd-v"]
ONE_BY_ONE = [
    *ASYNCHRONOUS,
    *(name for name in NAMES if name.startswith("fnmf")),
    *("fedavg", "fedprox", "fedmavg", "fedmgs", "syn-sd", "syn-ssd-v"),
]
"""Methods whose server can merge a single message, made for it or not."""


@pytest.fixture(scope="module")
def planted():
    return synthetic.blocks(5, [200, 40, 50, 30, 60], features=40, rank=4, seed=5).Xs


@pytest.fixture(scope="module")
def pooled(planted):
    result = run(catalog.make("exact", 4), [np.vstack(planted)], rounds=60)
    return metrics.relative_error(np.vstack(planted), result.codes[0], result.factor)


@pytest.mark.parametrize("name", ASYNCHRONOUS)
@pytest.mark.parametrize("speeds", [ByRows(), LogNormal()], ids=["rows", "lognormal"])
def test_streams_come_near_the_pooled_error(name, speeds, planted, pooled):
    results = [run_stream(catalog.make(name, 4), planted, updates=150, speeds=speeds, seed=s) for s in range(3)]
    assert min(metrics.pooled_error(planted, r.codes, r.factor) for r in results) <= 1.1 * pooled


@pytest.mark.parametrize("name", ASYNCHRONOUS)
def test_two_streams_of_one_seed_agree_to_the_bit(name, planted):
    a, b, c = (run_stream(catalog.make(name, 4), planted, updates=20, seed=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(a.factor, b.factor)
    assert a.arrivals == b.arrivals
    assert a.arrivals != c.arrivals


def test_arrivals_come_in_the_order_of_the_clock_and_count_the_updates_between(clients):
    """Client 0 answers at 1, 2, 3, ..., client 1 at 2.5 and 5, client 2 at 4: written down by hand."""
    result = run_stream(catalog.make("asyn-sd", 2), clients, updates=8, speeds=Fixed((1.0, 2.5, 4.0)))
    assert [(a.clock, a.client, a.staleness) for a in result.arrivals] == [
        (1.0, 0, 0),
        (2.0, 0, 0),
        (2.5, 1, 2),
        (3.0, 0, 1),
        (4.0, 0, 0),
        (4.0, 2, 5),
        (5.0, 0, 1),
        (5.0, 1, 4),
    ]
    assert [line.round for line in result.history] == list(range(8))
    assert result.absent == ()


def test_a_single_client_is_never_stale(clients):
    result = run_stream(catalog.make("asyn-sd", 2), clients[:1], updates=5)
    assert {a.staleness for a in result.arrivals} == {0}


def test_slow_clients_answer_less_often(planted):
    arrivals = run_stream(catalog.make("asyn-sd", 4), planted, updates=60).arrivals
    count = [sum(a.client == j for a in arrivals) for j in range(5)]
    assert count[0] == min(count)
    assert count[3] == max(count)


def test_with_one_client_a_stream_is_a_run(clients):
    """One client, one message a round: the same steps from the same seeds."""
    method = catalog.make("asyn-ssd-v", 3)
    stream, rounds = run_stream(method, clients[1:2], updates=7, seed=3), run(method, clients[1:2], rounds=7, seed=3)
    np.testing.assert_array_equal(stream.factor, rounds.factor)
    assert [r.loss for r in stream.history] == [r.loss for r in rounds.history]


def test_running_sums_stream_too_and_reach_the_pooled_error(planted, pooled):
    """The exact method keeps everybody's last statistics, so arrivals one by one do it no harm."""
    result = run_stream(catalog.make("exact", 4, start="random"), planted, updates=300, speeds=LogNormal())
    assert metrics.pooled_error(planted, result.codes, result.factor) <= 1.02 * pooled


def test_bytes_are_those_of_one_message_and_one_answer(clients):
    for line in run_stream(catalog.make("asyn-sd", 3), clients, updates=4).history:
        assert (line.bytes_up, line.bytes_down, line.participants) == (8 * 3 * 12 + 16, 8 * 3 * 12, 1)


@pytest.mark.parametrize(("slow", "deadline"), [(np.inf, np.inf), (np.inf, 5.0), (9.0, 5.0)])
def test_a_client_that_never_answers_is_named_and_left_out(slow, deadline, planted):
    speeds = Fixed((1.0, slow, 1.0, 1.0, 1.0))
    with pytest.warns(UserWarning, match="client 1 did not answer .* goes on without it"):
        result = run_stream(catalog.make("asyn-sd", 4), planted, updates=40, speeds=speeds, deadline=deadline)
    assert result.absent == (1,)
    assert {a.client for a in result.arrivals} == {0, 2, 3, 4}
    assert len(result.arrivals) == 40
    assert [W.shape[0] for W in result.codes] == [len(X) for X in planted]


def test_a_client_may_fall_silent_later(clients):
    def speeds(client, rows, rng):
        times.append(client)
        return np.inf if client == 2 and times.count(2) > 3 else 1.0

    times = []
    with pytest.warns(UserWarning, match="client 2 did not answer .* after update 9"):
        result = run_stream(catalog.make("asyn-sd", 2), clients, updates=20, speeds=speeds)
    assert sum(a.client == 2 for a in result.arrivals) == 3


def test_when_nobody_is_left_the_stream_says_so(clients):
    method, speeds = catalog.make("asyn-sd", 2), LogNormal(2.0, 0.0)
    with (
        pytest.warns(UserWarning, match="did not answer within the deadline of 1 s after update 0") as warned,
        pytest.raises(ClientError, match="update 0: none of the 3 clients"),
    ):
        run_stream(method, clients, speeds=speeds, deadline=1.0)
    assert [str(w.message).split(" did")[0] for w in warned] == ["client 0", "client 1", "client 2"]


def test_callbacks_end_a_stream_and_watch_sees_every_message(clients):
    seen = []
    result = run_stream(
        catalog.make("asyn-sd", 2),
        clients,
        callbacks=[lambda line, shared: line.round == 5],
        watch=lambda t, answers: seen.append((t, answers[0].client)),
    )
    assert seen == [(a.update, a.client) for a in result.arrivals]
    assert len(seen) == 6


@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_whatever_merges_one_message_can_be_streamed(name):
    kind, method, Xs = case(name, **({"sweeps": 10} if name.startswith("fnmf") else {}))
    result = run_stream(method, Xs, updates=12)
    factor_fits(kind, result.factor)
    assert len(result.history) == len(result.arrivals) == 12


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ONE_BY_ONE])
def test_methods_of_rounds_are_refused(name):
    """Noise is paid for by rounds; starts, schedules and exchanges wait for everybody."""
    kind, method, Xs = case(name)
    private = kind == "private"
    words = "privacy is refused: in an asynchronous stream" if private else "a stream needs a method"
    with pytest.raises(PrivacyError if private else CofactorError, match=words):
        run_stream(method, Xs)


@pytest.mark.parametrize("name", ASYNCHRONOUS)
def test_a_stream_is_a_plan_like_any_other(name, clients):
    assert catalog.CATALOG[name].streams
    method = catalog.make(name, 3)
    plan = Plan(seed=2, stream=Stream(9, speeds=LogNormal()))
    a, b = run(method, clients, plan), run_stream(method, clients, updates=9, speeds=LogNormal(), seed=2)
    same_bits(a, b)
    assert a.arrivals == b.arrivals


def test_sums_of_a_stream_have_nowhere_to_hide(clients):
    with pytest.raises(PrivacyError, match="secure aggregation of asynchronous updates is refused"):
        run(catalog.make("asyn-sd", 2), clients, Plan(secure=True, stream=Stream()))


def test_senseless_arguments_are_refused(clients):
    method = catalog.make("asyn-sd", 2)
    with pytest.raises(CofactorError, match=r"updates must be a whole number of at least 1. Found 0"):
        run_stream(method, clients, updates=0)
    with pytest.raises(CofactorError, match=r"deadline must be a time above 0. Found 0"):
        run_stream(method, clients, deadline=0)
    with pytest.raises(CofactorError, match="client 1: expected seconds >= 0, found -1"):
        run_stream(method, clients, speeds=Fixed((1.0, -1.0, 1.0)))
