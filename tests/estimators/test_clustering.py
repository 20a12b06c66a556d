"""FederatedKMeans: labels in every form of input, sorted digits told apart, and what is wrong with the input."""

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from cofactor import FederatedBMF, FederatedKMeans, FederatedMF, FederatedNMF, metrics
from cofactor.data import datasets
from cofactor.methods import catalog
from cofactor.types import CofactorError, DataError, DisclosureWarning

EVERY = pytest.mark.parametrize("method", catalog.names("clusters"))


@parametrize_with_checks([FederatedKMeans(3, random_state=0), FederatedKMeans(3, method="simplex", random_state=0)])
def test_estimator_follows_the_scikit_learn_rules(estimator, check):
    check(estimator)


def rare(rng):
    """Two clients with two clusters, and one row of the first that is far from all others."""
    X = np.vstack([rng.normal(0, 1, (40, 5)), rng.normal(20, 1, (40, 5))])
    return [np.vstack([X[::2], rng.normal(90, 9, (1, 5))]), X[1::2]]


@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_a_centre_of_one_row_is_told_before_anybody_shares_it(rng, participation):
    Xs = rare(rng)
    model = FederatedKMeans(3, participation=participation, random_state=2)  # draws the client that has it first
    with pytest.warns(DisclosureWarning, match=r"centre \d is a single row: .* holds it as it is"):
        model.fit(Xs)
    assert np.abs(model.cluster_centers_ - Xs[0][-1]).sum(axis=1).min() < 1e-9  # it is that row
    with warnings.catch_warnings():
        warnings.simplefilter("error", DisclosureWarning)
        FederatedKMeans(2, random_state=0).fit([X[:40] for X in Xs])


def test_components_of_one_row_are_told_of_other_data_too(rng):
    """Whatever its codes are: nobody else's codes say anything of it."""
    numbers = [rng.random((30, 3)) @ rng.random((3, 20)) for _ in range(2)]
    numbers[1] = np.vstack([numbers[1], 50 * np.eye(1, 20, 7)])
    with pytest.warns(DisclosureWarning, match=r"component \d is a single row"):
        FederatedNMF(4, random_state=0).fit(numbers)
    tile = np.repeat(np.eye(2, 20, dtype=int).repeat(1, axis=0), 15, axis=0)
    tile[:, 2:8] = tile[:, :1]
    bits = [tile, np.vstack([tile, np.arange(20) >= 10])]
    with pytest.warns(DisclosureWarning, match=r"component \d is a single row"):
        FederatedBMF(3, random_state=0).fit(bits)


@pytest.fixture(scope="module")
def digits():
    """Digits sorted by label over 20 clients, and the labels."""
    data = datasets.load("digits")
    order = np.argsort(data.labels, kind="stable")
    return np.array_split(data.X[order].astype(np.float64), 20), data.labels[order]


@pytest.mark.parametrize(("method", "nmi"), [("k-means", 0.72), ("simplex", 0.65)])
def test_digits_sorted_by_label_are_told_apart(method, nmi, digits):
    Xs, truth = digits
    model = FederatedKMeans(10, method=method, rounds=30, random_state=0).fit(Xs)
    found = np.concatenate(model.labels_)
    assert metrics.normalized_mutual_information(truth, found) >= nmi
    assert metrics.adjusted_rand(truth, found) >= 0.55


def test_the_inertia_is_that_of_pooled_k_means(digits):
    X = np.vstack(digits[0])
    model = FederatedKMeans(10, random_state=0).fit(digits[0])
    assert model.inertia_ <= 1.01 * KMeans(10, n_init=5, random_state=0).fit(X).inertia_
    assert model.score(digits[0]) == pytest.approx(-model.inertia_)


@EVERY
def test_labels_come_in_the_order_of_the_rows(method, rng):
    X = np.vstack([rng.normal(3 * corner - 1, 0.3, size=(30, 4)) for corner in np.eye(4)[:3]])
    groups = rng.permutation(90) % 4
    model = FederatedKMeans(3, method=method, random_state=0)
    grouped = clone(model).fit(X, groups=groups)
    listed = clone(model).fit([X[groups == g] for g in range(4)])
    for g in range(4):
        np.testing.assert_array_equal(grouped.labels_[groups == g], listed.labels_[g])
    assert metrics.adjusted_rand(np.repeat([0, 1, 2], 30), grouped.labels_) == 1
    np.testing.assert_array_equal(grouped.predict(X), grouped.labels_)
    np.testing.assert_array_equal(clone(model).fit_predict(X, groups=groups), grouped.labels_)
    assert grouped.score(X) == pytest.approx(-grouped.inertia_)
    np.testing.assert_allclose(grouped.transform(X).sum(axis=1), 1)


@EVERY
def test_sparse_rows_are_clustered_like_dense_ones(method, digits):
    Xs = digits[0][:6]
    a, b = (FederatedKMeans(3, method=method, random_state=0).fit(d) for d in (Xs, [sparse.csr_matrix(X) for X in Xs]))
    np.testing.assert_allclose(a.cluster_centers_, b.cluster_centers_, atol=1e-6)


def test_more_clusters_than_features_are_fine(rng):
    model = FederatedKMeans(5, random_state=0).fit(rng.normal(size=(40, 2)))
    assert len(np.unique(model.labels_)) == 5


def test_wrong_input_is_named(rng):
    X = rng.normal(size=(6, 3))
    with pytest.raises(CofactorError, match=r"n_clusters: expected a whole number from 1 to n_samples=6, found 7"):
        FederatedKMeans(7).fit(X)
    with pytest.raises(CofactorError, match="n_clusters is 2, but the method was made with rank 3"):
        FederatedKMeans(2, method=catalog.make("k-means", 3)).fit(X)
    with pytest.raises(DataError, match="client 1: NaN: expected finite values, found 1"):
        FederatedKMeans(2).fit([X, np.where(X == X[0, 0], np.nan, X)])


@pytest.mark.parametrize(
    ("estimator", "method", "other"),
    [
        (FederatedNMF, "exact-als", "FederatedMF"),
        (FederatedNMF, "felb", "FederatedBMF"),
        (FederatedNMF, "k-means", "FederatedKMeans"),
        (FederatedBMF, "exact", "FederatedNMF"),
        (FederatedBMF, "masked-fedmavg", "FederatedMF"),
        (FederatedMF, "exact", "FederatedNMF"),
        (FederatedMF, "felb", "FederatedBMF"),
        (FederatedKMeans, "exact-als", "FederatedMF"),
    ],
)
def test_a_method_of_another_estimator_is_refused_by_name(estimator, method, other):
    X = sparse.csr_matrix(np.eye(6))
    words = rf"'{method}' is a method of {other}, and this is {estimator.__name__}; use {other}\(method=...\)"
    with pytest.raises(CofactorError, match=words):
        estimator(2, method=method).fit(X)


def test_a_subclass_takes_what_its_base_takes(rng):
    class Mine(FederatedNMF):
        """Somebody's own."""

    X = rng.random((20, 6))
    ours, theirs = (estimator(2, rounds=3, random_state=0).fit(X) for estimator in (FederatedNMF, Mine))
    np.testing.assert_array_equal(ours.components_, theirs.components_)
    with pytest.raises(CofactorError, match="'felb' is a method of FederatedBMF, and this is FederatedNMF"):
        Mine(2, method="felb").fit(X)


def test_a_masked_method_object_is_refused_where_all_cells_count():
    with pytest.raises(CofactorError, match=r"use FederatedMF\(method=...\)"):
        FederatedNMF(2, method=catalog.make("exact-als", 2)).fit(sparse.csr_matrix(np.eye(6)))


def test_metrics_are_those_of_scikit_learn(rng):
    for _ in range(20):
        a, b = rng.integers(0, rng.integers(1, 6), 30), rng.integers(0, rng.integers(1, 6), 30)
        assert metrics.normalized_mutual_information(a, b) == pytest.approx(normalized_mutual_info_score(a, b))
        assert metrics.adjusted_rand(a, b) == pytest.approx(adjusted_rand_score(a, b))
    assert metrics.adjusted_rand([1], [2]) == metrics.normalized_mutual_information([1], [2]) == 1
    with pytest.raises(CofactorError, match="two labels for every row"):
        metrics.adjusted_rand([1, 2], [1])


def test_inertia_of_shares_is_what_the_points_between_centres_leave(rng):
    """It was the distance to the centre of the largest share, ten times what the data have in all."""
    shares = rng.dirichlet(np.full(3, 0.5), size=120)
    X = shares @ (5 * rng.normal(size=(3, 6))) + 0.01 * rng.normal(size=(120, 6))
    model = FederatedKMeans(3, method="simplex", random_state=0, rounds=200, tol=0).fit(np.array_split(X, 3))
    W = np.vstack(model.codes_)
    assert model.inertia_ == pytest.approx(np.linalg.norm(X - W @ model.cluster_centers_) ** 2, rel=1e-6)
    assert model.inertia_ <= np.linalg.norm(X - X.mean(axis=0)) ** 2
    assert model.score(X) == pytest.approx(-model.inertia_, rel=1e-3)


def test_shares_do_not_depend_on_where_zero_is_and_are_never_worse_than_labels(rng):
    """Data far from zero had steps that hardly moved: uniform shares, 27 times the inertia of k-means."""
    X = (6 * rng.normal(size=(3, 5)))[rng.integers(0, 3, 60)] + rng.normal(size=(60, 5))
    found = []
    for offset in (0.0, 1000.0):
        Xs = np.array_split(X + offset, 2)
        hard, soft = (FederatedKMeans(3, method=m, random_state=0).fit(Xs) for m in catalog.names("clusters"))
        assert soft.inertia_ < hard.inertia_
        found.append(soft)
    assert found[1].n_rounds_ == found[0].n_rounds_
    np.testing.assert_allclose(found[1].inertia_, found[0].inertia_, rtol=1e-3)
    np.testing.assert_allclose(np.vstack(found[1].codes_), np.vstack(found[0].codes_), atol=1e-3)


def test_rounds_that_were_not_enough_are_told(rng):
    X = rng.normal(size=(60, 4))
    with pytest.warns(ConvergenceWarning, match="5 rounds were not enough"):
        FederatedKMeans(3, method="simplex", rounds=5, tol=1e-9, random_state=0).fit(np.array_split(X, 2))


@EVERY
def test_a_centre_at_zero_is_a_cluster(method, rng):
    """Rows of zeros are one, as empty baskets and blank pages are: its centre was said to be made of nothing."""
    Xs = [np.zeros((12, 4)), 5 + rng.normal(0, 0.1, (20, 4))]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = FederatedKMeans(2, method=method, random_state=0).fit(Xs)
    assert model.empty_components_ == []
    assert len(set(model.labels_[0])) == 1
