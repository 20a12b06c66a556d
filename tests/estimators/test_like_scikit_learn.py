"""What scikit-learn asks of its own NMF, asked of one client and of every method that makes sense.

Left out, because there is nothing to ask: the starts by singular vectors (``nndsvd``, ``nndsvda``, ``nndsvdar``), which
need pooled rows; the solver ``mu`` by its option (here it is the method ``mu``); a random start with more components
than rows or features, which is refused here by design; codes W that stay as they were given, since the first half of a
round finds the codes of the factor.
"""

import itertools
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.decomposition import NMF
from sklearn.decomposition._nmf import _beta_divergence
from sklearn.exceptions import ConvergenceWarning

from cofactor import FederatedNMF, run
from cofactor.local.divergence import divergence
from cofactor.local.stats import normalize
from cofactor.types import CofactorError

METHODS = (
    "exact",
    "oneshot",
    "exact-beta",
    "exact-gaps",
    "shared-own",
    "fedavg",
    "fnmf-lap",
    "fedmavg",
    "syn-sd",
    "hals",
)
SUMMED = ("exact", "exact-beta", "exact-gaps")
BETAS = (-0.5, 0, 0.5, 1, 1.5, 2, 3)
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def dense(n=30, m=10, seed=36):
    return np.abs(np.random.default_rng(seed).standard_normal((n, m)))


def low_rank(n=40, m=12, k=4, seed=1):
    draw = np.random.default_rng(seed)
    return draw.gamma(0.7, size=(n, k)) @ draw.gamma(0.7, size=(k, m))


def model(method="exact", k=4, **options):
    return FederatedNMF(k, method=method, random_state=0, **{"rounds": 60, **options})


@pytest.mark.parametrize("method", METHODS)
def test_a_fit_has_no_negative_values(method):
    fitted = model(method).fit(dense())
    assert fitted.components_.min() >= 0
    assert fitted.transform(dense()).min() >= 0


@pytest.mark.parametrize("alpha_W", [0.0, 0.01])
@pytest.mark.parametrize("alpha_H", [0.0, 0.01, "same"])
@pytest.mark.parametrize("init", [None, "random"])
def test_penalties_leave_no_negative_values(alpha_W, alpha_H, init):
    fitted = model(alpha_W=alpha_W, alpha_H=alpha_H, init=init)
    assert fitted.fit_transform(dense()).min() >= 0
    assert fitted.components_.min() >= 0


@pytest.mark.parametrize("method", METHODS)
def test_data_of_that_rank_are_explained(method):
    assert model(method, rounds=300, tol=0).fit(low_rank()).reconstruction_err_ < 0.1


@pytest.mark.parametrize("method", METHODS)
def test_the_error_is_that_of_the_reconstruction(method):
    X = dense()
    fitted = model(method)
    W = fitted.fit_transform(X)
    H = fitted.components_ + (fitted.own_components_[0] if fitted.own_components_ else 0)
    assert fitted.reconstruction_err_ == pytest.approx(np.linalg.norm(X - W @ H) / np.linalg.norm(X), rel=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_transform_gives_the_codes_of_the_fit(method):
    fitted = model(method)
    W = fitted.fit_transform(dense())
    np.testing.assert_allclose(fitted.transform(dense()), W, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("alpha", [0.0, 1e-4, 1e-3])
@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler"])
def test_transform_knows_the_penalties(alpha, loss):
    fitted = model(alpha_W=alpha, beta_loss=loss, rounds=200)
    W = fitted.fit_transform(low_rank())
    np.testing.assert_allclose(fitted.transform(low_rank()), W, rtol=1e-5, atol=1e-6)


# a part of the data of shared-own is the client's own, and not in the shared factor
@pytest.mark.parametrize("method", [method for method in METHODS if method != "shared-own"])
def test_the_inverse_transform_comes_near_the_data(method):
    X = low_rank()
    fitted = model(method, rounds=300, tol=0)
    W = fitted.fit_transform(X)
    assert np.linalg.norm(fitted.inverse_transform(W) - X) < 0.1 * np.linalg.norm(X)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("form", [sparse.csr_matrix, sparse.csc_matrix, sparse.csr_array, sparse.csc_array])
def test_sparse_is_dense(method, form):
    X = dense()
    X[:, 2 * np.arange(5)] = 0
    a, b = model(method, rounds=10, tol=0).fit(X), model(method, rounds=10, tol=0).fit(form(X))
    np.testing.assert_allclose(a.components_, b.components_, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(a.transform(X), b.transform(form(X)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("given", "found"), [("f4", "f4"), ("f8", "f8"), ("i4", "f8"), ("i8", "f8")])
def test_types_stay(method, given, found):
    X = np.rint(10 * dense()).astype(given)
    fitted = model(method, rounds=5)
    assert fitted.fit_transform(X).dtype == np.dtype(found)
    assert fitted.transform(X).dtype == fitted.components_.dtype == np.dtype(found)


@pytest.mark.parametrize("method", METHODS)
def test_single_precision_is_double_precision(method):
    X = low_rank(seed=3)
    a, b = (model(method, rounds=10, tol=0).fit(X.astype(t)) for t in (np.float64, np.float32))
    P, Q = (f.transform(X) @ f.components_ for f in (a, b))
    np.testing.assert_allclose(P, Q, atol=5e-3 * X.max())
    if method != "oneshot":  # which goes on as long as it sees a gain, of data of this rank longer in double precision
        np.testing.assert_allclose(a.components_, b.components_, atol=5e-3)


@pytest.mark.parametrize("method", [method for method in METHODS if method != "hals"])  # the function takes blocks
def test_the_estimator_is_the_function(method):
    X = dense()
    fitted = model(method, rounds=10, tol=0).fit(X)
    np.testing.assert_array_equal(run(fitted._made, [X], rounds=10, seed=0).factor, fitted.components_)


@pytest.mark.parametrize("method", METHODS)
def test_negative_values_are_refused(method):
    with pytest.raises(ValueError, match="Negative values in data"):
        model(method).fit(-dense())
    fitted = model(method).fit(dense())
    with pytest.raises(ValueError, match="Negative values in data"):
        fitted.transform(-dense())


@pytest.mark.parametrize("method", ["exact", "exact-beta", "exact-gaps", "fedavg", "fedmavg"])
def test_too_few_rounds_get_a_warning(method):
    with pytest.warns(ConvergenceWarning, match="rounds were not enough"):
        model(method, rounds=1, tol=1e-8).fit(dense())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_components": 0}, "n_components: expected a whole number"),
        ({"n_components": 2.5}, "n_components: expected a whole number"),
        ({"n_components": 11}, "n_components: expected a whole number from 1 to 10"),
        ({"init": "name"}, "init: expected None"),
        ({"init": "nndsvd"}, "init: expected None"),
        ({"beta_loss": "name"}, "unknown beta_loss"),
        ({"beta_loss": "itakura-saito", "orthogonality": 1}, "orthogonality: expected beta_loss='frobenius'"),
        ({"method": "name"}, "unknown method"),
        ({"alpha_W": -1}, "alpha_W: expected a number >= 0"),
        ({"alpha_H": "name"}, "alpha_H: expected a number >= 0"),
        ({"l1_ratio": 1.5}, "l1_ratio: expected a number from 0 to 1"),
        ({"orthogonality": -1}, "orthogonality: expected a number >= 0"),
        ({"tol": -1}, "tol must be a number"),
        ({"rounds": 0}, "rounds must be"),
    ],
)
def test_bad_parameters_have_words(options, words):
    with pytest.raises(CofactorError, match=words):
        FederatedNMF(**{"n_components": 3, **options}).fit(dense())


@pytest.mark.parametrize("beta", BETAS)
def test_the_objective_falls(beta):
    X = dense(seed=42) + 0.1
    fitted = model("exact-beta", beta_loss=beta, rounds=30, tol=0, options={"momentum": False, "start": "random"}).fit(
        X
    )
    losses = [line.loss for line in fitted.history_]
    assert all(after <= before * (1 + 1e-9) + 1e-12 for before, after in itertools.pairwise(losses))


@pytest.mark.parametrize(("alpha", "ratio"), [(0.0, 0.0), (1e-3, 0.0), (1e-3, 0.5), (1e-3, 1.0), (1e-2, 0.5)])
def test_the_penalized_objective_falls(alpha, ratio):
    fitted = model(alpha_W=alpha, l1_ratio=ratio, init="random", rounds=40, tol=0, options={"momentum": 0.0})
    losses = [line.loss for line in fitted.fit(dense()).history_]
    assert all(after <= before * (1 + 1e-9) for before, after in itertools.pairwise(losses))


def objective(X, W, H, *, alpha_W, alpha_H, l1_ratio):
    ratio = l1_ratio
    price_W, price_H = (ratio * F.sum() + (1 - ratio) * 0.5 * np.sum(F**2) for F in (W, H))
    return 0.5 * np.sum((X - W @ H) ** 2) + X.shape[1] * alpha_W * price_W + X.shape[0] * alpha_H * price_H


@pytest.mark.parametrize(("alpha_W", "alpha_H"), [(1e-3, 1e-3), (1e-2, 1e-3), (1e-3, 1e-2)])
@pytest.mark.parametrize("ratio", [0.0, 0.5, 1.0])
def test_penalized_objectives_are_those_of_coordinate_descent(alpha_W, alpha_H, ratio):
    """From the same start, on data with one good answer."""
    X = low_rank(60, 15, 3, seed=2) + 0.01 * dense(60, 15)
    H = np.random.default_rng(0).uniform(size=(3, 15))
    penalties = {"alpha_W": alpha_W, "alpha_H": alpha_H, "l1_ratio": ratio}
    theirs = NMF(3, init="custom", max_iter=5000, tol=1e-10, **penalties)
    V = theirs.fit_transform(X, W=np.full((60, 3), 0.1), H=H.copy())
    ours = model(k=3, init="custom", rounds=3000, tol=1e-10, **penalties)
    W = ours.fit_transform(X, H=H)
    a, b = (objective(X, *pair, **penalties) for pair in ((W, ours.components_), (V, theirs.components_)))
    assert a == pytest.approx(b, rel=1e-4)


@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_penalties_make_small_or_sparse(ratio):
    X = dense(seed=42)
    free, held = (model(alpha_W=a, l1_ratio=ratio, rounds=200).fit(X) for a in (0.0, 0.05))
    parts = [(m.codes_[0], m.components_) for m in (free, held)]
    if ratio == 1.0:
        assert sum(np.sum(F == 0) for F in parts[1]) > sum(np.sum(F == 0) for F in parts[0])
    else:
        assert np.linalg.norm(parts[1][0] @ parts[1][1]) < np.linalg.norm(parts[0][0] @ parts[0][1])


@pytest.mark.parametrize("weight", [0.5, 2.0])
def test_orthogonality_keeps_components_apart(weight):
    X = dense(80, 30, seed=5)
    free, held = (model(orthogonality=w, rounds=200).fit(X) for w in (0.0, weight))

    def overlap(fitted):
        parts = fitted.codes_[0].T @ fitted.codes_[0] * (fitted.components_ @ fitted.components_.T)
        return (parts.sum() - np.trace(parts)) / np.trace(parts)

    assert overlap(held) < 0.7 * overlap(free)
    assert held.reconstruction_err_ > free.reconstruction_err_


@pytest.mark.parametrize("clients", [1, 2])
@pytest.mark.parametrize("seed", [2, 3, 4])
def test_orthogonality_ends_near_one_component_for_each_row(seed, clients):
    """Where every row uses one component nothing is paid: clusters of directions, from the rows themselves."""
    draw = np.random.default_rng(seed)
    X = draw.gamma(0.6, size=(120, 4)) @ draw.gamma(0.4, size=(4, 30)) + 0.02

    def cost(W, H, weight):
        parts = W.T @ W * (H @ H.T)
        return 0.5 * np.sum((X - W @ H) ** 2) + 0.5 * weight * (parts.sum() - np.trace(parts))

    H = normalize(X[draw.choice(120, 4, replace=False)])
    for _ in range(30):
        best = (X @ H.T).argmax(axis=1)
        rows = [X[best == c] for c in range(4)]
        main = [np.abs(np.linalg.svd(r, full_matrices=False)[2][0]) if len(r) else None for r in rows]
        H = np.array([h if new is None else new for h, new in zip(H, main, strict=True)])
    W = X @ H.T * (np.arange(4) == best[:, None])
    for weight in (1.0, 10.0):
        found = FederatedNMF(4, orthogonality=weight, random_state=0).fit(np.split(X, clients))
        assert cost(np.vstack(found.codes_), found.components_, weight) < 1.2 * cost(W, H, weight)
        assert found.empty_components_ == []


@pytest.mark.parametrize("method", ["mu", "dsanls"])
def test_iterations_that_were_too_few_are_told(method):
    X = dense(60, 20, seed=3)
    with pytest.warns(ConvergenceWarning, match=r"own plan \(21 rounds\) were not enough to reach tol=0.0001"):
        found = FederatedNMF(4, method=method, random_state=0, rounds=10).fit(X)
    assert "before its loss had settled" in found.ended_
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        FederatedNMF(4, method=method, random_state=0, rounds=10, tol=0).fit(X)
        FederatedNMF(2, method="hals", random_state=0, rounds=400).fit(X)


@pytest.mark.parametrize("beta", [-1, -0.5, 0])
def test_zeros_have_no_such_divergence(beta):
    X = dense()
    X[0, 0] = 0
    with pytest.raises(CofactorError, match="expected cells above 0"):
        model(beta_loss=beta).fit(X)


@pytest.mark.parametrize("beta", BETAS)
def test_a_divergence_is_that_of_scikit_learn(beta):
    X, W, H = dense() + 0.1, dense(30, 4, seed=2) + 0.1, dense(4, 10, seed=3)
    assert divergence(X, W @ H, beta) == pytest.approx(_beta_divergence(X, W, H, beta), rel=1e-9)


@pytest.mark.parametrize("beta", [0.5, 1, 1.5, 2, 3])
def test_sparse_counts_are_dense_counts(beta):
    X = np.random.default_rng(0).poisson(0.5, size=(30, 12)).astype(float)
    X[:, 0] += 1
    a, b = (model("exact-beta", beta_loss=beta, rounds=20, tol=0).fit(Z) for Z in (X, sparse.csr_matrix(X)))
    np.testing.assert_allclose(a.components_, b.components_, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("beta", [0.0, 1.0, 2.0])
def test_divergences_near_each_other_have_factors_near_each_other(beta):
    X = dense() + 0.1
    a, b = (
        model("exact-beta", options={"beta": b, "momentum": False}, rounds=20, tol=0).fit(X)
        for b in (beta, beta + 1e-5)
    )
    np.testing.assert_allclose(a.components_, b.components_, atol=1e-3)


def test_no_underflow():
    X = np.array([[1e-30, 1e-30], [1e-30, 1.0], [1.0, 2.0]])
    fitted = model("exact", 1).fit(X)
    assert np.isfinite(fitted.components_).all()
    assert np.isfinite(fitted.codes_[0]).all()


@pytest.mark.parametrize("method", SUMMED)
def test_a_custom_start_is_where_a_fit_begins(method):
    X = low_rank()
    before = model(method, rounds=500, tol=0).fit(X).components_
    fitted = model(method, init="custom", rounds=1 if method == "exact" else 30, tol=0).fit(X, H=before)
    assert np.einsum("km,km->k", fitted.components_, before).min() > 0.99


def test_codes_alone_are_a_start():
    X = low_rank()
    before = model(rounds=500, tol=0).fit(X)
    fitted = model(init="custom", rounds=1, tol=0).fit(X, W=before.codes_[0])
    assert fitted.reconstruction_err_ <= 1.05 * before.reconstruction_err_ + 1e-3
    many = model(init="custom", rounds=1, tol=0).fit([X[:15], X[15:]], W=[before.codes_[0][:15], before.codes_[0][15:]])
    np.testing.assert_allclose(many.components_, fitted.components_, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "expected H .* or W to begin at"),
        ({"H": -np.ones((4, 12))}, "H: expected a factor"),
        ({"H": np.ones((3, 12))}, "expected"),
        ({"H": np.ones((4, 11))}, "expected"),
        ({"W": np.ones((39, 4))}, "W: expected one entry for each row"),
        ({"W": -np.ones((40, 4))}, "W: expected codes"),
    ],
)
def test_bad_custom_starts(given, words):
    with pytest.raises(CofactorError, match=words):
        model(init="custom").fit(low_rank(), **given)


@pytest.mark.parametrize("method", METHODS)
def test_what_a_fit_knows_of_itself(method):
    fitted = model(method, rounds=7, tol=0).fit(dense())
    assert fitted.n_components_ == 4 == len(fitted.get_feature_names_out())
    assert fitted.n_iter_ == len(fitted.history_) >= 1
    assert fitted.n_features_in_ == 10
    with pytest.raises(ValueError, match="features"):
        fitted.transform(dense(5, 9))


def test_default_rank():
    assert FederatedNMF(random_state=0).fit(dense(8, 6)).n_components_ == 6


def test_verbose_prints_rounds(capsys):
    model(verbose=1, rounds=3, tol=0).fit(dense())
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[-1].startswith("round 3, loss ")


@pytest.mark.parametrize("order", ["drawn", "sorted"])
def test_chunks_in_any_order_come_near_the_whole(order):
    X = low_rank(240, 20, 4, seed=7) + 0.5 * dense(240, 20)
    rows = np.argsort(X[:, 0]) if order == "sorted" else np.random.default_rng(0).permutation(240)
    whole = model(rounds=None).fit(X)
    grown = model(rounds=None)
    for chunk in np.array_split(X[rows], 6):
        grown.partial_fit(chunk)
    missed = [1 - fitted.score(X) for fitted in (grown, whole)]
    assert np.sqrt(missed[0]) <= 1.03 * np.sqrt(missed[1])
    assert grown.codes_[0].shape == (40, 4)


@pytest.mark.parametrize("seed", [0, 4])
def test_new_rows_that_are_nearly_clean_bring_the_factor_near_that_of_all_rows(seed):
    draw = np.random.default_rng(seed)
    X = draw.gamma(0.6, size=(160, 4)) @ draw.gamma(0.4, size=(4, 40)) + 0.05 * draw.random((160, 40))

    def missed(fitted):
        return np.sqrt(1 - fitted.score(X))

    whole, first = (FederatedNMF(4, random_state=0).fit(rows) for rows in (X, X[:40]))
    before = missed(first)
    for part in (X[40:100], X[100:]):
        first.partial_fit(part)
    assert missed(first) < min(before, 1.02 * missed(whole))


def test_new_rows_after_a_fit():
    X = low_rank(120, 12, 3, seed=8)
    fitted = model(k=3).fit(X[:60])
    fitted.partial_fit([X[60:90], X[90:]])
    assert fitted.score(X) > 0.99
    with pytest.raises(CofactorError, match="partial_fit: expected plain least squares"):
        model(beta_loss=1).partial_fit(X)


@pytest.mark.parametrize("method", ["exact-beta", "exact-gaps", "shared-own"])
def test_new_rows_are_refused_for_what_summaries_do_not_hold(method):
    X = low_rank(30, 8, 3, seed=8)
    X[3, 2] = np.nan if method == "exact-gaps" else 0
    refused = pytest.raises(
        CofactorError, match=f"partial_fit: expected plain least squares over whole rows, .*{method}"
    )
    for first in (False, True):
        grown = model(k=3, method=method, rounds=2, tol=0)
        if first:
            grown.fit(X)
        with refused:
            grown.partial_fit(X)
    with pytest.raises(CofactorError, match="partial_fit: expected plain least squares"):
        model(options={"codes_penalty": (0.1, 0)}).partial_fit(np.nan_to_num(X))


@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler", 1.5])
def test_a_weight_is_a_row_that_is_there_more_often(loss):
    X = low_rank(20, 8, 3, seed=4) + 0.1
    times = np.random.default_rng(0).integers(1, 4, size=20)
    H = np.random.default_rng(1).uniform(size=(3, 8))
    how = {"k": 3, "init": "custom", "beta_loss": loss, "rounds": 30, "tol": 0}
    a = model(**how).fit(X, H=H, sample_weight=times)
    b = model(**how).fit(np.repeat(X, times, axis=0), H=H)
    np.testing.assert_allclose(a.components_, b.components_, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(np.repeat(a.codes_[0], times, axis=0), b.codes_[0], rtol=1e-4, atol=1e-6)
    cut = [model(**how).fit([X[:7], X[7:]], H=H, sample_weight=w) for w in (times, [times[:7], times[7:]])]
    np.testing.assert_array_equal(cut[0].components_, cut[1].components_)
    with pytest.raises(CofactorError, match=r"\[7, 13\] of the clients\), found \[3\]"):
        model(**how).fit([X[:7], X[7:]], H=H, sample_weight=times[:3])


@pytest.mark.parametrize(
    ("weight", "words"),
    [
        (np.ones(3), "one entry for each row"),
        (-np.ones(30), "finite number >= 0"),
        (np.zeros(30), "not zero, found none"),
    ],
)
def test_bad_weights(weight, words):
    with pytest.raises(CofactorError, match=words):
        model().fit(dense(), sample_weight=weight)
