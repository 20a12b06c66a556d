"""Generators plant what they promise."""

import numpy as np
import pytest

from cofactor.data import synthetic
from cofactor.types import CofactorError

NOISES = ["gaussian", "exponential", "binomial", None]


@pytest.mark.parametrize("noise", NOISES)
def test_blocks_have_the_promised_shapes_and_signs(noise):
    data = synthetic.blocks(3, 20, features=30, rank=4, noise=noise)
    assert data.factor.shape == (4, 30)
    assert [X.shape for X in data.Xs] == [(20, 30)] * 3
    assert [W.shape for W in data.codes] == [(20, 4)] * 3
    assert all(X.dtype == np.float64 and (X >= 0).all() for X in data.Xs)


def test_blocks_without_noise_are_the_product():
    data = synthetic.blocks(2, [5, 9], features=20, rank=3, noise=None)
    for X, W in zip(data.Xs, data.codes):
        np.testing.assert_array_equal(X, W @ data.factor)
    assert [len(X) for X in data.Xs] == [5, 9]


@pytest.mark.parametrize("patterns", [1, 3, 5])
def test_clients_see_only_their_patterns_and_all_are_seen(patterns):
    data = synthetic.blocks(patterns=patterns)
    seen = np.array([W.any(axis=0) for W in data.codes])
    assert (seen.sum(axis=1) == patterns).all()
    assert seen.any(axis=0).all()


def test_all_patterns_are_everywhere_by_default():
    assert all(W.any(axis=0).all() for W in synthetic.blocks().codes)


def test_blocks_are_sparse_positive():
    data = synthetic.blocks()
    used = np.vstack(data.codes) > 0
    assert set(used.sum(axis=1)) == {1, 2, 3}
    widths = (data.factor > 0).sum(axis=1)
    assert widths.min() >= 10
    assert widths.max() <= 20
    assert data.factor[data.factor > 0].min() >= 0.5


def test_noise_has_the_promised_scale():
    clean = synthetic.blocks(noise=None)
    signal = np.vstack(clean.Xs) > 1  # where truncation at zero does not reach
    for noise, mean in {"gaussian": 0.0, "exponential": 0.1, "binomial": 0.1}.items():
        added = (np.vstack(synthetic.blocks(noise=noise).Xs) - np.vstack(clean.Xs))[signal]
        assert added.mean() == pytest.approx(mean, abs=0.005)
        assert added.std() == pytest.approx(0.1, rel=0.1)


def test_a_client_does_not_depend_on_how_many_there_are():
    few, many = synthetic.blocks(2, 10, patterns=3), synthetic.blocks(5, 10, patterns=3)
    np.testing.assert_array_equal(few.Xs[1], many.Xs[1])
    assert not np.array_equal(many.Xs[0], many.Xs[1])


GENERATORS = {
    "blocks": lambda seed: synthetic.blocks(2, 10, seed=seed).Xs[0],
    "tiles": lambda seed: synthetic.tiles(50, 20, 3, seed=seed).X,
    "lowrank": lambda seed: synthetic.lowrank(10, 8, 2, seed=seed).X,
}


@pytest.mark.parametrize("name", GENERATORS)
def test_same_seed_same_data(name):
    draw = GENERATORS[name]
    np.testing.assert_array_equal(draw(5), draw(5))
    assert not np.array_equal(draw(5), draw(6))


def test_the_global_random_state_is_left_alone():
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    synthetic.tiles(20, 10, 2)
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def test_tiles_have_the_promised_sizes_and_density():
    data = synthetic.tiles(2000, 200, 10, noise=0.0)
    height, width = data.codes.sum(axis=0), data.factor.sum(axis=1)
    assert height.min() >= 100
    assert height.max() <= 400
    assert width.min() >= 10
    assert width.max() <= 30
    union = data.codes.astype(int) @ data.factor > 0
    assert not data.X[~union].any()
    assert data.X[union].mean() == pytest.approx(0.9, abs=0.01)
    assert data.X.dtype == data.codes.dtype == data.factor.dtype == np.uint8


@pytest.mark.parametrize(("noise", "loss"), [(0.0, 0.111), (0.05, 0.454), (0.1, 0.631), (0.2, 0.813)])
def test_planted_tiles_are_near_the_known_boolean_loss(noise, loss):
    losses = []
    for seed in range(6):
        data = synthetic.tiles(1000, 200, 10, noise=noise, seed=seed)
        union = data.codes.astype(int) @ data.factor > 0
        losses.append(np.not_equal(data.X, union).sum() / data.X.sum())
    assert np.median(losses) == pytest.approx(loss, abs=0.06)


def test_tiles_flip_cells_at_the_noise_rate():
    data = synthetic.tiles(500, 200, 5, density=1.0, noise=0.1)
    union = data.codes.astype(int) @ data.factor > 0
    flipped = np.not_equal(data.X, union)
    assert flipped[union].mean() == pytest.approx(0.1, abs=0.02)
    assert flipped[~union].mean() == pytest.approx(0.1, abs=0.01)


def test_lowrank_is_its_product_up_to_noise():
    data = synthetic.lowrank(100, 60, 5, sparsity=0.7, noise=0.0)
    np.testing.assert_allclose(data.X, data.codes @ data.factor)
    assert (data.factor == 0).mean() == pytest.approx(0.7, abs=0.1)
    noisy = synthetic.lowrank(100, 60, 5, sparsity=0.0, noise=0.05)
    assert (noisy.X >= 0).all()
    assert np.std(noisy.X - noisy.codes @ noisy.factor) == pytest.approx(0.05, rel=0.1)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: synthetic.blocks(noise="pink"), "None or one of .*gaussian.* Found 'pink'"),
        (lambda: synthetic.blocks(patterns=11), r"patterns must be in \[1, 10\].* Found 11"),
        (lambda: synthetic.blocks(rank=0), r"rank must be in \[1, 100\].* Found 0"),
        (lambda: synthetic.blocks(3, [5, 6]), "one number, or one per client .3.* Found 2"),
        (lambda: synthetic.tiles(5, 5, 1, noise=1.5), r"noise must be in \[0.0, 1.0\].* Found 1.5"),
        (lambda: synthetic.tiles(5, 5, 1, height=(0.5, 0.2)), "lower bound first. Found 0.5, 0.2"),
        (lambda: synthetic.lowrank(5, 5, 1, sparsity=float("nan")), "sparsity .* Found nan"),
    ],
)
def test_errors_say_what_was_expected_and_found(call, text):
    with pytest.raises(CofactorError, match=text):
        call()
