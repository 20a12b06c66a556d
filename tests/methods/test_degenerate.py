"""Degenerate data: zeros, single rows, more components than rows. All methods answer, none uploads a row."""

import numpy as np
import pytest
from scipy import sparse

from cofactor import metrics, run
from cofactor.data import synthetic
from cofactor.method import SERVER, rng
from cofactor.methods import catalog
from cofactor.methods.summed import Summed
from cofactor.types import CofactorError

EVERY = pytest.mark.parametrize("name", catalog.names())
STARTS = pytest.mark.parametrize("start", ["random", "summaries", "svd", "moments", "lap"])


def zero_row(Xs):
    Xs[0][4] = 0
    Xs[1][-3:] = 0
    return Xs


def zero_column(Xs):
    for X in Xs:
        X[:, 5] = 0
    return Xs


def zero_column_at_one_client(Xs):
    Xs[1][:, [0, 5]] = 0
    return Xs


def zero_client(Xs):
    Xs[1][:] = 0
    return Xs


def largest_client_zero(Xs):
    return [*Xs, np.zeros((90, Xs[0].shape[1]))]


def constant(Xs):
    return [np.ones_like(X) for X in Xs]


CASES = [zero_row, zero_column, zero_column_at_one_client, zero_client, largest_client_zero, constant]


@EVERY
@pytest.mark.parametrize("case", CASES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_zeros_and_constants_work(name, case, kind, clients):
    Xs = case(clients)
    options = {"sweeps": 20} if name.startswith("fnmf") else {}
    result = run(catalog.make(name, 3, **options), [kind(X) for X in Xs], rounds=3)
    assert np.isfinite(result.factor).all()
    assert all(np.isfinite(line.loss) for line in result.history)
    assert metrics.pooled_error(Xs, result.codes, result.factor) < 0.95
    for X, W in zip(Xs, result.codes):
        np.testing.assert_array_equal(W[~X.any(axis=1)], 0)


@EVERY
def test_one_zero_client_does_not_spoil_the_others(name, clients):
    Xs = [*clients, np.zeros((10, 12))]
    with_, without = (run(catalog.make(name, 3), data, rounds=6) for data in (Xs, clients))
    errors = [metrics.pooled_error(clients, r.codes[:3], r.factor) for r in (with_, without)]
    assert errors[0] <= 1.1 * errors[1] + 0.02


@pytest.mark.parametrize("name", [n for n in catalog.names() if n not in ("oneshot", "consensus")])
def test_federation_of_zeros_is_answered_with_zero_codes(name):
    result = run(catalog.make(name, 2), [np.zeros((4, 5)), np.zeros((3, 5))], rounds=3)
    assert np.isfinite(result.factor).all()
    assert not any(W.any() for W in result.codes)


@pytest.mark.parametrize("name", ["oneshot", "consensus"])
def test_summaries_of_zeros_say_that_there_is_nothing_to_summarize(name):
    with pytest.raises(CofactorError, match="found only empty ones"):
        run(catalog.make(name, 2), [np.zeros((4, 5)), np.zeros((3, 5))])


@STARTS
@pytest.mark.parametrize("rows", [[4, 60, 50], [1, 80, 3], [2, 2, 100]])
def test_rank_above_the_rows_of_one_client_works_in_exact(start, rows):
    Xs = synthetic.blocks(3, rows, features=25, rank=6, seed=0).Xs
    result = run(catalog.make("exact", 6, start=start), Xs, rounds=150)
    pooled = run(catalog.make("exact", 6, start="random"), [np.vstack(Xs)], rounds=300)
    assert metrics.pooled_error(Xs, result.codes, result.factor) <= 1.1 * metrics.relative_error(
        np.vstack(Xs), pooled.codes[0], pooled.factor
    )


@STARTS
@pytest.mark.parametrize("rows", [1, 2, 3, 5])
def test_clients_smaller_than_the_rank_reach_the_pooled_error(start, rows):
    """Summaries and the LAP start can say little of such clients; the statistics must still find all components."""
    Xs = synthetic.blocks(40, rows, features=25, rank=6, seed=0).Xs
    errors = [
        metrics.pooled_error(Xs, r.codes, r.factor)
        for r in (run(catalog.make("exact", 6, start=s), Xs, rounds=150) for s in (start, "random"))
    ]
    assert errors[0] <= 1.1 * errors[1]


@EVERY
def test_rank_above_rows_and_features_is_answered(name):
    Xs = synthetic.blocks(3, 12, features=5, rank=2, seed=0).Xs
    result = run(catalog.make(name, 8), Xs, rounds=3)
    assert result.factor.shape == (8, 5)
    assert np.isfinite(result.factor).all()
    assert all(np.isfinite(W).all() for W in result.codes)


@pytest.mark.parametrize("name", [n for n in catalog.names() if catalog.make(n, 3).rounds == 1])
@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_clients_of_one_row_never_upload_it(name, scale):
    method, x = catalog.make(name, 3), scale * np.arange(1.0, 9.0)[None]
    shared = method.start(8, rng(0, SERVER, -1))
    _, message = method.step(x, shared.broadcast(), method.join(x, shared, 0, rng(0, 0, -1)), 0, rng(0, 0, 0))
    assert set(message.arrays) - {"loss"} in ({"factor"}, {"factor", "gram"})
    for array in set(message.arrays) - {"loss"}:
        np.testing.assert_array_equal(message.arrays[array], 0)


@pytest.mark.parametrize("rows", [2, 3, 4, 5])
def test_small_clients_upload_fewer_components_than_rows(rows):
    """With as many components as rows the factor is the rows themselves."""
    X = synthetic.blocks(1, rows, features=8, rank=3, seed=1).Xs[0]
    method = catalog.make("oneshot", 5)
    shared = method.start(8, rng(0, SERVER, -1))
    _, message = method.step(X, shared.broadcast(), method.join(X, shared, 0, rng(0, 0, -1)), 0, rng(0, 0, 0))
    assert message.arrays["factor"].any(axis=1).sum() <= rows // 2


def test_oneshot_with_clients_of_one_row_only_is_a_clear_error():
    rows = list(np.random.default_rng(0).uniform(size=(6, 1, 8)))
    with pytest.raises(CofactorError, match=r"found only empty ones.*one sample.*'exact'"):
        run(catalog.make("oneshot", 3), rows)


def test_exact_with_clients_of_one_row_falls_back_to_a_random_start():
    rows = list(synthetic.blocks(60, 1, features=12, rank=3, seed=0).Xs)
    result = run(catalog.make("exact", 3), rows, rounds=100)
    pooled = run(catalog.make("exact", 3, start="random"), [np.vstack(rows)], rounds=100)
    assert metrics.pooled_error(rows, result.codes, result.factor) <= 1.05 * metrics.relative_error(
        np.vstack(rows), pooled.codes[0], pooled.factor
    )


@EVERY
def test_single_feature_works(name):
    Xs = [np.full((9, 1), 2.0), np.full((8, 1), 1.0)]
    result = run(catalog.make(name, 1), Xs, rounds=3)
    np.testing.assert_allclose(result.factor, [[1.0]])
    np.testing.assert_allclose(np.concatenate(result.codes).ravel(), [2.0] * 9 + [1.0] * 8)


@pytest.mark.parametrize("seed", [2, 4])
def test_no_component_grows_out_of_range_in_a_long_run(seed):
    """Its length is free, since codes answer to it, and extrapolation carried it away: 12 000 and 110 000, and on."""
    drawn = np.random.default_rng(seed)
    X = drawn.gamma(0.5, size=(60, 4)) @ drawn.gamma(0.3, size=(4, 170)) + 0.02 * drawn.random((60, 170))
    longest = []

    def look(line, shared):
        longest.append(np.linalg.norm(shared.memory["factor"], axis=1).max())
        return False

    run(Summed(12), [X], rounds=400, stop=0.0, seed=seed, callbacks=[look])
    assert max(longest) < 5e3
