"""Federated clustering: Lloyd's steps from sums are pooled Lloyd, no row leaves, and sorted digits are told apart."""

import pickle

import numpy as np
import pytest
from scipy import sparse
from sklearn.cluster import KMeans
from sklearn.datasets import load_iris, load_wine, make_blobs
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from cofactor import run
from cofactor.data import datasets
from cofactor.engines.contract import check_message
from cofactor.kinds.numbers import CLUSTERED
from cofactor.local import kmeans
from cofactor.local.sets import Simplex
from cofactor.method import SERVER, rng
from cofactor.methods import catalog
from cofactor.methods.clusters import Clusters, labels
from cofactor.methods.fedmavg import FedMAvg


@pytest.fixture(scope="module")
def digits():
    data = datasets.load("digits")
    order = np.argsort(data.labels, kind="stable")
    return np.array_split(data.X[order].astype(np.float64), 20), data.labels[order]


def test_digits_sorted_by_label_are_told_apart(digits):
    Xs, truth = digits
    found = np.concatenate(labels(run(Clusters(10), Xs, rounds=20).codes))
    assert normalized_mutual_info_score(truth, found) >= 0.65
    assert adjusted_rand_score(truth, found) >= 0.55


def test_rounds_after_the_seeds_are_lloyds_on_the_pooled_rows(digits):
    Xs = digits[0]
    after = [run(Clusters(10), Xs, rounds=r).factor for r in (1, 4)]
    pooled = KMeans(10, init=after[0], n_init=1, max_iter=3, tol=0, algorithm="lloyd").fit(np.vstack(Xs))
    np.testing.assert_allclose(after[1], pooled.cluster_centers_, atol=1e-8)


def test_loss_falls_and_codes_are_corners_of_the_simplex(digits):
    result = run(Clusters(10), digits[0], rounds=15)
    losses = [line.loss for line in result.history[1:]]
    assert np.diff(losses).max() <= 1e-9 * losses[0]
    for W in result.codes:
        np.testing.assert_array_equal(np.sort(W, axis=1)[:, -2:], np.tile([0, 1], (len(W), 1)))


@pytest.mark.parametrize("rows", [1, 2, 3, 7])
def test_no_centre_of_round_zero_is_a_row(rows):
    X = np.random.default_rng(0).uniform(size=(rows, 5))
    method = Clusters(4)
    shared = method.start(5, rng(0, SERVER, -1))
    _, message = method.step(X, shared, method.join(X, shared, 0, rng(0, 0, -1)), 0, rng(0, 0, 0))
    check_message(message, method.schema(5, 0), client=0, t=0)
    assert not np.isin(message.arrays["counts"], [1]).any()
    assert message.arrays["counts"].sum() <= rows


def test_clients_of_one_row_work_from_random_seeds():
    X = np.random.default_rng(0).uniform(size=(60, 5))
    many, one = (run(Clusters(3), Xs, rounds=8, start=X[:3]) for Xs in (list(X[:, None]), [X]))
    assert np.isfinite(many.history[-1].loss)
    assert many.history[-1].loss <= 1.5 * one.history[-1].loss


def test_clients_of_one_row_find_clusters_far_from_any_random_start():
    draw, truth = np.random.default_rng(0), np.repeat([0, 1, 2], 40)
    X = draw.normal(100 + 20 * np.eye(3)[truth] @ draw.normal(size=(3, 6)), 1.0)
    result = run(Clusters(3), list(X[:, None]), rounds=30)
    losses = [line.loss for line in result.history[1:]]
    assert np.diff(losses).max() <= 1e-9 * losses[0]
    assert adjusted_rand_score(truth, np.concatenate(labels(result.codes))) == 1


def test_a_cluster_whose_client_is_absent_stays_where_it_is(digits):
    Xs, truth = digits
    result = run(Clusters(10), Xs, rounds=20, participation=0.5)
    assert normalized_mutual_info_score(truth, np.concatenate(labels(result.codes))) >= 0.65


def test_changes_with_everybody_present_are_plain_sums(digits):
    plain = Clusters(10)
    a, b = (run(method, digits[0], rounds=10) for method in (plain, plain.partial()))
    np.testing.assert_allclose(b.factor, a.factor, atol=1e-10)


def test_equal_rows_are_one_cluster():
    result = run(Clusters(3), [np.ones((4, 2)), np.ones((5, 2))], rounds=5)
    assert result.history[-1].loss == 0
    assert len({int(label) for part in labels(result.codes) for label in part}) == 1


@pytest.mark.parametrize("name", catalog.names("clusters"))
def test_methods_pickle_send_what_they_declare_and_keep_their_dtype(name, digits):
    method, parts = catalog.make(name, 3), [X[:20].astype(np.float32) for X in digits[0][:4]]
    assert pickle.loads(pickle.dumps(method)) == method
    shared = method.start(64, rng(0, SERVER, -1))
    states = [method.join(X, shared, 0, rng(0, j, -1)) for j, X in enumerate(parts)]
    for t in range(3):
        answers = [method.step(X, shared.broadcast(), s, t, rng(0, 0, t)) for X, s in zip(parts, states)]
        states, sent = [list(r) for r in zip(*answers)]
        for j, message in enumerate(sent):
            check_message(message, method.schema(64, t), client=j, t=t)
        shared = method.aggregate(shared, sent, t)
        assert shared.factor.dtype == np.float32


def test_seeded_codes_are_on_the_simplex_and_do_better_than_from_a_random_start(digits):
    Xs, truth = digits
    seeded, plain = (run(m, Xs, rounds=15) for m in (catalog.make("simplex", 10), FedMAvg(10, codes=Simplex())))
    for W in seeded.codes:
        np.testing.assert_allclose(W.sum(axis=1), 1)
    a, b = (normalized_mutual_info_score(truth, np.concatenate(labels(o.codes))) for o in (seeded, plain))
    assert a > b + 0.2


def test_sparse_equals_dense(digits):
    Xs = digits[0][:4]
    a, b = (run(Clusters(3), data, rounds=4) for data in (Xs, [sparse.csr_matrix(X) for X in Xs]))
    np.testing.assert_allclose(a.factor, b.factor, atol=1e-8)


@pytest.mark.parametrize("clients", [1, 6])
@pytest.mark.parametrize("name", ["blobs", "iris", "wine"])
def test_seeds_end_where_ten_starts_of_pooled_k_means_end(name, clients):
    blobs = make_blobs(900, 5, centers=25, cluster_std=1.5, random_state=4)[0]
    X, k = {"blobs": (blobs, 25), "iris": (load_iris().data, 3), "wine": (load_wine().data, 3)}[name]
    pooled = KMeans(k, n_init=10, random_state=0).fit(X).inertia_
    found = [2 * run(Clusters(k), np.array_split(X, clients), rounds=30, seed=seed).history[-1].loss for seed in (0, 1)]
    assert max(found) <= 1.01 * pooled


@pytest.mark.parametrize("seed", range(20))
def test_no_centre_has_a_single_row_and_far_rows_stay_in_sight(seed):
    draw = np.random.default_rng(seed)
    n = int(draw.integers(2, 40))
    X = draw.lognormal(sigma=2, size=(n, 3))
    H = kmeans.seeds(X, n // 2, weights=np.ones(n), rng=draw)
    chosen = kmeans.paired(X, kmeans.distances(X, H))
    counts = np.bincount(chosen, minlength=n // 2)
    assert not (counts == 1).any()
    kept = kmeans.distances(X, H).argmin(axis=1) == chosen
    assert (~kept).sum() <= n // 2  # at most one row comes to each centre, all others stay


@pytest.mark.parametrize(("dtype", "far"), [(np.float32, 1e4), (np.float64, 1e9)])
def test_rows_that_lie_far_from_zero_are_clustered_as_near_it(dtype, far):
    X = (make_blobs(180, centers=3, n_features=6, random_state=0)[0] + far).astype(dtype)
    outcome = run(Clusters(3), [X[:70], X[70:]], rounds=10)
    found = np.concatenate(labels(outcome.codes))
    pooled = KMeans(3, n_init=5, random_state=0).fit(X.astype(np.float64))
    assert adjusted_rand_score(pooled.labels_, found) == 1
    score = CLUSTERED.tally(None, X, np.vstack(outcome.codes), outcome.factor)
    assert score[0] == pytest.approx(pooled.inertia_, rel=1e-3)
    assert 2 * outcome.history[-1].loss == pytest.approx(pooled.inertia_, rel=1e-3)


def test_distances_and_seeds():
    draw = np.random.default_rng(0)
    X, H = draw.normal(size=(8, 3)), draw.normal(size=(2, 3))
    np.testing.assert_allclose(kmeans.distances(X, H), np.sum((X[:, None] - H) ** 2, axis=2), atol=1e-12)
    picked = kmeans.seeds(X, 4, weights=np.ones(8), rng=draw)
    assert len(np.unique(picked, axis=0)) == 4
    assert kmeans.seeds(np.ones((3, 2)), 2, weights=np.ones(3), rng=draw).shape == (2, 2)
