"""What can be computed back from messages: everything from sketches, the sum and nothing else from secure sums."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy import stats
from tests.helpers.secure import Round

from cofactor.assurance.reconstruct import from_sketches
from cofactor.local.sketch import CountSketch, Gaussian, Subsampling
from cofactor.method import SERVER
from cofactor.method import rng as address
from cofactor.methods import catalog
from cofactor.methods.averaged import Averaged
from cofactor.methods.syn import Exchanged
from cofactor.privacy.secure_sum.packing import pack
from cofactor.privacy.secure_sum.rules import Phase
from cofactor.types import Array


@pytest.mark.parametrize(("n", "d"), [(40, 8), (41, 8), (30, 7), (12, 12)])
def test_shared_sketches_of_the_data_are_solved_after_exactly_ceil_n_over_d_rounds(n: int, d: int) -> None:
    X = np.random.default_rng(1).random((25, n))
    needed = math.ceil(n / d)
    draws = [Gaussian(d).draw(n, 2, address(7, SERVER, t)) for t in range(needed)]
    seen = [S.right(X) for S in draws]
    assert all(from_sketches(draws[:t], seen[:t]) is None for t in range(1, needed))
    np.testing.assert_allclose(from_sketches(draws, seen), X, atol=1e-9)


def test_a_subsampling_sketch_shows_columns_in_its_first_round() -> None:
    X = np.random.default_rng(1).random((25, 40))
    S = Subsampling(8).draw(40, 2, address(7, SERVER, 0))
    seen = np.asarray(S.right(X)) / np.linalg.norm(np.asarray(S.matrix().toarray()), axis=0)
    assert all(min(np.abs(X - column[:, None]).max(axis=0)) < 1e-12 for column in seen.T)


@dataclass(frozen=True)
class Settled:
    """The update of a client whose factor has converged."""

    def __call__(self, F: Array, stats: object, t: int = 0, previous: Array | None = None) -> Array:
        return F


@pytest.mark.parametrize("sketch", [Gaussian(5), CountSketch(5)])
def test_the_messages_of_sketch_sharing_give_the_factor_of_a_client_back(sketch: object) -> None:
    m, rank, rounds = 18, 3, 40
    X = np.random.default_rng(2).random((30, m))
    method = Exchanged(replace(Averaged(rank), update=Settled(), sweeps=1), sketch, every=1000)
    shared = method.start(m, np.random.default_rng(0))
    secret = np.random.default_rng(3).random((rank, m))
    secret /= np.linalg.norm(secret, axis=1, keepdims=True)
    local = method.join(X, shared._replace(factor=secret), 0, np.random.default_rng(1))
    local = local._replace(memory={**local.memory, "factor": secret, "cycle": np.int64(0)})
    seed, draws, seen = int(shared.extra["seed"]), [], []
    for t in range(1, rounds):
        local, message = method.step(X, shared, local, t, np.random.default_rng(t))
        draws.append(sketch.draw(m, rank, address(seed, SERVER, t)))  # what the server draws, too
        seen.append(message.arrays["sketched"] / message.weight)
        found = from_sketches(draws, seen)
        if found is not None:
            break
    np.testing.assert_allclose(found, secret, atol=1e-9)
    if isinstance(sketch, Gaussian):
        assert t == math.ceil(m / 5)


def statistics(X: np.ndarray) -> np.ndarray:
    """One client's message of exact statistics, as the vector that it masks."""
    method = catalog.make("exact", 3, start="random")
    shared = method.start(X.shape[1], np.random.default_rng(0))
    local = method.join(X, shared, 0, np.random.default_rng(1))
    _, message = method.step(X, shared, local, 0, np.random.default_rng(2))
    return pack(message, method.schema(X.shape[1], 0))


def masked(vectors):
    """Run a secure sum by hand; return what each client sent as its vector, and the sum."""
    run = Round(len(vectors), len(vectors[0]), vectors=dict(enumerate(vectors))).until(Phase.MASK)
    sent = {c: np.frombuffer(m.words, "<u8") for c, m in run.answers.items()}
    run.close()
    run.until(Phase.UNMASK).close()
    return sent, run.server.result()


def test_other_records_with_the_same_sum_look_the_same_to_the_server() -> None:
    rng = np.random.default_rng(0)
    first = [statistics(rng.random((20, 9))) for _ in range(3)]
    moved = np.linspace(-0.25, 0.25, first[0].size)
    other = [first[0] + moved, first[1] - moved, first[2]]  # the clients hold other data, the sum is the same
    views = [masked(vectors) for vectors in (first, other)]
    # what can be decoded is the sum, and it does not tell the two apart
    np.testing.assert_allclose(views[0][1], views[1][1], atol=1e-6)
    np.testing.assert_allclose(views[0][1], sum(first), atol=1e-6)
    for words, _ in views:
        for sent in words.values():
            assert abs(sent.astype(np.float64).mean() / 2**64 - 0.5) < 0.2


def test_masked_vectors_are_uniform_and_never_the_same_twice() -> None:
    vectors = [np.full(4000, 0.5 * c) for c in range(3)]
    one, two = (masked(vectors)[0] for _ in range(2))
    for c in range(3):
        octets = np.bincount(one[c].view(np.uint8), minlength=256)
        assert stats.chisquare(octets).pvalue > 1e-6
        assert not np.intersect1d(one[c], two[c]).size
    # the positive control: unmasked fixed-point numbers are far from uniform
    plain = np.rint(vectors[1] * 2**24).astype("<i8")
    assert stats.chisquare(np.bincount(plain.view(np.uint8), minlength=256)).pvalue < 1e-100
