"""Why a run ends: what settles, what stands still, what goes to and fro, and what was used up."""

import math
from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.exceptions import ConvergenceWarning
from tests.helpers.methods import same_bits

from cofactor import FederatedKMeans, FederatedNMF, Plan, run
from cofactor.data import synthetic
from cofactor.engines.checkpoint import Checkpoint
from cofactor.engines.history import DONE, ENDED, Round
from cofactor.engines.loop import run_stream
from cofactor.engines.over import LONGEST, NOISE, RETRACTED, WINDOW, Over, Trail, moved, still, tried
from cofactor.methods import catalog
from cofactor.methods.build import adapted
from cofactor.plan import Stream
from cofactor.types import CofactorError


@pytest.fixture
def clients():
    return synthetic.blocks(4, [23, 31, 17, 20], features=40, rank=3, seed=2).Xs


def walk(places):
    """Return the trail of a factor with one component that was at these places."""
    trail = Trail(WINDOW)
    return [trail(np.atleast_2d(place)) for place in places][-1]


def test_a_factor_that_goes_straight_has_come_as_far_as_all_of_its_steps(rng):
    way = rng.normal(size=100)
    step, net = walk([1000 + t * way for t in range(40)])
    assert net == pytest.approx(WINDOW)
    assert step < 0.01


def test_a_factor_that_goes_to_and_fro_has_come_no_further_than_one_step(rng):
    nets = [walk(100 + rng.normal(size=(40, 200))) for _ in range(20)]
    assert max(net for _, net in nets) < NOISE


def test_a_slow_drift_in_the_noise_is_seen(rng):
    """A fifth of the noise in every round: single steps do not show it."""
    way = rng.normal(size=200)
    nets = [walk(100 + rng.normal(size=(40, 200)) + 0.2 * np.outer(np.arange(40), way)) for _ in range(20)]
    assert min(net for _, net in nets) > NOISE


def test_the_component_that_comes_furthest_is_the_one_that_counts(rng):
    """Noise of one component does not hide the drift of another."""
    trail = Trail(WINDOW)
    for t in range(40):
        _, net = trail(np.stack([100 + 10 * rng.normal(size=50), 10 + 0.01 * t * np.ones(50)]))
    assert net > 2 * NOISE


def test_a_factor_of_another_shape_begins_a_new_trail():
    trail = Trail(2)
    for _ in range(6):
        trail(np.ones((3, 5)))
    assert all(map(math.isnan, trail(np.ones((2, 5)))))
    assert math.isnan(moved(np.ones((3, 5)), np.ones((2, 5))))


def lines(moves, nets):
    return [Round(t, 1.0, 0.0, 0, 0, 0.0, 1, moved=m, net=n) for t, (m, n) in enumerate(zip(moves, nets, strict=True))]


def ends(name, order, moves=0.0):
    """Return in which round a run ends whose loss stands still, with one of four clients in each of them."""
    plan = Plan(participation=0.25, stop=1e-4)
    method, *_ = adapted(catalog.make(name, 2), plan)
    over, history = Over(method, plan, 4, 1000), []
    for t, j in enumerate(order):
        over.heard(t, np.array([j]))
        history.append(Round(t, 1.0, 0.0, 0, 0, 0.0, 1, stage=len(method.traits.stages) - 1, moved=moves))
        if over.why(history):
            return t
    return math.inf


def test_a_client_that_is_drawn_rarely_is_waited_for():
    """Patience of 3 is 12 rounds of a quarter; and as many as it takes to hear every client 3 times."""
    usual = ends("exact", [0, 1, 2, 3] * 10)
    assert usual == 4 + 12  # the second stage begins in round 1, and losses compare once all have joined it
    rarely = [0, 1, 2, 3] + [0, 1, 2] * 7 + [3, 3, 3] + [0, 1, 2] * 20
    assert usual < ends("exact", rarely) < 4 + LONGEST * 12
    assert ends("exact", [0, 3] + [0, 1, 2] * 100) == 4 + LONGEST * 12  # it may be gone for good


def test_a_factor_that_few_clients_move_stands_still_when_all_would_not_move_it():
    assert ends("fedavg", [0, 1, 2, 3] * 20, moves=2e-5) < math.inf
    assert ends("fedavg", [0, 1, 2, 3] * 20, moves=5e-5) == math.inf


def test_noise_ends_a_run_that_is_judged_by_its_factor():
    assert still(lines([0.1] * 6, [1.0] * 6), 1e-4, 3, "factor") == "noise"
    assert still(lines([0.1] * 6, [1.0] * 5 + [9.0]), 1e-4, 3, "factor") == ""
    assert still(lines([0.1] * 6, [math.nan] * 6), 1e-4, 3, "factor") == ""
    assert still(lines([1e-5] * 6, [9.0] * 6), 1e-4, 3, "factor") == "factor"
    assert still(lines([0.1] * 6, [1.0] * 6), 0, 3, "factor") == ""


@pytest.mark.parametrize(
    ("ended", "method", "how"),
    [
        ("loss", "exact", {"rounds": 300, "stop": 1e-4}),
        ("factor", "fedavg", {"rounds": 60, "stop": 1e-2}),
        ("noise", "fedmavg", {"rounds": 300, "stop": 1e-9, "participation": 0.5}),
        ("plan", "oneshot", {"rounds": 50}),
        ("asked", "exact", {"rounds": 5}),
        ("rounds", "exact", {"rounds": 8, "stop": 1e-12}),
        ("few", "exact", {"rounds": 3, "stop": 1e-4}),
        ("few", "fedavg", {"rounds": 3, "stop": 1e-4}),
    ],
)
def test_a_run_says_why_it_ended_and_whether_that_was_where_it_should(ended, method, how, clients):
    out = run(catalog.make(method, 3), clients, **how)
    assert out.ended == ended
    assert [line.ended for line in out.history] == [""] * (len(out.history) - 1) + [ended]
    assert out.converged == (ended in DONE)
    assert ENDED[ended]


def test_a_plan_that_is_cut_short_is_not_done(clients):
    method = replace(catalog.make("exact", 3, start="lap").first)
    assert run(method, clients).converged
    assert run(method, clients, rounds=1).ended == "rounds"


def test_a_callback_that_ends_a_run_is_why(clients):
    out = run(catalog.make("fedavg", 3), clients, rounds=10, callbacks=[lambda line, _: line.round == 2])
    assert (out.ended, len(out.history), out.converged) == ("callback", 3, False)
    assert out.history[-1].ended == "callback"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_tolerance_below_the_precision_of_the_data_is_not_reached(dtype, clients):
    """In float64 it takes longer; in float32 it ends as soon as nothing more can be seen, and says so."""
    out = run(catalog.make("exact", 3), [X.astype(dtype) for X in clients], rounds=400, stop=1e-12)
    assert (out.ended == "precision") == (dtype == np.float32)
    if dtype == np.float32:
        assert not out.converged
        assert len(out.history) < 400
        with pytest.warns(ConvergenceWarning, match="tol=1e-12 cannot be reached in float32"):
            FederatedNMF(3, tol=1e-12, rounds=400, random_state=0).fit([X.astype(dtype) for X in clients])


@pytest.mark.parametrize("name", ["fedavg", "fedmavg"])
def test_estimators_warn_when_rounds_were_too_few_for_methods_that_average(name, clients):
    with pytest.warns(ConvergenceWarning, match="8 rounds were not enough to reach tol=1e-08"):
        model = FederatedNMF(3, method=name, rounds=8, tol=1e-8, random_state=0).fit(clients)
    assert model.ended_ == ENDED["rounds"]


def test_rounds_too_few_to_judge_are_said_to_be(clients):
    with pytest.warns(ConvergenceWarning, match="3 rounds were not enough to judge"):
        FederatedNMF(3, rounds=3, random_state=0).fit(clients)


def test_an_interrupted_run_ends_where_the_whole_one_does(tmp_path, clients):
    """The way of the factor is kept too, and a run that had used up its rounds may go on."""
    method, how = catalog.make("fedmavg", 3), {"stop": 1e-9, "participation": 0.5, "seed": 3}
    whole = run(method, clients, rounds=200, **how)
    assert whole.ended == "noise"
    checkpoint = Checkpoint(tmp_path / "state.npz")
    first = run(method, clients, rounds=len(whole.history) - 5, checkpoint=checkpoint, **how)
    assert first.ended == "rounds"
    rest = run(method, clients, rounds=200, checkpoint=checkpoint, **how)
    same_bits(whole, rest)
    for name in ("moved", "net", "ended"):
        np.testing.assert_array_equal(*([getattr(line, name) for line in out.history] for out in (rest, whole)))


@pytest.mark.parametrize("name", ["asyn-sd", "asyn-ssd-v"])
def test_a_stream_ends_when_its_factor_stands_still(name, clients):
    short = run_stream(catalog.make(name, 3), clients, updates=20)
    assert (short.ended, short.converged) == ("asked", False)
    out = run(catalog.make(name, 3), clients, Plan(stop=1e-2, stream=Stream(4000)))
    assert out.ended in ("factor", "noise")
    assert out.converged
    assert len(out.history) < 4000
    assert out.history[-1].ended == out.ended


def test_streams_run_in_the_estimator_too_and_say_how_they_ended(clients):
    model = FederatedNMF(3, method="asyn-sd", tol=1e-2, rounds=500, random_state=0).fit(clients)
    assert model.n_rounds_ < 500 * len(clients)
    assert model.ended_ in (ENDED["factor"], ENDED["noise"])


def test_a_name_is_no_method_yet(clients):
    with pytest.raises(CofactorError, match=r"catalog\.make\('exact', rank\)\. Found the text 'exact'"):
        run("exact", clients)


def test_clients_that_never_answered_are_named(clients):
    out = run(catalog.make("fedavg", 3), clients, rounds=1, participation=0.5)
    assert len(out.absent) == 2
    assert out.undrawn == out.absent
    labels = np.repeat(["a", "b", "c", "d"], [len(X) for X in clients])
    model = FederatedNMF(3, method="fedavg", rounds=1, participation=0.5, random_state=2, tol=0)
    with pytest.warns(UserWarning, match="clients that were drawn for none of the 1 rounds, .*: [abc]"):
        model.fit(np.vstack(clients), groups=labels)
    assert len(model.absent_) == 2
    assert run(catalog.make("fedavg", 3), clients, rounds=1).absent == ()


def test_components_that_nothing_is_made_of_are_named():
    X = np.repeat(np.array([[1.0, 0], [0, 5]]), 6, axis=0)
    with pytest.warns(UserWarning, match="nothing is made of components"):
        model = FederatedKMeans(4, random_state=0).fit([X, X])
    assert len(model.empty_components_) == 2
    used = set(np.concatenate(model.labels_))
    assert used.isdisjoint(model.empty_components_)


def test_rounds_that_were_taken_back_say_nothing_unless_there_are_many():
    """Where steps were too long for three rounds in a row, runs ended that had hardly begun."""
    steps = [1e-2] * 6 + [0.0] * 3
    history = [Round(t, 1 - min(t, 5) / 10, 0.0, 0, 0, 0.0, 1, moved=step) for t, step in enumerate(steps)]
    assert still(history, 1e-4, 3) == "factor"
    assert still(tried(history), 1e-4, 3) == ""
    more = [line._replace(round=t, moved=0.0) for t, line in enumerate([history[-1]] * RETRACTED, len(history))]
    assert still(tried([*history, *more]), 1e-4, 3) == "factor"


def test_few_features_of_many_units_come_to_their_end():
    """Components that nearly agree in the largest feature come apart slowly: it ended 4 % above, in the limit."""
    rng = np.random.default_rng(0)
    X = rng.exponential(size=(150, 4)) @ rng.exponential(size=(4, 20)) + 0.1 * rng.exponential(size=(150, 20))
    X *= 10 ** rng.uniform(-3, 3, size=20)
    model = FederatedNMF(6, random_state=0).fit(X)
    assert model.ended_ in (ENDED["loss"], ENDED["factor"])
    assert model.n_rounds_ < 400
    longer = FederatedNMF(6, random_state=0, tol=0, rounds=1000).fit(X)
    assert model.reconstruction_err_ <= 1.005 * longer.reconstruction_err_


def test_a_factor_whose_loss_still_falls_does_not_stand_still():
    """A step of 1e-4 is a large one where the error is .4 % of the data: features of many units."""
    falls = [Round(t, 0.99**t, 0.0, 0, 0, 0.0, 1, moved=1e-5) for t in range(20)]
    assert still(falls, 1e-4, 3, "factor") == ""
    assert still([*falls, *(falls[-1]._replace(round=t) for t in range(20, 24))], 1e-4, 3, "factor") == "factor"
    assert still([line._replace(loss=float("nan")) for line in falls], 1e-4, 3, "factor") == "factor"


@pytest.mark.parametrize("spread", ["sorted", "even"])
@pytest.mark.parametrize("method", ["syn-sd", "fedmavg"])
def test_methods_that_average_claim_to_be_done_only_where_they_are(method, spread):
    rows = load_wine().data  # features of many units
    Xs = np.array_split(rows, 8) if spread == "sorted" else [rows[j::8] for j in range(8)]
    usual = FederatedNMF(4, method=method, random_state=0).fit(Xs).history_[-1]
    longer = FederatedNMF(4, method=method, random_state=0, tol=0, rounds=1000).fit(Xs).history_[-1]
    assert usual.ended == "rounds" or longer.loss >= 0.96 * usual.loss  # 2 % of the error
