"""Known answers: planted factors come back, and the objective is that of scikit-learn's NMF."""

import numpy as np
import pytest
from sklearn.decomposition import NMF

from cofactor import metrics, run
from cofactor.data import synthetic
from cofactor.local.stats import shares
from cofactor.methods import catalog
from cofactor.methods.alone import Alone
from cofactor.methods.summed import Summed


@pytest.mark.parametrize("name", ["exact", "oneshot"])
@pytest.mark.parametrize("patterns", [None, 3])
def test_planted_blocks_are_recovered(name, patterns, matched_cosines):
    planted = synthetic.blocks(8, 80, features=60, rank=6, patterns=patterns, noise=None, seed=1)
    result = run(catalog.make(name, 6), planted.Xs, rounds=30)
    assert matched_cosines(result.factor, planted.factor).min() > 0.99
    assert metrics.pooled_error(planted.Xs, result.codes, result.factor) < 0.02


@pytest.mark.parametrize("name", ["exact", "oneshot"])
def test_planted_low_rank_factor_is_recovered(name, matched_cosines):
    planted = synthetic.lowrank(600, 50, 4, noise=0.0, seed=2)
    result = run(catalog.make(name, 4), np.array_split(planted.X, 5), rounds=100)
    assert matched_cosines(result.factor, planted.factor).min() > 0.99


@pytest.mark.parametrize("name", ["fnmf-lap", "oneshot-lap"])
def test_alignment_recovers_planted_blocks_from_independent_starts(name, matched_cosines):
    planted = synthetic.blocks(5, 120, features=60, rank=4, seed=0)
    result = run(catalog.make(name, 4), planted.Xs, rounds=10)
    assert matched_cosines(result.factor, planted.factor).min() > 0.97


def test_plain_mean_of_permuted_factors_does_not(matched_cosines):
    planted = synthetic.blocks(5, 120, features=60, rank=4, seed=0)
    assert matched_cosines(run(catalog.make("ipalm", 4), planted.Xs).factor, planted.factor).min() < 0.9


@pytest.mark.parametrize("start", ["random", "summaries", "svd", "moments", "lap"])
@pytest.mark.parametrize("shape", [(60, 20, 4), (40, 30, 6)])
def test_exact_reaches_the_objective_of_sklearn(shape, start):
    n, m, k = shape
    X = np.random.default_rng(n).gamma(1.0, size=(n, k)) @ np.random.default_rng(m).gamma(0.5, size=(k, m))
    X = X + 0.5 * np.random.default_rng(1).uniform(size=X.shape)
    sklearn = [NMF(k, init="random", random_state=s, tol=1e-6, max_iter=3000).fit(X) for s in range(3)]
    best = min(model.reconstruction_err_ for model in sklearn)
    parts = np.array_split(X, 3)
    runs = [run(catalog.make("exact", k, start=start), parts, rounds=300, seed=s) for s in range(3)]
    errors = [np.sqrt(sum(metrics.residual(A, W, r.factor) for A, W in zip(parts, r.codes))) for r in runs]
    assert min(errors) == pytest.approx(best, rel=0.01)


def test_rank_one_is_the_leading_singular_vector(clients):
    result = run(catalog.make("exact", 1), clients, rounds=50)
    leading = np.abs(np.linalg.svd(np.vstack(clients))[2][0])
    np.testing.assert_allclose(result.factor[0], leading, atol=1e-6)


@pytest.mark.parametrize("local_rank", [None, 6, 8])
def test_larger_local_rank_is_no_worse(local_rank):
    planted = synthetic.blocks(6, 60, features=40, rank=5, patterns=3, seed=3)
    result = run(catalog.make("oneshot", 5, local_rank=local_rank), planted.Xs)
    own = metrics.sum_rmsd(planted.Xs, planted.codes, planted.factor)
    assert metrics.sum_rmsd(planted.Xs, result.codes, result.factor) <= 1.05 * own


def test_alone_factorizes_one_matrix_with_unit_rows(clients, rng):
    X = clients[1]
    W, H = Alone(Summed(3))(X, 3, rng)
    sklearn = NMF(3, init="random", random_state=0, tol=1e-6, max_iter=2000).fit(X).reconstruction_err_
    np.testing.assert_allclose(np.linalg.norm(H, axis=1), 1)
    assert np.linalg.norm(X - W @ H) <= 1.02 * sklearn


@pytest.mark.parametrize("rounds", [1, 4])
def test_alone_is_a_run_of_one_client_from_the_start_it_is_given(rounds, clients, rng):
    X, given = clients[1], rng.uniform(size=(3, 12))
    W, H = Alone(Summed(3), rounds=rounds)(X, 3, rng, given)
    result = run(Summed(3), [X], rounds=rounds, start=given)
    order = np.argsort(-shares(W.T @ W, H))  # a run has its components in this order
    np.testing.assert_allclose(H[order], result.factor, rtol=1e-14)
    np.testing.assert_allclose(W[:, order], result.codes[0], rtol=1e-4)  # coordinates are solved in another order


@pytest.mark.parametrize("name", ["exact", "fedavg", "fnmf-lap"])
def test_public_start_is_where_the_run_begins(name, clients):
    """From the converged factor there is nothing left to gain, so the first loss is already the last."""
    best = run(catalog.make("exact", 3), clients, rounds=300)
    options = {"start": "random"} if name == "exact" else {"common_start": True}
    again = run(catalog.make(name, 3, **options), clients, rounds=3, start=best.factor)
    assert metrics.pooled_error(clients, again.codes, again.factor) == pytest.approx(
        metrics.pooled_error(clients, best.codes, best.factor), rel=0.01 if name == "exact" else 0.1
    )
