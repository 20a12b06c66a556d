"""Audits of the real release functions: they pass what is right, and catch what was broken on purpose."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
from tests.helpers.private import built

from cofactor.assurance import worst_case
from cofactor.assurance.attack_rows import sensitivity
from cofactor.assurance.audits import Audit, mechanism
from cofactor.assurance.statistics import Verdict
from cofactor.privacy import bounded, clip
from cofactor.privacy.allowance import Privacy
from cofactor.privacy.errors import AuditError

SEED = {"insecure_seed": 1}
"""Audits of right mechanisms fail once in a while by chance; with a seed they do so always or never."""
RECORD, CLIENT = Privacy(1, 1e-6, **SEED), Privacy(2, 1e-6, "client", clip=0.25, **SEED)
METHODS = {
    "moments": ("dp-moments", RECORD, {}),
    "range": ("dp-range", RECORD, {"width": 4}),
    "statistics": ("dp-nmf", RECORD, {}),
    "moments by client": ("dp-moments", Privacy(2, 1e-6, "client", **SEED), {}),
    "updates": ("fedavg", CLIENT, {"sweeps": 2}),
    "moments of clipped rows": ("dp-moments", Privacy(1, 1e-6, clip=7.0, **SEED), {}),
    "votes": ("asso", CLIENT, {"sweeps": 0}),
}
STEPS = [("moments", 0), ("moments", 1), ("statistics", 0), ("updates", 0)]
"""The release functions: the first and the last round of the moments, statistics, and clients' updates."""


def make(name: str, *, secure: bool = False):
    method, privacy, options = METHODS[name]
    return built(method, privacy, clients=3, rounds=4, secure=secure, **options)


@lru_cache
def audited(name: str, secure: bool = False) -> list[Audit]:
    """All audits of a right mechanism, once: with a seed they never come out otherwise."""
    return list(mechanism(make(name, secure=secure)))


def passed(name: str, audit: str, t: int, *, secure: bool = False) -> set[str]:
    """The arrays of a round whose right release has passed an audit."""
    lines = [line for line in audited(name, secure) if line.audit == audit and line.of.endswith(f", round {t}")]
    return {line.of.split(",", maxsplit=1)[0] for line in lines if line.passed}


@pytest.mark.parametrize(
    ("name", "secure"), [*((name, False) for name in METHODS), ("moments", True), ("updates", True)]
)
def test_the_right_mechanisms_pass_every_audit(name: str, secure: bool) -> None:
    found = audited(name, secure)
    assert {line.audit for line in found} >= {"sensitivity", "two worlds, noise", "one run"}
    assert [line for line in found if line.passed is False] == []
    # only one run may be blind, to a claim that is too large for its canaries
    assert {line.audit for line in found if line.passed is None} <= {"one run"}


def test_audits_of_a_part_of_the_noise_say_that_it_is_one() -> None:
    """Before it is added up a message tells more than its sum, which is what the budget of a run is for."""
    words = " in one client's message, with 1/2 of the noise of a sum"
    for secure in (True, False):
        told = {line.text for line in audited("moments", secure) if line.audit != "sensitivity"}
        assert {words in text for text in told} == {secure}
        assert not any(",:" in text for text in told)


@pytest.mark.parametrize(("name", "t"), STEPS)
def test_one_run_passes_the_right_mechanism_on_ten_seeds(name: str, t: int) -> None:
    found = [verdict for _, verdict in worst_case.one_run(make(name), t, seeds=range(10))]
    assert len(found) >= 10
    assert all(isinstance(verdict, Verdict) and verdict.passed for verdict in found)


@pytest.mark.parametrize("scale", [0.0, 0.01])
@pytest.mark.parametrize(("name", "t"), STEPS)
def test_one_run_catches_no_noise_and_a_hundredth_of_it(name: str, t: int, scale: float) -> None:
    method = make(name)
    found = [v for _, v in worst_case.one_run(method, t, broken=worst_case.scaled(method, scale))]
    assert found
    assert not any(verdict.passed for verdict in found)


def unbounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let rows pass as they are, measured nowhere."""
    monkeypatch.setattr(bounded, "scales_of", lambda X, bound: bounded.Scales(*np.ones((2, X.shape[0]))))
    monkeypatch.setattr(bounded, "_inside", lambda block: block)


@pytest.mark.parametrize(("name", "t"), STEPS)
def test_unclipped_rows_and_updates_are_caught(name: str, t: int, monkeypatch: pytest.MonkeyPatch) -> None:
    method = make(name)
    right = [moved.share for moved in sensitivity(method, t)]
    assert max(right) > 0.99  # the worst case is one: the audit would see a bound that is too small
    assert max(right) <= 1
    if t == 0 and name != "updates":  # clipped a second time around the mean
        unbounded(monkeypatch)
    monkeypatch.setattr(clip, "rows", lambda X, bound: X)
    monkeypatch.setattr(clip, "norm", lambda x, bound: x)
    monkeypatch.setattr("cofactor.methods.dp_nmf.BALL", type("Open", (), {"project": staticmethod(lambda W: W)}))
    if name == "updates":  # refused before they leave
        (moved,) = sensitivity(method, t)
        assert moved.share == np.inf
        return
    assert not all(moved.passed for moved in sensitivity(method, t))
    # a client's row is then 30 times as long as paid for
    unbounded(monkeypatch)
    found = [v for n, v in worst_case.one_run(method, t) if n in ("sum", "moment", "cross")]
    assert all(isinstance(v, Verdict) and not v.passed for v in found)


@pytest.mark.parametrize(
    ("name", "t", "secure"),
    [*((name, t, False) for name, t in STEPS[:3]), ("moments", 1, True), ("moments of clipped rows", 0, False)],
)
def test_two_worlds_through_a_step_catch_nine_tenths_of_the_noise(name: str, t: int, secure: bool) -> None:
    method = make(name, secure=secure)
    weak = list(worst_case.two_world_step(method, t, broken=worst_case.scaled(method, 0.9)))
    assert weak
    assert not any(v.passed for _, v in weak)
    assert passed(name, "two worlds, step", t, secure=secure) == {array for array, _ in weak}


@pytest.mark.parametrize("name", METHODS)
def test_two_worlds_through_the_release_catch_nine_tenths_of_the_noise(name: str) -> None:
    method = make(name)
    for t in worst_case.kinds(method):
        weak = list(worst_case.two_world_release(method, t, broken=worst_case.scaled(method, 0.9)))
        assert not any(verdict.passed for _, verdict in weak)
        assert passed(name, "two worlds, noise", t) == {array for array, _ in weak}


def test_a_claim_that_is_too_large_to_be_refuted_is_no_verdict() -> None:
    method = built("dp-moments", Privacy(30, 1e-6), rounds=2)
    ((_, verdict),) = worst_case.one_run(method, 1)
    assert isinstance(verdict, AuditError)
    assert "blind" in str(verdict)
