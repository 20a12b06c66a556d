"""Laws of every aggregator: copies merge to the copy, one client keeps its factor, sums are enough where promised."""

import numpy as np
import pytest

from cofactor.combine import aggregators, summaries
from cofactor.method import total
from cofactor.types import Message

ALL = aggregators.catalog()
ALIGNING = [name for name in ALL if not name.endswith("mean") or "fuzzy" in name]
ADDITIVE = [name for name, a in ALL.items() if a.additive]
ROWS = (20, 35, 10, 25)


@pytest.fixture
def factor(rng):
    H = rng.uniform(size=(5, 40))
    return H / np.linalg.norm(H, axis=1, keepdims=True)


@pytest.fixture
def current(factor, rng):
    """What was broadcast: near the factor, in another order."""
    H = factor[[1, 0, 3, 4, 2]] + 0.02 * rng.uniform(size=factor.shape)
    return H / np.linalg.norm(H, axis=1, keepdims=True)


def messages(aggregator, factors):
    return [aggregator.message(np.ones((n, len(H))), H) for n, H in zip(ROWS, factors)]


def assert_same_rows(found, H, matched_cosines, atol):
    assert found.shape == H.shape
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(matched_cosines(found, H), 1, atol=atol)


@pytest.mark.parametrize("t", [0, 1])
@pytest.mark.parametrize("name", ALL)
def test_identical_copies_give_the_copy(name, t, factor, current, matched_cosines):
    assert_same_rows(ALL[name](messages(ALL[name], [factor] * 4), current, t), factor, matched_cosines, 1e-9)


@pytest.mark.parametrize("t", [0, 1])
@pytest.mark.parametrize("name", ALIGNING)
def test_permuted_copies_give_the_same_rows(name, t, factor, current, matched_cosines):
    copies = [factor[np.random.default_rng(j).permutation(5)] for j in range(4)]
    assert_same_rows(ALL[name](messages(ALL[name], copies), current, t), factor, matched_cosines, 1e-9)


def test_aligning_aggregators_are_all_but_the_two_means():
    assert set(ALL) - set(ALIGNING) == {"mean", "weighted-mean"}


@pytest.mark.parametrize("t", [0, 1])
@pytest.mark.parametrize("name", ALL)
def test_one_client_keeps_its_factor(name, t, factor, current, matched_cosines):
    assert_same_rows(ALL[name](messages(ALL[name], [factor]), current, t), factor, matched_cosines, 1e-9)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype_shape_and_sign_are_kept(name, dtype, factor, current, rng):
    noisy = [(factor + 0.1 * rng.uniform(size=factor.shape)).astype(dtype) for _ in ROWS]
    H = ALL[name](messages(ALL[name], noisy), current.astype(dtype), 1)
    assert H.dtype == dtype
    assert H.shape == factor.shape
    assert H.min() >= 0


@pytest.mark.parametrize("name", ALL)
def test_messages_match_the_schema(name, factor):
    for message in messages(ALL[name], [factor] * 4):
        assert {n: a.shape for n, a in message.arrays.items()} == ALL[name].schema(5, 40)


@pytest.mark.parametrize("name", ADDITIVE)
def test_sums_are_enough_where_promised(name, factor, current, rng):
    noisy = [factor + rng.uniform(size=factor.shape) for _ in ROWS]
    sent = messages(ALL[name], noisy)
    np.testing.assert_allclose(ALL[name](sent, current, 1), ALL[name]([total(sent)], current, 1), rtol=1e-12)


def test_the_means_are_additive_and_the_barycenters_are_not():
    assert ADDITIVE == ["mean", "weighted-mean"]


@pytest.mark.parametrize(("name", "weights"), [("mean", [1, 1, 1, 1]), ("weighted-mean", ROWS)])
def test_mean_is_numpys_average(name, weights, rng):
    factors = [rng.uniform(size=(5, 40)) for _ in ROWS]
    H = np.average(factors, axis=0, weights=weights)
    expected = H / np.linalg.norm(H, axis=1, keepdims=True)
    np.testing.assert_allclose(ALL[name](messages(ALL[name], factors), factors[0], 0), expected, rtol=1e-12)


@pytest.mark.parametrize("name", ALIGNING)
def test_heavier_clients_weigh_more(name, factor, current):
    """Two groups of clients differ a little: the centre lies nearer to the group with more rows."""
    other = factor + 0.02 * np.roll(factor, 1, axis=1)
    other /= np.linalg.norm(other, axis=1, keepdims=True)
    aggregator = ALL[name]
    sent = [Message(m.arrays, w) for m, w in zip(messages(aggregator, [factor, other]), (9.0, 1.0))]
    H = aggregator(sent, factor, 1)
    near, far = (np.linalg.norm(np.sort(H, axis=0) - np.sort(M, axis=0)) for M in (factor, other))
    assert near < far


@pytest.mark.parametrize("copies", [1, 4])
def test_union_of_one_clients_copies_loses_nothing(copies, factor, rng):
    W = rng.uniform(size=(30, 5))
    union = aggregators.Union(5)
    sent = [union.message(W, factor[order]) for order in [rng.permutation(5) for _ in range(copies)]]
    assert {n: a.shape for n, a in sent[0].arrays.items()} == union.schema(5, 40)
    H = union(sent, factor, 0)
    own = [summaries.Summary(m.arrays["factor"], m.arrays["gram"], 30, 0) for m in sent]
    energy = sum(float(np.sum((W @ s.factor) ** 2)) for s in own)
    assert summaries.loss(own, H) < 1e-3 * energy
    np.testing.assert_allclose(np.linalg.norm(H, axis=1), 1)
