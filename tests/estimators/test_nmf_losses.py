"""Losses, penalties, starts and own parts of FederatedNMF: as scikit-learn spells and computes them."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.decomposition import NMF

from cofactor import FederatedKMeans, FederatedNMF, Privacy
from cofactor.local.divergence import divergence
from cofactor.privacy.errors import PrivacyError
from cofactor.types import CofactorError, DataError


@pytest.fixture
def counts():
    draw = np.random.default_rng(0)
    H = draw.gamma(0.4, size=(4, 20))
    return [draw.poisson(draw.gamma(0.5, size=(n, 4)) @ H * 4).astype(float) for n in (30, 25, 22)]


def fitted(Xs, **options):
    return FederatedNMF(4, random_state=0, rounds=300, tol=0, **options).fit(Xs)


def distance(Xs, model, beta):
    return sum(divergence(X, np.maximum(W @ model.components_, 1e-30), beta) for X, W in zip(Xs, model.codes_))


@pytest.mark.parametrize("loss", ["kullback-leibler", 1, 1.5])
def test_a_loss_is_as_low_as_that_of_scikit_learn(counts, loss):
    beta = 1.0 if loss == "kullback-leibler" else float(loss)
    reference = NMF(4, solver="mu", beta_loss=loss, max_iter=500, tol=0, init="nndsvda").fit(np.vstack(counts))
    model = fitted(counts, beta_loss=loss)
    assert distance(counts, model, beta) <= 1.005 * reference.reconstruction_err_**2 / 2
    other = fitted(counts)
    assert distance(counts, model, beta) < distance(counts, other, beta)


def test_transform_finds_codes_of_the_loss(counts):
    model = fitted(counts, beta_loss="kullback-leibler")
    for W, V in zip(model.transform(counts), model.codes_, strict=True):
        np.testing.assert_array_equal(W, V)


@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_penalties_are_those_of_scikit_learn(counts, ratio):
    X = np.vstack(counts)
    penalties = {"alpha_W": 0.02, "alpha_H": 0.01, "l1_ratio": ratio}
    reference = NMF(4, solver="mu", max_iter=3000, tol=0, init="random", random_state=0, **penalties)
    W = reference.fit_transform(X)
    model = FederatedNMF(4, random_state=0, rounds=1500, tol=0, **penalties).fit(counts)

    def objective(W, H):
        norms = [ratio * np.abs(F).sum() + (1 - ratio) * 0.5 * np.sum(F**2) for F in (W, H)]
        return 0.5 * np.sum((X - W @ H) ** 2) + X.shape[1] * 0.02 * norms[0] + X.shape[0] * 0.01 * norms[1]

    ours, theirs = objective(np.vstack(model.codes_), model.components_), objective(W, reference.components_)
    assert ours <= 1.01 * theirs
    free = FederatedNMF(4, random_state=0).fit(counts)
    assert (
        np.vstack(model.codes_).sum() * model.components_.sum() < np.vstack(free.codes_).sum() * free.components_.sum()
    )


def test_a_given_factor_is_where_the_fit_begins(counts):
    before = fitted(counts).components_
    model = FederatedNMF(4, random_state=1, rounds=1, tol=0).fit(counts, H=before)
    assert np.einsum("km,km->k", model.components_, before).min() > 0.999


def test_rank_by_itself(counts):
    assert FederatedNMF("auto", random_state=0).fit(counts).n_components_ >= 2
    with pytest.raises(PrivacyError, match="n_components='auto' is refused"):
        FederatedNMF("auto", privacy=Privacy(1, 1e-3)).fit(counts)


def test_a_rank_scan_is_refused_where_it_would_show_or_cannot_read(counts):
    with pytest.raises(PrivacyError, match=r"'auto' is refused with secure sums: .* needs each client's summary"):
        FederatedNMF("auto", secure=True).fit("no data are read")
    with pytest.raises(CofactorError, match=r"'auto': expected a method without gaps, found 'exact-gaps'.*number"):
        FederatedNMF("auto", method="exact-gaps").fit("no data are read")
    frames = [pd.DataFrame(X[:, j : j + 15], columns=[f"g{i}" for i in range(j, j + 15)]) for j, X in enumerate(counts)]
    with pytest.raises(CofactorError, match=r"'auto': expected the same features .* features='intersection'"):
        FederatedNMF("auto", features="union").fit(frames)
    assert FederatedNMF("auto", features="intersection", random_state=0).fit(frames).n_components_ >= 2


def test_own_parts(counts):
    model = FederatedNMF(4, method="shared-own", random_state=0).fit(counts)
    assert [V.shape for V in model.own_components_] == [(4, 20)] * 3
    parts = zip(counts, model.codes_, model.own_components_, strict=True)
    rest = sum(np.linalg.norm(X - W @ (model.components_ + V)) ** 2 for X, W, V in parts)
    assert model.reconstruction_err_ == pytest.approx(np.sqrt(rest / sum(np.linalg.norm(X) ** 2 for X in counts)))
    assert FederatedNMF(4, random_state=0).fit(counts).own_components_ is None
    of_client = model.transform(counts[1], client=1)
    np.testing.assert_allclose(of_client, model.codes_[1], atol=2e-2 * of_client.max())
    alone = np.vstack([model.transform(row[None], client=1) for row in counts[1][:5]])
    np.testing.assert_allclose(alone, of_client[:5], atol=1e-4 * of_client.max())  # one row is enough
    with pytest.raises(CofactorError, match="unknown client 7"):
        model.transform(counts[1], client=7)
    with pytest.raises(CofactorError, match="client: expected one matrix of that client's rows"):
        model.transform(counts, client=1)
    with pytest.raises(CofactorError, match="client: expected a fit of method='shared-own'"):
        FederatedNMF(4, random_state=0).fit(counts).transform(counts[0], client=0)


def test_transform_takes_weights_of_cells(counts):
    weights = [np.random.default_rng(j).integers(0, 3, X.shape).astype(float) for j, X in enumerate(counts)]
    model = FederatedNMF(3, random_state=0, rounds=20, tol=0).fit(counts, cell_weight=weights)
    for found, W in zip(model.transform(counts, cell_weight=weights), model.codes_, strict=True):
        np.testing.assert_allclose(found, W)
    np.testing.assert_allclose(model.transform(counts[1], cell_weight=weights[1]), model.codes_[1])
    with pytest.raises(CofactorError, match="cell_weight: expected one finite number >= 0 for each cell"):
        model.transform(counts[1], cell_weight=weights[0][:2])
    with pytest.raises(CofactorError, match="cell_weight: expected a fit with cell_weight"):
        FederatedNMF(3, random_state=0).fit(counts).transform(counts[1], cell_weight=weights[1])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"beta_loss": "kullback"}, "Did you mean 'kullback-leibler'"),
        ({"beta_loss": None}, "beta_loss: expected one of"),
        ({"alpha_W": -1}, "alpha_W: expected a number >= 0"),
        ({"l1_ratio": 2}, "l1_ratio: expected a number from 0 to 1"),
        ({"beta_loss": 1, "method": "fedavg"}, "expected method='exact' to go with them, found 'fedavg'"),
        ({"beta_loss": "itakura-saito"}, "expected cells above 0 for a divergence of beta = 0, found zeros"),
    ],
)
def test_bad_options(counts, options, words):
    with pytest.raises(CofactorError, match=words):
        FederatedNMF(4, random_state=0, **options).fit(counts)


def test_a_bad_start(counts):
    with pytest.raises(CofactorError, match=r"H: expected a factor \(k x m\) of finite numbers >= 0"):
        FederatedNMF(4).fit(counts, H=-np.ones((4, 20)))


def test_gaps(counts):
    Xs = [X.copy() for X in counts]
    Xs[0][3, 2] = Xs[2][0, 0] = np.nan
    with pytest.raises(CofactorError, match=r"NaN.*exact-gaps"):
        FederatedNMF(4).fit(Xs)
    model = FederatedNMF(4, method="exact-gaps", random_state=0).fit(Xs)
    assert model.reconstruction_err_ < 1
    assert np.isfinite(model.transform(Xs[0])).all()
    assert 0 < model.score(Xs) < 1


def _named(X):
    return pd.DataFrame(X, columns=[f"g{i}" for i in range(X.shape[1])])


def test_markers_of_rows_with_gaps(counts):
    """Cells that were not observed are those of the model, so that few gaps change little."""
    Xs = [X.copy() for X in counts]
    Xs[0][3, 2] = Xs[2][0, 0] = np.nan
    found, whole = (
        FederatedNMF(4, method="exact-gaps", rounds=40, tol=0, random_state=0).fit([_named(X) for X in data])
        for data in (Xs, counts)
    )
    assert np.isfinite(found.marker_scores_).all()
    np.testing.assert_allclose(found.marker_scores_, whole.marker_scores_, atol=0.1)


BETAS = ["frobenius", "kullback-leibler", 1.5]


@pytest.mark.parametrize("beta_loss", BETAS)
def test_weights_of_0_and_1_are_a_mask(counts, beta_loss):
    rng = np.random.default_rng(3)
    seen = [(rng.random(X.shape) < 0.8).astype(float) for X in counts]
    masked = [np.where(w > 0, X, np.nan) for X, w in zip(counts, seen, strict=True)]
    how = {"beta_loss": beta_loss, "rounds": 30, "tol": 0, "random_state": 0}
    a = FederatedNMF(4, **how).fit(counts, cell_weight=seen)
    b = FederatedNMF(4, method="exact-gaps", **how).fit(masked)
    np.testing.assert_allclose(a.components_, b.components_, atol=1e-12)
    np.testing.assert_allclose(a.codes_[1], b.codes_[1], atol=1e-10)
    assert a.reconstruction_err_ == pytest.approx(b.reconstruction_err_, rel=1e-12)


@pytest.mark.parametrize("beta_loss", BETAS)
def test_whole_weights_of_cells_are_repeated_rows(counts, beta_loss):
    """A row whose cells all count w times is w rows."""
    times = [np.arange(len(X)) % 3 + 1 for X in counts]
    each = [np.repeat(w[:, None], X.shape[1], axis=1) for X, w in zip(counts, times, strict=True)]
    again = [np.repeat(X, w, axis=0) for X, w in zip(counts, times, strict=True)]
    how = {"beta_loss": beta_loss, "method": "exact-gaps", "rounds": 30, "tol": 0, "random_state": 0}
    a, b = FederatedNMF(4, **how).fit(counts, cell_weight=each), FederatedNMF(4, **how).fit(again)
    np.testing.assert_allclose(a.components_, b.components_, atol=1e-10)
    np.testing.assert_allclose(np.repeat(a.codes_[0], times[0], axis=0), b.codes_[0], atol=1e-8)
    assert a.reconstruction_err_ == pytest.approx(b.reconstruction_err_, rel=1e-10)


@pytest.mark.parametrize("more", [{}, {"secure": True}, {"alpha_W": 0.01}])
def test_weights_of_cells_are_federated_by_sums(counts, more):
    """Clients, tiny ones too, are one matrix; what counts more is fitted better; rows may have weights besides."""
    rng = np.random.default_rng(5)
    weight = [rng.gamma(0.5, 2.0, X.shape) for X in counts]
    rows = [rng.random(len(X)) for X in counts]
    groups = np.repeat(np.arange(len(counts)), [len(X) for X in counts])
    how = {"rounds": 40, "tol": 0, "random_state": 0}
    parts = FederatedNMF(4, **how, **more).fit(counts, cell_weight=weight, sample_weight=rows)
    X, w, s = np.vstack(counts), np.vstack(weight), np.concatenate(rows)
    grouped = FederatedNMF(4, **how, **more).fit(X, groups=groups, cell_weight=w, sample_weight=s)
    whole = FederatedNMF(4, **how, **{k: v for k, v in more.items() if k != "secure"}).fit(
        X, cell_weight=sparse.csr_matrix(w * s[:, None])
    )
    tol = 1e-6 if "secure" in more else 1e-9
    np.testing.assert_allclose(parts.components_, whole.components_, atol=tol)
    np.testing.assert_allclose(grouped.components_, whole.components_, atol=tol)
    if not more:
        plain = FederatedNMF(4, method="exact-gaps", **how).fit(X)
        error = [
            np.sum(w * s[:, None] * (X - W @ m.components_) ** 2)
            for m, W in ((whole, whole.codes_[0]), (plain, plain.codes_[0]))
        ]
        assert error[0] < error[1]


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        (lambda w: [a[:, :3] for a in w], {}, "cell_weight: expected one finite number >= 0 for each cell"),
        (lambda w: [-a for a in w], {}, "values that are none"),
        (lambda w: [0 * a for a in w], {}, "a weight that is not zero"),
        (lambda w: w[:2], {}, "cell_weight: expected one entry for each row"),
        (lambda w: w, {"method": "fedavg"}, "cell_weight: expected method='exact'"),
        (lambda w: w, {"orthogonality": 1.0}, "no orthogonality"),
        (lambda w: w, {"privacy": Privacy(1.0, 1e-6)}, "cell_weight is refused"),
    ],
)
def test_bad_weights_of_cells(counts, change, options, words):
    weight = change([np.ones(X.shape) for X in counts])
    with pytest.raises(CofactorError, match=words):
        FederatedNMF(4, **options).fit(counts, cell_weight=weight)


def test_weights_of_cells_do_not_go_with_columns_that_move(counts):
    frames = [_named(counts[0]), _named(counts[1])[[f"g{i}" for i in range(counts[1].shape[1])][::-1]]]
    with pytest.raises(CofactorError, match="same features in the same order"):
        FederatedNMF(4).fit(frames, cell_weight=[np.ones(f.shape) for f in frames])


@pytest.mark.parametrize("options", [{"alpha_W": 100}, {"alpha_W": 1, "alpha_H": 0}])
def test_a_penalty_that_leaves_nothing_is_named(counts, options):
    with pytest.warns(UserWarning, match="the penalty leaves nothing: .* lower alpha_W"):
        model = FederatedNMF(3, l1_ratio=1, random_state=0, **options).fit([X / 10 for X in counts])
    assert model.reconstruction_err_ == 1


@pytest.mark.parametrize("model", [FederatedNMF(2, random_state=0), FederatedKMeans(2, random_state=0)])
def test_data_of_zeros_are_named(model):
    with pytest.warns(UserWarning, match="the data hold nothing but zeros"):
        model.fit([np.zeros((8, 5)), np.zeros((6, 5))])


def test_a_private_fit_says_nothing_of_zeros():
    model = FederatedNMF(2, privacy=Privacy(1, 1e-3), random_state=0)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model.fit([np.zeros((30, 5)), np.zeros((30, 5))])
    assert not any("zeros" in str(line.message) or "leaves nothing" in str(line.message) for line in said)


def test_features_that_nobody_observed_are_named_and_zero(counts):
    frames = [_named(np.where(np.arange(20) == 7, np.nan, X)) for X in counts]
    model = FederatedNMF(3, method="exact-gaps", random_state=0, rounds=30)
    with pytest.warns(UserWarning, match="features that nobody observed, but for rows of zeros: g7; .* has 0 there"):
        model.fit(frames)
    assert not model.components_[:, 7].any()
    assert model.components_[:, [6, 8]].any(axis=0).all()
    with pytest.warns(UserWarning, match="features that nobody observed, but for rows of zeros: 7;"):
        model.set_params(participation=0.5).fit([frame.to_numpy() for frame in frames])
    assert not model.components_[:, 7].any()


def test_cells_that_nobody_observed_are_refused(counts):
    model, gap = FederatedNMF(3, method="exact-gaps", random_state=0, rounds=5), np.full((6, 20), np.nan)
    with pytest.raises(DataError, match="expected cells that were observed, found none"):
        model.fit([gap, gap])
    with pytest.warns(UserWarning, match="clients without an observed cell: 1; their codes are 0"):
        model.fit([counts[0], gap])
    assert not model.codes_[1].any()
