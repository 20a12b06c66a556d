"""Rows made to break a bound: no finite row moves a release by more than it was paid for, and no run tells more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.helpers.private import built

from cofactor import FederatedBMF, FederatedNMF, run
from cofactor.assurance.attack_rows import LAYOUTS, attack_rows, sensitivity, units
from cofactor.assurance.joint_worlds import joint
from cofactor.assurance.worst_case import kinds, scaled, small_clients, step_of
from cofactor.methods.dp_nmf import dp_nmf
from cofactor.privacy import bounded
from cofactor.privacy.allowance import Privacy
from cofactor.privacy.errors import HostileInputError
from cofactor.privacy.grid import on_grid

SEED = {"insecure_seed": 1}
RECORD, CLIENT = Privacy(8, 1e-6, **SEED), Privacy(8, 1e-6, "client", **SEED)
METHODS = {
    "dp-moments": ("dp-moments", RECORD, {}),
    "dp-moments, clipped rows": ("dp-moments", Privacy(8, 1e-6, clip=7.0, **SEED), {}),
    "dp-moments by client": ("dp-moments", CLIENT, {}),
    "dp-range": ("dp-range", RECORD, {"width": 4}),
    "dp-range by client": ("dp-range", CLIENT, {"width": 4}),
    "dp-nmf": ("dp-nmf", RECORD, {"sweeps": 2}),
    "dp-nmf without outliers": ("dp-nmf", RECORD, {"sweeps": 2, "outliers": None}),
    "dp-nmf by client": ("dp-nmf", CLIENT, {"sweeps": 2}),
    "fedavg": ("fedavg", CLIENT, {"sweeps": 2}),
    "fnmf-lap": ("fnmf-lap", CLIENT, {"sweeps": 2}),
    "felb": ("felb", CLIENT, {}),
    "votes": ("asso", CLIENT, {"sweeps": 0}),
}
BY_RECORD = [name for name, (_, ask, _) in METHODS.items() if ask.unit == "record"]


def make(name: str, *, secure: bool = False, clients: int = 3):
    method, ask, options = METHODS[name]
    return built(method, ask, clients=clients, rounds=3 if method == "dp-range" else 2, secure=secure, **options)


@pytest.mark.parametrize("name", METHODS)
def test_no_attack_row_moves_a_release_by_more_than_its_bound(name: str) -> None:
    method = make(name)
    for t in kinds(method):
        found = sensitivity(method, t)
        assert {moved.name for moved in found} == set(method.allowance.shares[t])
        assert [moved for moved in found if not moved.passed] == []


@settings(deadline=None, max_examples=30)
@given(
    row=st.one_of(
        hnp.arrays(t, 6, elements=st.floats(0, float(np.finfo(t).max), width=w))
        for t, w in ((np.float64, 64), (np.float32, 32))
    )
)
@pytest.mark.parametrize("name", BY_RECORD)
def test_for_every_finite_row_what_it_moves_before_noise_is_within_the_bound(name: str, row: np.ndarray) -> None:
    method = scaled(make(name), 0.0)
    base = np.random.default_rng(0).gamma(0.5, size=(4, 6)).astype(row.dtype)
    start = method.start(6, np.random.default_rng(0))
    for t in kinds(method):
        for shared in method.late(start, t):
            for layout in LAYOUTS.values():
                old, new = (
                    step_of(method, layout(X), shared, t, np.random.default_rng(1))
                    for X in (base, np.vstack([base, row]))
                )
                for array, a in new.arrays.items():
                    moved = np.linalg.norm(np.ravel(a - old.arrays[array]))
                    assert moved <= on_grid(new.cost[array].clip, np.size(a)), (array, layout)


BY_CLIENT = [name for name in METHODS if name not in BY_RECORD]
SHAPES = st.tuples(st.integers(0, 4), st.just(6))
BITS = hnp.arrays(np.uint8, SHAPES, elements=st.integers(0, 1))
NUMBERS = st.one_of(
    hnp.arrays(t, SHAPES, elements=st.floats(0, float(np.finfo(t).max), width=w))
    for t, w in ((np.float64, 64), (np.float32, 32))
)


@settings(deadline=None, max_examples=20)
@given(data=st.data())
@pytest.mark.parametrize("name", BY_CLIENT)
def test_for_every_finite_client_what_it_sends_before_noise_is_within_the_bound(name: str, data: st.DataObject) -> None:
    """Zero-out: where the client has nothing, zeros are sent; with anything it sends no more than its bound."""
    method = scaled(make(name), 0.0)
    bits = method.traits.kind == "boolean"
    X = data.draw(BITS if bits else NUMBERS)
    start = method.start(6, np.random.default_rng(0))
    for t in kinds(method):
        for shared in method.late(start, t):
            for layout in [np.asarray] if bits else LAYOUTS.values():
                message = step_of(method, layout(X), shared, t, np.random.default_rng(1))
                for array, a in message.arrays.items():
                    bound = on_grid(message.cost[array].clip, np.size(a))
                    assert np.linalg.norm(np.ravel(a)) <= bound, (array, layout)
                    if not len(X):
                        assert not np.any(a), (array, layout)


def test_attack_rows_are_what_they_are_called() -> None:
    for precision in ("float32", "float64"):
        rows = attack_rows(8, precision)
        assert all(np.isfinite(row).all() and row.dtype == precision for row in rows.values())
        tiny, huge = rows["squares vanish"], rows["huge"]
        with np.errstate(over="ignore", under="ignore"):
            assert (tiny > 0).all()
            assert np.sum(tiny * tiny) < 1e-44
            assert np.isinf(np.sum(huge * huge))
            one = rows["one square survives"]
            assert np.count_nonzero(one * one) == 1
        assert 0 < rows["denormal"].max() < np.finfo(precision).tiny


def test_a_norm_that_squares_raw_values_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hole that was there: rows of 1.5e-162 passed with norms of 5 and more."""

    def squared(X, bound):
        with np.errstate(all="ignore"):
            norms = np.sqrt(np.asarray(X.multiply(X).sum(axis=1) if hasattr(X, "multiply") else (X * X).sum(axis=1)))
        norms = norms.ravel().astype(float)
        return bounded.Scales(np.ones(len(norms)), 1 / np.where(norms > 0, norms, 1.0))

    monkeypatch.setattr(bounded, "scales_of", squared)
    monkeypatch.setattr(bounded, "_inside", lambda block: block)
    with np.errstate(all="ignore"):
        moved, _ = sensitivity(make("dp-moments"), 0)
    assert moved.share > 2
    assert moved.by.startswith("one square survives")


# --- two worlds on all messages of a run, by their likelihood ratio ---

FEWER = ("dp-moments by client", "dp-range", "dp-nmf by client")
"""Sampled less often here, and in two views: benchmarks/attacks.py has all rows in all of them."""
WORST = {
    "dp-moments": "one-hot, float64, dense",
    "dp-moments by client": "denormal one-hot, float64, dense",
    "dp-range": "all sizes, float32, dense",
    "dp-nmf": "orthogonal, float64, dense",
    "dp-nmf by client": "random, float64, dense",
    "fedavg": "long one-hot, float64, dense",
    "votes": "constant, float64, dense",
}


def attack(name: str, method, by: str):
    base = small_clients(method, 1)[1][0][:4]
    return next((before, after) for found, before, after in units(method, base) if found == by)


VIEWS = [(False, False), (True, True), (True, False)]
SEEN = [(name, *view) for name in WORST for view in (VIEWS[:2] if name in FEWER else VIEWS)]


@pytest.mark.parametrize(("name", "secure", "everybody"), SEEN)
def test_all_messages_of_a_run_together_tell_no_more_than_was_claimed(name: str, secure: bool, everybody: bool) -> None:
    """Of the server without secure sums; with them, of a participant and the server that put together what they know.

    They have subtracted the participant's noise, and where nobody dropped out also what all others revealed of theirs.
    """
    method = make(name, secure=secure, clients=4)
    assert (method.allowance.parts.least > 1) is secure
    assert (method.allowance.parts.least < method.allowance.parts.full) is secure
    data = attack(name, method, WORST[name])
    found = joint(method, *data, releases=25 if name in FEWER else 100, everybody=everybody)
    assert found.passed
    assert found.possible > 0.3 * found.claim  # the attack is one
    broken = joint(method, *data, releases=30, run=scaled(method, 0.1), everybody=everybody)
    assert broken.lower > found.claim


def test_one_participant_alone_has_the_noise_of_all_others_against_it() -> None:
    method = make("dp-moments", clients=4)
    data = attack("dp-moments", method, WORST["dp-moments"])
    server, alone = (joint(method, *data, releases=60, others=others) for others in (None, 3))
    assert alone.passed
    assert alone.possible == pytest.approx(server.possible / 3**0.5, rel=0.1)


@pytest.mark.parametrize(
    "by", ["one square survives, float64, csr", "denormal, float32, csc", "largest, float64, dense"]
)
def test_rows_of_extreme_size_tell_no_more_than_others(by: str) -> None:
    method = make("dp-moments")
    found = joint(method, *attack("dp-moments", method, by), releases=100)
    assert found.passed
    assert found.possible > 0.3 * found.claim


# --- states that a server makes up ---


def extreme(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Return numbers of ordinary, of all, of nearly the same, or of very different sizes."""
    a, sizes = rng.standard_normal(shape), 10.0 ** rng.uniform(-9, 9, shape)
    rows = sizes if len(shape) == 1 else sizes[:, :1]
    return [a, np.sign(a) * sizes, 1e8 + 1e-7 * a, np.abs(a) * rows, rng.random(shape[-1]) * rows][rng.integers(5)]


@pytest.mark.parametrize("name", BY_RECORD)
def test_no_row_moves_a_release_by_more_than_its_bound_in_any_state(name: str) -> None:
    """Without secure sums nobody's honesty but the client's own matters: not that of whoever sends the state."""
    method, rng, tried = make(name), np.random.default_rng(0), 0
    for _ in range(60):
        X = rng.random((rng.integers(0, 60), 6)) ** rng.integers(1, 6)
        more = np.insert(X, rng.integers(len(X) + 1), rng.random(6), axis=0)
        shared, t = method.start(6, rng).broadcast(), int(rng.integers(method.rounds))
        factor = extreme(rng, shared.factor.shape)
        extra = {n: extreme(rng, a.shape) if np.ndim(a) and n != "features" else a for n, a in shared.extra.items()}
        extra |= {n: np.linalg.qr(a)[0] for n, a in extra.items() if n == "basis" and rng.random() < 0.8}
        extra |= {n: np.float64(10.0 ** rng.uniform(-6, 3)) for n in extra if n in ("bound", "short")}
        extra |= {n: np.bool_(rng.random() < 0.7) for n in extra if n == "second"}
        extra |= {n: rng.integers(0, 6, 6) for n in extra if n == "features"}
        shared = shared._replace(factor=factor, extra=extra)
        try:
            method.check(shared, 6)
        except HostileInputError:
            continue
        tried += 1
        old, new = method.sums(X, shared, t), method.sums(more, shared, t)
        for array, bound in method.bounds(shared, t).items():
            assert np.linalg.norm(np.ravel(new[array] - old[array])) <= bound * (1 + 1e-9), (array, t)
    assert tried > 20


def moved(method: Any, shared: Any, X: Any) -> float:
    """Return how far the first row moves what is released, in bounds; nothing where the state is refused."""
    try:
        method.check(shared, X.shape[1])
    except HostileInputError:
        return 0.0
    old, new = (method.sums(rows, shared, 1) for rows in (X, X[1:]))
    bounds = method.bounds(shared, 1).items()
    return max(float(np.linalg.norm(np.ravel(new[array] - old[array]))) / bound for array, bound in bounds)


@pytest.mark.parametrize("outliers", [None, 1.5])
@pytest.mark.parametrize("length", [1e-160, 1e-18, 1e-3, 1.0])
def test_short_components_do_not_count_last_bits_as_rows(length: float, outliers: float | None) -> None:
    """Codes of n and of n - 1 rows differ in last bits; divided by 1e-18 they were 30 bounds, by 1e-160 no numbers."""
    method, rng = dp_nmf(3, privacy=RECORD, outliers=outliers), np.random.default_rng(11)
    H = rng.random((3, 16))
    H /= np.linalg.norm(H, axis=1, keepdims=True)
    shared = method.start(16, rng)._replace(factor=H * [[1.0], [length * (1 + 1e-9)], [length * (1 + 1e-9)]])
    found = moved(method, shared, H[0] * rng.uniform(0.1, 1, (57, 1)))
    assert 0.9 < found < 1 + 1e-7 if length >= 1e-3 else found == 0


@pytest.mark.parametrize(("length", "short"), [(1e9, 1e-4), (1e4, 1e-4), (1.0, 1e-9), (1.0, 1e-5), (1.0, 0.1)])
def test_a_basis_across_all_rows_does_not_count_last_bits_as_rows(length: float, short: float) -> None:
    """What is left of rows is last bits, which depend on how many rows there are: a long basis made bounds of them."""
    method, rng = make("dp-range"), np.random.default_rng(0)
    x, shared = rng.random(16) + 0.1, method.start(16, rng)
    drawn = rng.standard_normal(shared.extra["basis"].shape)
    basis = np.linalg.qr(drawn - np.outer(x, x @ drawn) / (x @ x))[0] * length
    known = {"basis": basis, "short": np.float64(short), "bound": np.float64(1.0), "center": np.zeros(16)}
    shared = shared._replace(extra={**shared.extra, **known})
    assert moved(method, shared, x * rng.uniform(0.1, 1, (15_626, 1))) < 1e-5


def test_what_is_out_of_the_grid_is_cut_off_and_no_error() -> None:
    """An error would tell how many rows there are: the state says how much each of them counts."""
    allowance = make("dp-moments").allowance
    found = allowance.release(0, {"sum": np.array([1e30, 0.0])}, {"sum": 1.0}, np.random.default_rng(0))
    assert 1e10 < found.arrays["sum"][0] < 1e12


# --- what a row does to all others ---

OUT_OF_RANGE = np.array([[2.0**41, 0, 0, 0, 0, 0]], np.float32)
"""A finite row >= 0 whose square has no place in single precision."""


@pytest.mark.parametrize("prepare", [None, "log1p", "library", "binarize=0.1"])
@pytest.mark.filterwarnings("ignore")
def test_a_row_changes_no_other_row(prepare: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """It made all rows double precision, in which cells at a threshold are above it: 249 bounds instead of one."""
    seen: list[list[Any]] = []
    grid = np.round(np.random.default_rng(0).integers(0, 5, (40, 6)) * 0.1, 1).astype(np.float32)

    def caught(method: Any, Xs: Any, plan: Any, **more: Any) -> Any:
        seen.append([np.asarray(X) for X in Xs])
        return run(method, Xs, plan, **more)

    monkeypatch.setattr("cofactor.estimators.base.run", caught)
    for first in (grid, np.vstack([OUT_OF_RANGE, grid])):
        FederatedNMF(2, privacy=Privacy(1, 1e-6), prepare=prepare, random_state=0).fit([first, grid[:7].copy()])
    (a, b), (more, other) = seen
    np.testing.assert_array_equal(more[1:], a)
    np.testing.assert_array_equal(other, b)
    assert {X.dtype for X in (a, b, more, other)} == {np.dtype(np.float32)}, "what leaves this does not depend on a row"


@pytest.mark.parametrize("rows", [0, 1])
@pytest.mark.filterwarnings("ignore")
def test_a_client_may_lose_its_last_row_whatever_comes_before_the_fit(rows: int) -> None:
    rng = np.random.default_rng(0)
    X, bits = rng.random((20, 5)), [(rng.random((12, 5)) > 0.5).astype(int) for _ in range(4)]
    for prepare in (None, "log1p", "library,log1p"):
        FederatedNMF(2, privacy=Privacy(1, 1e-6), prepare=prepare).fit([X, X[:rows].copy()])
    FederatedBMF(2, method="asso", privacy=Privacy(1, 1e-3, unit="client")).fit([*bits, bits[0][:rows].copy()])


@pytest.mark.parametrize("size", [1e-306, 5e-324, 1e308])
@pytest.mark.filterwarnings("ignore")
def test_finite_rows_stay_finite_in_a_preparation(size: float) -> None:
    X = np.vstack([np.random.default_rng(0).random((20, 5)), np.full((1, 5), size)])
    FederatedNMF(2, privacy=Privacy(1, 1e-6), prepare="library").fit(X)
