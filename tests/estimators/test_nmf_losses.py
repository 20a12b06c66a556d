"""Losses, penalties, starts and own parts of FederatedNMF: as scikit-learn spells and computes them."""

import numpy as np
import pytest
from sklearn.decomposition import NMF

from cofactor import FederatedNMF, Privacy
from cofactor.local.divergence import divergence
from cofactor.privacy.errors import PrivacyError
from cofactor.types import CofactorError


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


def test_own_parts(counts):
    model = FederatedNMF(4, method="shared-own", random_state=0).fit(counts)
    assert [V.shape for V in model.own_components_] == [(4, 20)] * 3
    parts = zip(counts, model.codes_, model.own_components_, strict=True)
    rest = sum(np.linalg.norm(X - W @ (model.components_ + V)) ** 2 for X, W, V in parts)
    assert model.reconstruction_err_ == pytest.approx(np.sqrt(rest / sum(np.linalg.norm(X) ** 2 for X in counts)))
    assert FederatedNMF(4, random_state=0).fit(counts).own_components_ is None


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
