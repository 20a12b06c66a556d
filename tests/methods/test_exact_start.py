"""The start of exact: it ends in the right basin, costs little, and no component stays dead."""

import numpy as np
import pytest
from scipy import sparse

from cofactor import FederatedNMF, metrics, run
from cofactor.data import synthetic
from cofactor.local import brief
from cofactor.local.brief import Brief
from cofactor.local.stats import normalize, shares
from cofactor.method import rng
from cofactor.methods import catalog, pooled
from cofactor.methods.alone import Alone
from cofactor.methods.summed import EVERY, Summed
from cofactor.types import Message, Shared

SEEDS = range(20)


def exact_rank(n, m, k, share, seed):
    """Sparse factors of rank k, whose product has many local minima, and rows of zeros."""
    rng = np.random.default_rng(seed)
    W = rng.exponential(size=(n, k)) * (rng.uniform(size=(n, k)) < share)
    H = rng.uniform(size=(k, m)) * (rng.uniform(size=(k, m)) < share)
    W[:5] = 0
    return W @ H


@pytest.mark.parametrize("clients", [1, 3, 8])
@pytest.mark.parametrize("share", [0.4, 0.5])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_exact_rank_data_with_rows_of_zeros_are_recovered_however_they_are_spread(clients, share):
    """Seeds draw nothing here, so that the rows are dealt anew twenty times."""
    X = exact_rank(60, 30, 6, share, seed=1)
    dealt = (np.array_split(np.random.default_rng(s).permutation(X), clients) for s in SEEDS)
    errors = [FederatedNMF(6, random_state=0).fit(Xs).reconstruction_err_ for Xs in dealt]
    assert max(errors) < 1e-3


@pytest.mark.parametrize("name", ["exact", "oneshot", "shared-own"])
def test_every_seed_gives_the_same_components(name):
    """Faces, cells and text have several factorizations that are as good: which one it is is no matter of luck."""
    Xs = synthetic.blocks(4, [23, 31, 17, 20], features=40, rank=5, seed=2).Xs
    first, second = (run(catalog.make(name, 4), Xs, rounds=8, seed=s).factor for s in (0, 7))
    np.testing.assert_array_equal(first, second)


def test_a_random_start_depends_on_the_seed():
    Xs = synthetic.blocks(4, [23, 31, 17, 20], features=40, rank=5, seed=2).Xs
    first, second = (run(catalog.make("exact", 4, start="random"), Xs, rounds=8, seed=s).factor for s in (0, 7))
    assert not np.allclose(first, second)


@pytest.mark.parametrize("start", ["summaries", "random"])
@pytest.mark.parametrize("rank", [5, 7])
def test_nothing_overflows_in_two_thousand_rounds(start, rank):
    X = exact_rank(60, 20, 5, 0.4, seed=3)
    result = run(catalog.make("exact", rank, start=start), [X], rounds=2000, seed=3)
    assert np.isfinite([line.loss for line in result.history]).all()
    assert min(line.loss for line in result.history) >= 0
    assert metrics.relative_error(X, result.codes[0], result.factor) < 1e-3


def test_a_component_that_nobody_uses_is_given_another_direction():
    X = np.column_stack([synthetic.blocks(1, 80, features=20, rank=4, seed=0).Xs[0], np.zeros(80)])
    start = np.random.default_rng(0).uniform(size=(4, 21))
    start[3] = np.eye(21)[20]  # a feature that never occurs
    few, many = (run(Summed(4), [X], rounds=r, start=start) for r in (EVERY - 1, 60))
    assert few.share[3] == 0
    assert many.share.min() > 0.01
    whole = run(Summed(4), [X], rounds=60, start=np.random.default_rng(1).uniform(size=(4, 21)))
    assert many.history[-1].loss <= 1.2 * whole.history[-1].loss


def test_a_component_too_many_stays_where_everything_is_explained():
    """Rank 1: nothing is left for the second one, which is not thrown about for ever."""
    X = np.outer(np.arange(1.0, 31.0), np.arange(1.0, 9.0))
    result = run(Summed(2), [X], rounds=40, start=normalize(np.eye(2, 8) + 0.1), stop=1e-4)
    assert result.converged


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_few_rounds_of_a_client_alone_are_nearly_as_good_as_many(dtype):
    X = synthetic.blocks(1, 150, features=60, rank=4, scale=0.1, seed=2).Xs[0].astype(dtype)
    errors = []
    for factorize in (Alone(Summed(4)), Brief(6, 1024)):
        W, H = factorize(X, 4, np.random.default_rng(0))
        assert W.dtype == H.dtype == dtype
        np.testing.assert_allclose(np.linalg.norm(H, axis=1), 1, rtol=1e-6)
        errors.append(metrics.relative_error(X, W, H))
    assert errors[1] <= 1.1 * errors[0]


def test_a_client_of_many_rows_learns_from_some_and_has_codes_of_all(monkeypatch):
    monkeypatch.setattr(brief, "SAMPLE", 60)
    X = synthetic.blocks(1, 150, features=60, rank=4, scale=0.1, seed=2).Xs[0]
    W, H = Brief(6, 1024)(X, 4, np.random.default_rng(0))
    assert W.shape == (150, 4)
    assert metrics.relative_error(X, W, H) <= 1.2 * metrics.relative_error(X, *Alone(Summed(4))(X, 4, rng(0, 0, 0)))


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, sparse.csc_matrix])
def test_a_client_may_look_at_its_largest_features_only(kind, monkeypatch):
    """It says nothing of the others; the first round on all rows finds them, and ends as low."""
    Xs = [np.hstack([X, 0.05 * X[:, ::-1]]) for X in synthetic.blocks(3, 50, features=60, rank=4, seed=2).Xs]
    _, H = Brief(6, 40)(kind(Xs[0]), 4, np.random.default_rng(0))
    assert np.count_nonzero(H.any(axis=0)) <= 40
    np.testing.assert_allclose(np.linalg.norm(H, axis=1), 1)
    whole = run(catalog.make("exact", 4), Xs, rounds=30)
    monkeypatch.setattr(pooled, "COLUMNS", 40)
    some = run(catalog.make("exact", 4), [kind(X) for X in Xs], rounds=30)
    assert some.factor.any(axis=0).all()
    assert some.history[-1].loss <= 1.01 * whole.history[-1].loss


def test_features_that_no_summary_has_are_left_out_of_the_search():
    """Among many more of them it finds, bit by bit, what it finds without."""
    draw = np.random.default_rng(0)
    start = catalog.make("oneshot", 3)
    made = [(draw.exponential(size=(20, 4)), draw.exponential(size=(4, 24))) for _ in range(3)]
    at = np.sort(draw.choice(60, 24, replace=False))
    found = []
    for m, place in ((24, slice(None)), (60, at)):
        messages = []
        for W, H in made:
            wide = np.zeros((4, m))
            wide[:, place] = H
            messages.append(Message({"factor": wide, "gram": W.T @ W, "loss": np.float64(1.0)}, 20.0))
        found.append(start.aggregate(Shared(np.zeros((3, m))), messages, 0))
    np.testing.assert_array_equal(found[1].factor[:, at], found[0].factor)
    assert np.count_nonzero(found[1].factor.any(axis=0)) <= 24
    assert found[1].drift == found[0].drift


@pytest.mark.parametrize("c", [1, 5])
def test_components_come_in_the_order_of_their_shares(c):
    Xs = synthetic.blocks(c, 200 // c, features=30, rank=5, seed=3).Xs
    for name in ("exact", "oneshot"):
        result = run(catalog.make(name, 5), Xs, rounds=40)
        found = shares(sum(W.T @ W for W in result.codes), result.factor)
        assert (np.diff(result.share) <= 0).all()
        np.testing.assert_allclose(found, result.share, atol=0.02)


def test_dense_and_sparse_and_both_precisions_have_the_same_order():
    X = synthetic.blocks(1, 150, features=25, rank=5, scale=0.1, seed=5).Xs[0]
    made = [kind(X.astype(dtype)) for kind in (np.asarray, sparse.csr_matrix) for dtype in (np.float64, np.float32)]
    first, *others = (FederatedNMF(5, random_state=0, tol=1e-5, rounds=200).fit(one).components_ for one in made)
    for other in others:
        assert np.sum(first * other, axis=1).min() > 0.999


def own_topics(seed):
    """Counts of 300 words: four topics that all of eight clients have, and two of each client's own."""
    rng = np.random.default_rng(seed)
    H = rng.dirichlet(np.full(300, 0.02), size=20)
    Xs = []
    for j in range(8):
        mine = [0, 1, 2, 3, 4 + 2 * j, 5 + 2 * j]
        length = rng.lognormal(np.log(120), 0.5, size=(100, 1))
        Xs.append(sparse.csr_matrix(rng.poisson(length * (rng.dirichlet(np.full(6, 0.3), size=100) @ H[mine])) * 1.0))
    return Xs, normalize(H)


@pytest.mark.parametrize("seed", [1, 3])
def test_topics_of_single_clients_are_found_beside_those_of_all(seed):
    """At the rank of all of them a search easily ends with a strong topic split and two weak ones in one."""
    Xs, H = own_topics(seed)
    found = run(catalog.make("exact", 20), Xs, rounds=60, stop=1e-4)
    planted = run(Summed(20), Xs, rounds=60, stop=1e-4, start=H)
    assert found.history[-1].loss <= 1.004 * planted.history[-1].loss
