"""Which rank is suggested, and why: planted ranks, noise, and the rule on made-up curves."""

import numpy as np
import pytest

from cofactor.data import datasets, partition, synthetic
from cofactor.select import select_rank
from cofactor.select.suggest import STABLE, Curves, choose, paired_error


@pytest.mark.parametrize("patterns", [None, 3])
def test_planted_rank_is_found(patterns):
    found = []
    for seed in (0, 1):
        Xs = synthetic.blocks(5, 60, features=40, rank=6, patterns=patterns, seed=seed).Xs
        found.append(select_rank(Xs, range(4, 9), seeds=2, restarts=3, seed=seed).suggestion)
    assert found == [6, 6]


@pytest.mark.parametrize("planted", [4, 6, 7])
def test_planted_rank_is_found_by_one_client(planted):
    """Also between the ranks of the ladder (3, 5, 8), and no rank above it is much worse."""
    for seed in (0, 1):
        draw = np.random.default_rng(seed)
        X = draw.gamma(0.6, size=(160, planted)) @ draw.gamma(0.4, size=(planted, 40))
        scan = select_rank([X + 0.03 * draw.random(X.shape)], range(2, 10), seeds=2, restarts=2)
        assert scan.suggestion == planted
        assert scan.heldout[planted - 3] > 3 * scan.heldout[planted - 2]


def test_clean_data_are_predicted_and_have_no_more_components_than_they_do(rng):
    """Components of few features: a row that hides the largest of them has little else to find its code by."""
    X = rng.gamma(0.5, size=(900, 5)) @ rng.gamma(0.4, size=(5, 25))
    scan = select_rank([X[j::3] for j in range(3)], range(3, 9), seeds=2, restarts=2)
    assert scan.suggestion == 5
    assert scan.heldout[2] < 0.001
    assert "try larger ranks" not in scan.reason


def test_what_rank_one_leaves_says_which_differences_count():
    """Spectra on a high base line: all but a few thousandths is one component."""
    made = {k: np.ones(4) for k in ("seed_stability", "client_stability")}
    low = np.array([4e-3, 1e-3, 5e-6, 4e-6])
    still = dict.fromkeys(("heldout_std", "gap_error", "gain_error"), np.full(4, 1e-9))
    found = Curves(ranks=np.arange(1, 5), heldout=low, training=low, doubled=np.zeros(4, bool), **still, **made)
    rank, reason = choose(found, 4e-3)
    assert rank == 3
    assert "next to nothing above the best (4e-06 at rank 4)" in reason


def test_stability_is_not_known_where_nothing_could_differ():
    X = synthetic.blocks(1, 60, features=30, rank=3, seed=1).Xs[0]
    scan = select_rank([X], range(2, 12), seeds=2, restarts=2)
    assert np.isnan(scan.seed_stability[-1])
    assert np.isfinite(scan.seed_stability[0])


def test_what_all_clients_found_side_by_side_is_not_a_rank(rng):
    patterns = rng.gamma(0.4, size=(4, 60))
    kinds = [rng.permutation(np.arange(80) % 4) for _ in range(3)]
    clean = [patterns[kind] * rng.uniform(0.5, 1.5, size=(80, 1)) for kind in kinds]
    Xs = [np.maximum(X + 0.2 * X.std() * rng.normal(size=X.shape), 0) for X in clean]
    scan = select_rank(Xs, range(2, 15), seeds=2, restarts=2)
    assert scan.heldout[10] < scan.heldout[2]  # 12 = 3 x 4: a mean of three fits predicts better than one of them
    assert scan.suggestion == 4


def test_clients_with_nothing_in_common_have_all_of_theirs(rng):
    Xs = []
    for j in range(3):
        X = np.zeros((60, 60))
        X[:, 20 * j : 20 * j + 20] = rng.gamma(0.5, size=(60, 2)) @ rng.gamma(0.5, size=(2, 20))
        Xs.append(X + 0.01 * rng.random(X.shape))
    assert select_rank(Xs, range(2, 9), seeds=2, restarts=2).suggestion == 6


def test_digits_have_more_than_a_handful():
    data = datasets.digits()
    Xs = partition.split(data.X[:800], partition.iid(800, 3))
    scan = select_rank(Xs, [2, 5, 10, 14, 18, 30], seeds=2, restarts=2)
    assert scan.suggestion in (10, 14, 18)
    assert scan.seed_stability[-1] < STABLE < scan.seed_stability[0]
    assert (np.diff(scan.training) < 0).all()


@pytest.mark.parametrize("kind", ["uniform", "exponential", "constant"])
def test_noise_and_constants_have_nothing_stable(rng, kind):
    make = {"uniform": rng.random, "exponential": lambda s: rng.exponential(size=s), "constant": np.ones}[kind]
    scan = select_rank([make((50, 30)) for _ in range(3)], [2, 3, 5, 8], seeds=2, restarts=2)
    assert scan.suggestion == 2
    assert "Nothing beyond one component is stable" in scan.reason


def curves(heldout, stability, gap=0.01):
    K = len(heldout)
    same = np.full(K, gap)
    stabilities = np.array(stability), same * np.nan
    return Curves(np.arange(2, 2 + K), np.array(heldout), same, same, same, *stabilities, same, np.zeros(K, bool))


@pytest.mark.parametrize(
    ("heldout", "stability", "rank", "words"),
    [
        ([0.5, 0.2, 0.205, 0.3], [1, 1, 1, 1], 3, "Rank 3 has the lowest"),
        ([0.5, 0.205, 0.2, 0.3], [1, 1, 1, 1], 3, "within one standard error"),
        ([0.5, 0.205, 0.2, 0.3], [1, 0.5, 1, 1], 4, "Rank 4 has the lowest"),
        ([0.5, 0.3, 0.2, 0.3], [1, 0.95, 0.5, 1], 3, "do not return"),
        ([0.5, 0.205, 0.2, 0.3], [0.3, 0.5, 0.5, 0.6], 3, "No rank is stable"),
        ([0.5, 0.4, 0.3, 0.2], [1, 1, 1, 1], 5, "try larger ranks"),
        ([0.9, 0.895, 0.9, 0.95], [1, 1, 1, 1], 2, "Nothing beyond one component"),
        ([0.5, 0.2, 0.3, 0.3], [np.nan] * 4, 3, "lowest held-out error (0.2)."),
    ],
)
def test_the_rule(heldout, stability, rank, words):
    suggestion, reason = choose(curves(heldout, stability), 0.9)
    assert suggestion == rank
    assert words in reason


def test_standard_error_is_paired(rng):
    """Clients that differ a lot do not blur a difference that is the same everywhere."""
    level = rng.uniform(1, 100, (6, 1, 1, 4))
    errors = level * np.array([0.5, 0.4])[None, :, None, None] * np.ones((6, 2, 3, 4))
    squares = level[:, 0, 0]
    np.testing.assert_allclose(paired_error(errors, squares, reference=1), 0, atol=1e-12)
    noisy = errors + rng.normal(0, 0.1, errors.shape)
    assert paired_error(noisy, squares, reference=1)[0] > 0


def test_standard_error_has_the_size_of_the_spread(rng):
    """Over many draws of equal units, the estimate is the real spread of the difference."""
    found, real = [], []
    for _ in range(300):
        errors = np.ones((5, 2, 1, 4))
        errors[:, 1] += rng.normal(0, 0.2, (5, 1, 4))
        found.append(paired_error(errors, np.ones((5, 4)), reference=0)[1])
        real.append(errors[:, 1].mean())
    assert np.mean(found) == pytest.approx(np.std(real), rel=0.15)
