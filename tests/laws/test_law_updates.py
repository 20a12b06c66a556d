"""Laws of every update: F stays non-negative, the objective falls, and the limit is the NNLS solution."""

import numpy as np
import pytest
from scipy.optimize import minimize

from cofactor.local import stats as st
from cofactor.local import updates
from cofactor.types import Stats

ALL = updates.catalog()
MONOTONE = [name for name in ALL if name != "ipalm"]
DTYPES = [np.float32, np.float64]


@pytest.fixture(params=[0, 1], ids=["generic", "correlated"])
def problem(request):
    """X (40 x 25), B (5 x 25) and a positive start; correlated rows of B make many codes zero at the solution."""
    rng = np.random.default_rng(request.param)
    B = rng.uniform(size=(5, 25)) + 0.5 * request.param
    X = np.maximum(rng.normal(0.3, 0.6, size=(40, 5)), 0) @ B + 0.3 * rng.uniform(size=(40, 25))
    return X, B, rng.uniform(0.1, 1.0, size=(40, 5))


def objective(X, B, F):
    return 0.5 * float(np.sum((X - F @ B) ** 2))


def iterate(update, F, stats, steps):
    previous = None
    for t in range(steps):
        F, previous = update(F, stats, t, previous), F
    return F


@pytest.mark.parametrize("name", MONOTONE)
@pytest.mark.parametrize("start", ["positive", "with zeros", "zero"])
def test_objective_never_rises(name, start, problem):
    X, B, F = problem
    F = {"positive": F, "with zeros": F * (F > 0.5), "zero": 0 * F}[start]
    values = [objective(X, B, F)]
    for t in range(30):
        F = ALL[name](F, st.for_codes(X, B), t)
        values.append(objective(X, B, F))
    assert np.diff(values).max() <= 1e-12 * values[0]
    if (name, start) == ("mu", "zero"):
        assert values[-1] == values[0], "what is zero stays zero"
    else:
        assert values[-1] < values[0]


def test_inertial_steps_fall_over_fifty(problem):
    X, B, F = problem
    stats = st.for_codes(X, B)
    after = iterate(ALL["ipalm"], F, stats, 50)
    assert objective(X, B, after) < 0.5 * objective(X, B, F)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("dtype", DTYPES)
def test_result_is_nonnegative_finite_and_keeps_dtype_and_input(name, dtype, problem):
    X, B, F = (a.astype(dtype) for a in problem)
    stats, before = st.for_codes(X, B), F.copy()
    for t in range(5):
        new = ALL[name](F, stats, t, before)
        assert new.dtype == dtype
        assert new.shape == F.shape
        assert np.isfinite(new).all()
        assert new.min() >= 0
    np.testing.assert_array_equal(F, before)


@pytest.mark.parametrize("name", ALL)
def test_nnls_solution_is_a_fixed_point(name, problem, solve_nnls):
    X, B, _ = problem
    F = solve_nnls(X, B)
    assert (F == 0).any()
    np.testing.assert_allclose(ALL[name](F, st.for_codes(X, B), 0, F), F, atol=1e-8)


@pytest.mark.parametrize("name", ALL)
def test_iterates_reach_the_nnls_optimum(name, problem, solve_nnls):
    X, B, F = problem
    best = objective(X, B, solve_nnls(X, B))
    found = objective(X, B, iterate(ALL[name], F, st.for_codes(X, B), 1 if name == "bpp" else 4000))
    assert best * (1 - 1e-9) <= found <= best * (1 + (1e-3 if name == "mu" else 1e-7))


@pytest.mark.parametrize("name", ALL)
def test_rows_are_independent(name, problem):
    X, B, F = problem
    stats, order = st.for_codes(X, B), np.random.default_rng(3).permutation(len(F))
    part = order[:7]
    whole = ALL[name](F, stats, 0, F / 2)
    some = ALL[name](F[part], Stats(stats.gram, stats.cross[part]), 0, F[part] / 2)
    np.testing.assert_allclose(some, whole[part], rtol=1e-10, atol=1e-12)


def test_sweeps_in_one_call_equal_single_calls(problem):
    X, B, F = problem
    stats = st.for_codes(X, B)
    for one, many in [
        (updates.HALS(), updates.HALS(4)),
        (updates.MU(), updates.MU(4)),
        (updates.PGD(), updates.PGD(4)),
    ]:
        np.testing.assert_allclose(many(F, stats), iterate(one, F, stats, 4), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("power", [-25, -12, 12])
def test_scale_of_the_data_changes_nothing(name, power, problem):
    """Data times s with codes times s has the same factor: its gram and its cross are both times s^2."""
    X, B, F = problem
    gram, cross = st.for_codes(X, B)
    scaled = ALL[name](F, Stats(4.0**power * gram, 4.0**power * cross), 0, F / 2)
    np.testing.assert_allclose(scaled, ALL[name](F, Stats(gram, cross), 0, F / 2), rtol=1e-6)


@pytest.mark.parametrize("name", ALL)
def test_component_that_nobody_uses_stays_finite(name, problem):
    X, B, F = problem
    B = B.copy()
    B[2] = 0
    new = iterate(ALL[name], F, st.for_codes(X, B), 20)
    assert np.isfinite(new).all()
    assert objective(X, B, new) < objective(X, B, F)


CHANGES = {
    "ridge": (lambda s, F0: st.ridge(s, 0.7), lambda F, F0: 0.35 * np.sum(F**2)),
    "anchor": (lambda s, F0: st.anchor(s, F0, 0.7), lambda F, F0: 0.35 * np.sum((F - F0) ** 2)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changed_stats_have_the_gradient_of_the_penalized_objective(name, problem):
    X, B, F = problem
    change, penalty = CHANGES[name]
    F0, D = F[::-1], np.random.default_rng(5).normal(size=F.shape)
    gram, cross = change(st.for_codes(X, B), F0)

    def value(e):
        return objective(X, B, F + e * D) + penalty(F + e * D, F0)

    slope = (value(1e-4) - value(-1e-4)) / 2e-4
    assert np.sum((F @ gram - cross) * D) == pytest.approx(slope, rel=1e-7)


@pytest.mark.parametrize("name", CHANGES)
def test_solving_changed_stats_minimizes_the_penalized_objective(name, problem, solve_nnls):
    X, B, F = (a[:6] for a in problem)
    change, penalty = CHANGES[name]
    found = ALL["bpp"](F, change(st.for_codes(X, B), F))
    best = minimize(
        lambda f: objective(X, B, f.reshape(F.shape)) + penalty(f.reshape(F.shape), F),
        found.ravel() + 0.1,
        bounds=[(0, None)] * F.size,
        options={"maxiter": 2000, "ftol": 1e-14, "gtol": 1e-10},
    )
    assert objective(X, B, found) + penalty(found, F) <= best.fun * (1 + 1e-8)
    target = 0 * F if name == "ridge" else F
    augmented = solve_nnls(np.hstack([X, 0.7**0.5 * target]), np.hstack([B, 0.7**0.5 * np.eye(len(B))]))
    np.testing.assert_allclose(found, augmented, atol=1e-8)


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_changed_stats_keep_dtype(name, dtype, problem):
    X, B, F = (a.astype(dtype) for a in problem)
    gram, cross = CHANGES[name][0](st.for_codes(X, B), F)
    assert gram.dtype == cross.dtype == dtype


@pytest.mark.parametrize("rows", [9, 40])
@pytest.mark.parametrize("dtype", DTYPES)
def test_an_anchored_update_is_one_of_changed_stats(rows, dtype, problem):
    """The anchor is added inside the kernel, and for toys outside of it; so is the gain of where it begins."""
    X, B, F = (a.astype(dtype) for a in problem)
    for k in (3, 5):
        stats = st.for_codes(X[:rows], B[:k])
        start = F[:rows, :k]
        mu = 0.3 * float(np.mean(np.diag(stats.gram)))
        expected = updates.HALS(2)(start, st.anchor(stats, start, mu))
        close = {"rtol": 1e-4, "atol": 1e-5} if dtype == np.float32 else {"rtol": 1e-11, "atol": 1e-13}
        for order in (np.ascontiguousarray, np.asfortranarray):
            turned = st.Stats(stats.gram, order(stats.cross))
            found, gained = updates.ProximalCD(0.3, 2).gaining(start, turned, 0)
            np.testing.assert_allclose(found, expected, **close)
            assert gained == pytest.approx(st.gain(stats, start), rel=1e-5 if dtype == np.float32 else 1e-12)
