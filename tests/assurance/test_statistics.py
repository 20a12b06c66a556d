from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from scipy import stats

from cofactor.assurance import statistics as audit
from cofactor.privacy import clip
from cofactor.privacy.errors import AuditError, ParameterError, ShapeError
from cofactor.privacy.gaussian import calibrate
from cofactor.privacy.mechanisms import Gaussian
from cofactor.privacy.randomness import Source

DELTA, CANARIES = 1e-5, 1000


def world(mechanism, seed=0):
    source = Source(insecure_seed=seed)
    return lambda present, n: mechanism(np.full(n, float(present)), source)[0]


def test_two_world_passes_the_right_noise_and_catches_nine_tenths():
    # the record moves the statistic by 1 and the claim is mu = 1
    right = audit.two_world(world(Gaussian(1.0, 1.0)), world(Gaussian(0.0, 1.0)), claim=1.0)
    wrong = audit.two_world(world(Gaussian(0.9, 1.0)), world(Gaussian(0.0, 1.0)), claim=1.0)
    assert right.passed
    assert 0.95 < right.lower
    assert not wrong.passed
    assert str(wrong).startswith("FAILED: at least 1.")
    assert right.control > 5


def test_two_world_sees_a_record_that_lowers_the_score():
    source = Source(insecure_seed=0)
    release = lambda present, n: Gaussian(0.2, 1.0)(np.full(n, -float(present)), source)[0]  # noqa: E731
    assert audit.mu_lower(release(True, 2000), release(False, 2000), 0.99) > 3


def statistics(multiplier, *, clipped=True, norm=1.0, seed=0):
    """B = sum_i x_i over the canaries that are in (codes are 1), each along its own feature."""
    source = Source(insecure_seed=seed)

    def run(included):
        rows = np.diag(np.full(included.size, norm))
        rows = clip.rows(rows, 1.0) if clipped else rows
        return Gaussian(multiplier, 1.0)(included @ rows, source)[0]

    return run


def audited(release, seed=0):
    return audit.one_run(
        release, statistics(0.0), canaries=CANARIES, claim=1.0, delta=DELTA, rng=np.random.default_rng(seed)
    )


def test_one_run_audit_passes_the_right_mechanism_on_ten_seeds():
    z = calibrate(1.0, DELTA)
    assert all([audited(statistics(z, norm=30.0, seed=s), s).passed for s in range(10)])


@pytest.mark.parametrize(
    "broken",
    [
        statistics(0.0),
        statistics(calibrate(1.0, DELTA) / 100),
        statistics(calibrate(1.0, DELTA), clipped=False, norm=30.0),
    ],
    ids=["no noise", "100 x too little noise", "rows not clipped"],
)
def test_one_run_audit_catches_broken_mechanisms(broken):
    verdict = audited(broken)
    assert not verdict.passed
    assert verdict.lower > 2


def test_blind_audits_refuse_a_verdict():
    blind = lambda included: np.zeros(included.size)  # noqa: E731
    with pytest.raises(AuditError, match="blind"):
        audit.one_run(blind, blind, canaries=100, claim=1.0, delta=DELTA, rng=np.random.default_rng(0))
    deaf = lambda _present, n: np.zeros(n)  # noqa: E731
    with pytest.raises(AuditError, match="blind"):
        audit.two_world(deaf, deaf, claim=1.0, releases=1000)


def test_epsilon_from_guesses_inverts_the_binomial():
    q = 0.05 ** (1 / 100)
    found = audit.epsilon_from_guesses(100, 100, canaries=100, delta=0.0, confidence=0.95)
    assert found == pytest.approx(math.log(q / (1 - q)), abs=1e-5)
    assert audit.p_value(80, 100, canaries=100, epsilon=1.0, delta=0.0) == pytest.approx(
        stats.binom.sf(79, 100, 1 / (1 + math.exp(-1)))
    )
    assert audit.epsilon_from_guesses(50, 100, canaries=100, delta=0.0) == 0
    looser = partial(audit.epsilon_from_guesses, 95, 100, canaries=1000)
    assert looser(delta=1e-4) < looser(delta=1e-6) <= looser(delta=0.0)


def test_bad_audits_are_refused():
    with pytest.raises(ParameterError):
        audit.epsilon_from_guesses(5, 4, canaries=10, delta=0.0)
    run = partial(audit.one_run, canaries=10, claim=1.0, delta=0.0, rng=np.random.default_rng(0))
    with pytest.raises(ParameterError):
        run(statistics(1.0), statistics(0.0), guesses=20)
    with pytest.raises(ShapeError):
        run(lambda included: included[:3], statistics(0.0))
