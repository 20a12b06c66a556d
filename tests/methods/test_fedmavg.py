"""FedMAvg and gradient sharing: numbers, laws, constraint sets, and draws by data share."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from cofactor import metrics, run
from cofactor.local import sets
from cofactor.method import SERVER, rng, total
from cofactor.methods import catalog
from cofactor.methods.fedmavg import Diminishing
from cofactor.plan import ByShare
from cofactor.types import CofactorError

CLIENTS, ROWS, FEATURES, RANK = 50, 40, 60, 5


@pytest.fixture(scope="module")
def skewed():
    """Clients of ALGORITHMS section 6: Dirichlet(.1) label skew, noise for a pooled error of .0427."""
    draw = np.random.default_rng(0)
    H = draw.uniform(size=(RANK, FEATURES)) * (draw.uniform(size=(RANK, FEATURES)) < 0.5)
    Xs = []
    for _ in range(CLIENTS):
        labels = draw.choice(RANK, ROWS, p=draw.dirichlet(np.full(RANK, 0.1)))
        W = 0.3 * draw.uniform(size=(ROWS, RANK)) + np.eye(RANK)[labels] * draw.uniform(0.5, 1.5, size=(ROWS, 1))
        Xs.append(np.maximum(W @ H + draw.normal(0, 0.0291, (ROWS, FEATURES)), 0))
    return Xs, H


def cosine(H, planted):
    unit = [F / np.linalg.norm(F, axis=1, keepdims=True) for F in (H, planted)]
    found = unit[0] @ unit[1].T
    return found[linear_sum_assignment(-found)].min()


@pytest.mark.parametrize("participation", [1.0, ByShare(10), ByShare(5)])
def test_few_participants_reach_the_error_and_the_planted_factor(participation, skewed):
    Xs, H = skewed
    out = run(catalog.make("fedmavg", RANK), Xs, rounds=100, participation=participation)
    assert metrics.pooled_error(Xs, out.codes, out.factor) <= 0.0432
    assert cosine(out.factor, H) >= 0.99


def test_one_step_each_is_a_step_on_the_sum_of_all_objectives(skewed):
    """Counted by the lengths of their steps, clients of any size and scale take one step of gradient descent."""
    Xs = [skewed[0][0][:7], 5 * skewed[0][1], skewed[0][2][:25]]
    method = catalog.make("fedmavg", RANK, factor_steps=1, constant=True, components="free", momentum=0)
    shared = method.start(FEATURES, rng(0, SERVER, -1))
    sent, gradient, steepest = [], 0, 0
    for j, X in enumerate(Xs):
        local, message = method.step(X, shared, method.join(X, shared, 0, rng(0, j, -1)), 0, rng(0, j, 0))
        sent.append(message)
        gradient += local.codes.T @ (local.codes @ shared.factor - X)
        steepest += np.linalg.norm(local.codes.T @ local.codes, 2)
    np.testing.assert_allclose(
        method.aggregate(shared, sent, 0).factor, shared.factor - gradient / steepest, atol=1e-12
    )


def test_sorted_clients_of_other_scales_end_where_pooling_does():
    draw = np.random.default_rng(0)
    X = draw.gamma(0.3, size=(160, 4)) @ draw.gamma(0.5, size=(4, 40)) + 0.1 * draw.uniform(size=(160, 40))
    Xs = np.array_split(X[np.argsort(X.sum(axis=1))], 8)
    default, paper = catalog.make("fedmavg", 4), {"code_steps": 10, "factor_steps": 100, "by_rows": True, "momentum": 0}
    found = [run(method, Xs, rounds=50) for method in (default, catalog.make("fedmavg", 4, **paper))]
    pooled = run(catalog.make("exact", 4), [X], rounds=100)
    ours, theirs, best = (metrics.pooled_error(Xs, out.codes, out.factor) for out in (*found, _cut(pooled, Xs)))
    assert ours <= 1.02 * best
    assert ours < theirs


def _cut(pooled, Xs):
    """Return a pooled run with codes for every client."""
    return replace(pooled, codes=np.split(pooled.codes[0], np.cumsum([len(X) for X in Xs])[:-1]))


def test_momentum_is_a_share():
    with pytest.raises(CofactorError, match="momentum must be in"):
        catalog.make("fedmavg", 3, momentum=1.0)


def test_gradient_sharing_comes_near_with_everybody(skewed):
    Xs, H = skewed
    out = run(catalog.make("fedmgs", RANK), Xs, rounds=100)
    assert metrics.pooled_error(Xs, out.codes, out.factor) <= 1.03 * 0.0427
    assert cosine(out.factor, H) >= 0.99


def test_local_steps_diminish_like_one_over_the_round():
    assert [Diminishing(10)(t) for t in range(12)] == [11, 6, 4, 3, 3, 2, 2, 2, 2, 2, 1, 1]
    assert catalog.make("fedmavg", 3, factor_steps=7, constant=True).factor_steps == 7


@pytest.mark.parametrize("name", ["fedmavg", "fedmgs"])
def test_objective_of_one_client_never_rises(name, skewed):
    X = np.vstack(skewed[0][:3])
    options = {"components": "free"} if name == "fedmavg" else {}
    losses = [line.loss for line in run(catalog.make(name, RANK, **options), [X], rounds=40).history]
    assert np.diff(losses).max() <= 1e-9 * losses[0]


def test_gradients_of_clients_are_the_gradient_of_the_stacked_rows(skewed):
    Xs = skewed[0][:6]
    method = catalog.make("fedmgs", RANK)
    many, one = run(method, Xs, rounds=10), run(method, [np.vstack(Xs)], rounds=10)
    np.testing.assert_allclose(many.factor, one.factor, rtol=1e-9)


def test_one_client_averages_itself_with_plain_projected_gradient(skewed):
    X = skewed[0][0]
    method = catalog.make("fedmavg", RANK, code_steps=2, factor_steps=3, constant=True, by_rows=True)
    shared = method.start(FEATURES, rng(0, SERVER, -1))
    H, W = shared.factor.copy(), np.zeros((ROWS, RANK))
    for _ in range(2):
        W = np.maximum(W - (W @ H - X) @ H.T / np.linalg.norm(H @ H.T, 2), 0)
    for _ in range(3):
        H = H - W.T @ (W @ H - X) / np.linalg.norm(W.T @ W, 2)
    local, message = method.step(X, shared, method.join(X, shared, 0, rng(0, 0, -1)), 0, rng(0, 0, 0))
    np.testing.assert_allclose(local.codes, W, atol=1e-12)
    np.testing.assert_allclose(message.arrays["factor"], ROWS * H, atol=1e-10)
    np.testing.assert_allclose(method.aggregate(shared, [message], 0).factor, np.maximum(H, 0), atol=1e-12)
    assert message.arrays["loss"] == pytest.approx(0.5 * np.sum((X - W @ H) ** 2))


# constraint sets


def simplex_by_bisection(x):
    low, high = x.min() - 1, x.max()
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(x - middle, 0).sum() > 1 else (low, middle)
    return np.maximum(x - low, 0)


def test_projections_are_what_their_names_say():
    F = np.random.default_rng(0).normal(size=(20, 6))
    np.testing.assert_array_equal(sets.Free().project(F), F)
    np.testing.assert_array_equal(sets.NonNegativeRows().project(F), np.where(F > 0, F, 0))
    ball = sets.UnitBall().project(F)
    long = np.linalg.norm(F, axis=1) > 1
    np.testing.assert_allclose(np.linalg.norm(ball[long], axis=1), 1)
    np.testing.assert_array_equal(ball[~long], F[~long])
    simplex = [simplex_by_bisection(row) for row in F]
    np.testing.assert_allclose(sets.Simplex().project(F), simplex, atol=1e-9)


@pytest.mark.parametrize("name", sets.SETS)
def test_projecting_twice_changes_nothing(name):
    once = sets.named(name).project(np.random.default_rng(1).normal(size=(10, 4)))
    np.testing.assert_allclose(sets.named(name).project(once), once, atol=1e-14)


@pytest.mark.parametrize("method", ["fedmavg", "fedmgs"])
@pytest.mark.parametrize(
    ("codes", "components"),
    [("free", "free"), ("non-negative", "unit-ball"), ("free", "unit-ball"), ("simplex", "non-negative")],
)
def test_results_lie_in_their_sets_and_fit(method, codes, components, skewed):
    Xs = skewed[0][:10]
    out = run(catalog.make(method, RANK, codes=codes, components=components), Xs, rounds=30)
    for W in out.codes:
        np.testing.assert_allclose(sets.named(codes).project(W), W, atol=1e-9)
    np.testing.assert_allclose(sets.named(components).project(out.factor), out.factor, atol=1e-9)
    assert metrics.pooled_error(Xs, out.codes, out.factor) < (0.35 if codes == "simplex" else 0.2)


def test_unknown_set_lists_the_sets():
    with pytest.raises(CofactorError, match="expected one of free, non-negative, unit-ball, simplex; found 'box'"):
        catalog.make("fedmavg", 3, codes="box")


def test_steps_must_be_positive():
    with pytest.raises(CofactorError, match=r"at least 1.*code_steps=0"):
        catalog.make("fedmavg", 3, code_steps=0)


# draws by data share


def test_draw_by_share_is_an_unbiased_estimate_of_the_sum():
    rows, values = np.array([10, 40, 50]), np.array([1.0, -2.0, 5.0])
    estimates = []
    for t in range(4000):
        who, counts = ByShare(2)(rows, rng(0, SERVER, t))
        assert (np.diff(who) > 0).all()
        estimates.append(values[who] @ counts)
    assert np.mean(estimates) == pytest.approx(values.sum(), abs=0.3)


def test_draw_by_share_takes_the_plain_mean_of_the_drawn_copies(skewed):
    """Weights n_j and probabilities n_j / n cancel: the poster's 1/m sum over the drawn clients."""
    Xs = [skewed[0][0][:10], skewed[0][1], skewed[0][2][:25]]
    method, copies = catalog.make("fedmavg", RANK, by_rows=True), {}
    out = run(
        method,
        Xs,
        rounds=1,
        participation=ByShare(4),
        watch=lambda t, answers: copies.update({a.client: a.message for a in answers}),
        callbacks=[lambda line, shared: copies.update(H=shared.factor)],
    )
    drawn = rng(0, SERVER, 0).choice(3, 4, p=np.array([10, 40, 25]) / 75)
    mean = np.mean([copies[j].arrays["factor"] / copies[j].weight for j in drawn], axis=0)
    np.testing.assert_allclose(copies["H"], np.maximum(mean, 0), rtol=1e-9, atol=1e-12)
    assert out.history[0].participants == len(set(drawn))


def test_draw_by_share_is_refused_where_sums_are_not_enough(skewed):
    with pytest.raises(CofactorError, match="draw by share needs a method whose messages are summed"):
        run(catalog.make("fnmf-lap", 3), skewed[0][:3], participation=ByShare(2))
    with pytest.raises(CofactorError, match="count of at least 1"):
        run(catalog.make("fedmavg", 3), skewed[0][:3], participation=ByShare(0))


def test_small_clients_drawn_unequally_often_count_as_often_each(skewed):
    """No batch is made of clients whose messages are weighed one by one."""
    Xs, seen = list(skewed[0][0][:, None, :]), []
    run(
        catalog.make("fedmgs", 3),
        Xs,
        participation=ByShare(30),
        rounds=3,
        watch=lambda t, answers: seen.extend(len(a.clients) for a in answers),
    )
    assert set(seen) == {1}


def test_total_of_messages_is_enough(skewed):
    Xs, method = skewed[0][:4], catalog.make("fedmavg", RANK)
    shared = method.start(FEATURES, rng(0, SERVER, -1))
    sent = [method.step(X, shared, method.join(X, shared, 0, rng(0, 0, -1)), 0, rng(0, 0, 0))[1] for X in Xs]
    one, many = (method.aggregate(shared, m, 0) for m in ([total(sent)], sent))
    np.testing.assert_allclose(one.factor, many.factor, rtol=1e-12)
