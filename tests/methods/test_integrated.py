"""Shared and own programs: a batch effect goes to the client's own part, and only sums leave."""

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from tests.helpers.methods import play

from cofactor import FederatedNMF
from cofactor.engines.loop import run
from cofactor.local import apart, arrays
from cofactor.local.stats import gain, normalize
from cofactor.methods import catalog
from cofactor.methods.integrated import Integrated
from cofactor.types import CofactorError, Stats


def shifted(seed, shift, k=6, m=100, rows=120):
    """Four clients whose programs are shifted by a pattern of their own."""
    draw = np.random.default_rng(seed)
    programs = normalize(draw.gamma(0.3, size=(k, m)))
    Xs = []
    for _ in range(4):
        own = normalize(draw.gamma(0.3, size=(k, m)))
        X = draw.gamma(0.5, size=(rows, k)) @ (programs + shift * own)
        Xs.append(np.maximum(X + 0.02 * draw.normal(size=X.shape), 0))
    return programs, Xs


def worst(H, programs):
    cosines = normalize(programs) @ normalize(H).T
    return cosines[linear_sum_assignment(-cosines)].min()


@pytest.mark.parametrize("seed", [0, 2, 3])
def test_a_batch_effect_goes_to_the_own_part(seed):
    """At least half of what the worst program lacks to cosine 1 is closed."""
    programs, Xs = shifted(seed, 0.8)
    plain = worst(run(catalog.make("exact", 6), Xs, rounds=60, seed=seed).factor, programs)
    found = worst(run(catalog.make("shared-own", 6), Xs, rounds=60, seed=seed).factor, programs)
    assert 1 - found <= (1 - plain) / 2


def test_without_one_nothing_is_taken_from_the_shared_factor():
    programs, Xs = shifted(1, 0.0)
    outcome = run(catalog.make("shared-own", 6), Xs, rounds=60, seed=1)
    assert worst(outcome.factor, programs) > 0.99
    for X, W in zip(Xs, outcome.codes, strict=True):
        V = apart.own_part(X, W, outcome.factor, 0.1)
        assert np.linalg.norm(W @ V) < 0.1 * np.linalg.norm(X)


def objective(Xs, states, H, weight):
    parts = zip(Xs, states, strict=True)
    return sum(
        0.5 * np.linalg.norm(X - s.codes @ (H + s.memory["own"])) ** 2
        + 0.5 * weight * np.linalg.norm(s.codes @ s.memory["own"]) ** 2
        for X, s in parts
    )


def test_the_loss_is_the_objective_and_falls():
    _, Xs = shifted(0, 0.5, rows=30)
    method, losses = Integrated(6, 0.3), []
    for played in play(method, Xs, 15):
        losses.append(played.shared.loss)
        H = played.shared.memory["factor"]
        assert losses[-1] == pytest.approx(objective(Xs, played.states, H, 0.3), rel=1e-9)
    assert (np.diff(losses) <= 1e-9 * losses[0]).all()


def test_a_large_weight_is_exact():
    _, Xs = shifted(0, 0.5, rows=30)
    free = run(catalog.make("exact", 6, start="random", momentum=0.0), Xs, rounds=200, seed=3, stop=0.0).factor
    held = run(catalog.make("shared-own", 6, weight=1e9, start="random"), Xs, rounds=200, seed=3, stop=0.0).factor
    assert worst(held, free) > 0.999


def test_statistics_of_the_own_part():
    """The three half-problems are least squares of the same objective."""
    _, (X, *_) = shifted(0, 0.5, rows=30)
    draw = np.random.default_rng(1)
    W, H, V = draw.random((30, 6)), draw.random((6, 100)), draw.random((6, 100))
    gram, cross, weight = W.T @ W, arrays.times_codes(X, W).T, 0.4
    value = np.linalg.norm(X - W @ (H + V)) ** 2 + weight * np.linalg.norm(W @ V) ** 2
    half = apart.for_shared(gram, cross, V, weight, arrays.square(X))
    for stats, F, rest in (
        (apart.for_codes(X, H, V, weight), W, arrays.square(X)),
        (apart.for_own(gram, cross, H, weight), V.T, np.linalg.norm(X - W @ H) ** 2),
        (Stats(half.gram, half.cross.T), H.T, half.square),
    ):
        assert rest + 2 * gain(stats, F) == pytest.approx(value)


def test_absent_clients():
    programs, Xs = shifted(0, 0.8)
    found = run(catalog.make("shared-own", 6), Xs, rounds=200, seed=0, participation=0.5)
    assert worst(found.factor, programs) > 0.95


@pytest.mark.parametrize("options", [{"weight": 0.0}, {"weight": float("nan")}, {"start": "nowhere"}])
def test_bad_options(options):
    with pytest.raises(CofactorError, match=r"weight|start"):
        catalog.make("shared-own", 3, **options)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("seed", [3, 7, 9])
def test_stored_codes_are_those_of_the_client(seed, dtype):
    """Codes and own part belong to each other after any number of rounds, also where few cells make turns creep."""
    draw, k = np.random.default_rng(seed), 1 + seed % 4
    H = draw.gamma(0.5, size=(k, 14))
    Xs = [draw.gamma(0.5, size=(n, k)) @ (H + 0.5 * draw.gamma(0.3, size=H.shape)) for n in (7, 11, 17)]
    Xs = [((X + 0.1 * draw.random(X.shape)) * (draw.random(X.shape) < 0.3)).astype(dtype) for X in Xs]
    model = FederatedNMF(k, method="shared-own", rounds=2, tol=0, random_state=seed).fit(Xs)
    for j, (X, W) in enumerate(zip(Xs, model.codes_, strict=True)):
        assert np.abs(model.transform(X, client=j) - W).max() <= 1e-3 * W.max()
        np.testing.assert_array_equal(model.transform(X), W)
