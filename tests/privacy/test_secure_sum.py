from __future__ import annotations

import itertools
import sys
import time
from importlib import import_module

import numpy as np
import pytest
from scipy import stats
from tests.helpers.secure import Round, sum_of, total_of

from cofactor.engines.contract import message_bytes
from cofactor.privacy import errors
from cofactor.privacy.mechanisms import Gaussian
from cofactor.privacy.secure_sum import shamir
from cofactor.privacy.secure_sum.messages import Terms
from cofactor.privacy.secure_sum.packing import pack, unpack
from cofactor.privacy.secure_sum.rules import Phase
from cofactor.types import Message


def data(clients, size, seed=0):
    rng = np.random.default_rng(seed)
    return {c: rng.normal(scale=10, size=size) for c in range(clients)}


@pytest.mark.parametrize(("clients", "gone"), [(3, 0), (4, 1), (5, 1), (7, 2), (40, 13)])
def test_sum_equals_the_plain_sum(clients, gone):
    arrays = data(clients, (6, 5))
    phases = itertools.cycle([Phase.MASK, Phase.UNMASK, Phase.SHARE, Phase.ADVERTISE])
    dropouts = dict(zip(range(clients - gone, clients), phases))
    total, survivors = sum_of(arrays, dropouts)
    absent = {c for c, phase in dropouts.items() if phase is not Phase.UNMASK}
    assert survivors == tuple(sorted(set(arrays) - absent))
    np.testing.assert_allclose(total, sum(arrays[c] for c in survivors), atol=1e-6)


def test_threshold_is_two_thirds():
    thresholds = {c: Terms(b"s", tuple(range(c)), 1).threshold for c in (3, 4, 5, 6, 20, 200)}
    assert thresholds == {3: 3, 4: 3, 5: 4, 6: 5, 20: 14, 200: 134}
    for clients in ((0, 1), (0, 0, 1), (2, 1, 0), (-1, 0, 1)):
        with pytest.raises(errors.ParameterError):
            Terms(b"s", clients, 1)
    with pytest.raises(errors.ParameterError):
        Terms(b"s", (0, 1, 2), 0)
    tags = {
        Terms(*t).tag for t in [(b"s", (0, 1, 2), 1), (b"t", (0, 1, 2), 1), (b"s", (0, 1, 3), 1), (b"s", (0, 1, 2), 2)]
    }
    assert len(tags) == 4


@pytest.mark.parametrize("phase", [Phase.ADVERTISE, Phase.SHARE, Phase.MASK, Phase.UNMASK])
def test_too_few_answers_reveal_nothing(phase):
    with pytest.raises(errors.ThresholdError, match=rf"phase {phase}: answers of at least 4 clients"):
        sum_of(data(5, 3), {0: phase, 1: phase})


def test_one_masked_vector_looks_uniform():
    run = Round(4, 20_000, value=0.0)
    run.until(Phase.MASK)
    words = np.frombuffer(run.answers[0].words, dtype="<u8")
    assert stats.kstest(words / 2.0**64, "uniform").pvalue > 1e-6
    # the masks of two rounds have nothing in common
    other = Round(4, 20_000, value=0.0)
    other.until(Phase.MASK)
    assert not np.isin(words, np.frombuffer(other.answers[0].words, dtype="<u8")).any()


def test_distributed_noise_is_whole_with_the_fewest_survivors():
    part = Gaussian(2.0, 1.0, parts=Terms(b"s", tuple(range(5)), 1).threshold)
    arrays = {c: part(np.full(3000, float(c)))[0] for c in range(5)}
    total, survivors = sum_of(arrays, {4: Phase.MASK})
    assert len(survivors) == part.parts
    assert stats.kstest(total - 6, stats.norm(0, 2).cdf).pvalue > 1e-6
    # values on the grid are not rounded again: the sum is that of the parts, to the last digit
    np.testing.assert_array_equal(total, sum(arrays[c] for c in survivors))


def test_speed_at_twenty_clients():
    run = Round(20, 20_000)
    started = time.perf_counter()
    run.until(Phase.MASK, gone={0, 1})
    each = (time.perf_counter() - started) / 20
    run.close()
    run.until(Phase.UNMASK)
    started = time.perf_counter()
    run.close()
    unmasking = time.perf_counter() - started
    np.testing.assert_allclose(run.server.result(), 18.0, atol=1e-6)
    # the goals are 20 ms and 0.3 s; a shared machine gets room
    assert each < 0.1
    assert unmasking < 1.5


def test_packing_sums_messages():
    schema = {"a": (2, 3), "n": ()}
    messages = [Message({"a": np.full((2, 3), float(c)), "n": np.float64(c)}, weight=c + 0.5) for c in range(4)]
    found = total_of(dict(enumerate(messages)), schema)
    assert found.message.weight == 8.0
    np.testing.assert_array_equal(found.message.arrays["a"], np.full((2, 3), 6.0))
    assert found.message.arrays["n"] == 6
    assert found.sent > sum(map(message_bytes, messages))  # keys, shares and masks are counted


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (Message({"a": np.ones(2)}, weight=-1.0), errors.WeightError),
        (Message({"a": np.ones(2)}, weight=np.nan), errors.NotFiniteError),
        (Message({"a": np.ones(3)}), errors.ShapeError),
        (Message({"b": np.ones(2)}), errors.ShapeError),
        (Message({"a": np.ones(2), "b": np.ones(2)}), errors.ShapeError),
        (Message({"a": np.ones(2, dtype=complex)}), errors.DtypeError),
        (Message({"a": np.array(["x", "y"])}), errors.DtypeError),
    ],
)
def test_packing_refuses(message, error):
    with pytest.raises(error):
        pack(message, {"a": (2,)})
    with pytest.raises(errors.ShapeError):
        unpack(np.ones(5), {"a": (2,)})


def test_shamir_needs_the_threshold():
    secret = bytes(range(32))
    shares = shamir.split(secret, 3, points=5)
    for points in itertools.permutations(range(1, 6), 3):
        chosen = {x: shares[x - 1] for x in points}
        assert shamir.join(chosen, 32, weights=shamir.weights(points)) == secret
    two = {x: shares[x - 1] for x in (1, 2)}
    assert shamir.join(two, 32, weights=shamir.weights((1, 2))) != secret
    with pytest.raises(errors.TruncatedError):
        shamir.parse(shares[0][:-1])
    with pytest.raises(errors.TruncatedError):
        shamir.parse(shamir.PRIME.to_bytes(66, "big"))
    with pytest.raises(errors.ParameterError):
        shamir.split(bytes(65), 3, points=5)


def test_missing_package_names_the_extra(monkeypatch):
    for name in [n for n in sys.modules if n.startswith("cofactor.privacy.secure_sum")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    with pytest.raises(errors.MissingExtraError, match=r"pip install 'cofactor\[secure\]'"):
        import_module("cofactor.privacy.secure_sum.protocol")
