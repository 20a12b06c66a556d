"""Noise that clients share: whole from the view of everybody, also of one who knows what it added itself."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.helpers.private import built, privacy
from tests.helpers.secure import sum_of

from cofactor import FederatedNMF, Privacy
from cofactor.assurance.statistics import mu_lower
from cofactor.methods.build import Facts, build
from cofactor.plan import Plan
from cofactor.privacy.accountant import Cost, Mechanism, spend
from cofactor.privacy.allowance import honest_of
from cofactor.privacy.errors import ParameterError

RELEASES = 30_000


def claimed(allowance):
    """The mu of all releases of a run together."""
    return math.sqrt(
        math.fsum(c.multiplier**-2 for t in range(len(allowance.shares)) for c in allowance.costs(t).values())
    )


def seen_by_the_last(allowance, clients, *, there):
    """Joint log-likelihood ratio of many runs: client 0 has the worst-case record or not, the last subtracts its own.

    Many runs travel as one array of numbers, each the sum of one run, in the direction in which the record moves it.
    """
    rng, score = np.random.default_rng(), np.zeros(RELEASES)
    for t, shares in enumerate(allowance.shares):
        for name in shares:
            moved = {c: np.full(RELEASES, float(there and c == 0)) for c in range(clients)}
            sent = {c: allowance.release(t, {name: a}, {name: 1.0}, rng).arrays[name] for c, a in moved.items()}
            total, survivors = sum_of(sent)
            assert survivors == tuple(range(clients))
            score += (total - sent[clients - 1]) * allowance.costs(t)[name].multiplier ** -2
    return score


@pytest.mark.parametrize(("clients", "curious"), [(3, 1), (3, 2), (5, 1)])
def test_one_participant_learns_no_more_than_claimed(clients, curious):
    """Of four in five clients that must answer one is curious; the fifth, which answers too, adds more than enough."""
    allowance = built("exact", privacy(8.0, 1e-3, curious=curious), clients=clients, rounds=None, secure=True).allowance
    assert allowance.parts == honest_of(clients, curious)
    with_it, without = (seen_by_the_last(allowance, clients, there=there) for there in (True, False))
    mu = claimed(allowance)
    assert mu > 1
    lower = mu_lower(with_it, without, 0.99)
    assert lower <= mu
    # the test has an eye: it finds what there is to find
    honest = clients - 1
    assert lower > 0.93 * mu * math.sqrt(allowance.parts / honest)


def test_noise_that_is_whole_only_with_everybody_would_be_found():
    """Parts of sigma^2 / t, as if nobody knew its own: mu is sqrt(3/2) times the claim for one of three."""
    allowance = built("exact", privacy(8.0, 1e-3), clients=3, rounds=None, secure=True).allowance
    wrong = replace(allowance, parts=3)
    with_it, without = (seen_by_the_last(wrong, 3, there=there) for there in (True, False))
    assert mu_lower(with_it, without, 0.99) > 1.1 * claimed(wrong)


@pytest.mark.parametrize(("clients", "curious", "honest"), [(3, 0, 3), (3, 1, 2), (3, 2, 1), (6, 1, 4), (200, 10, 124)])
def test_honest_clients_are_those_that_must_answer_and_are_not_curious(clients, curious, honest):
    assert honest_of(clients, curious) == honest
    plan = Plan(privacy=Privacy(1, 1e-3, curious=curious), secure=True)
    assert build("exact", 3, plan, Facts(clients))[0].traits.allowance.parts == honest


def test_plans_without_an_honest_client_are_refused():
    with pytest.raises(ParameterError, match=r"of 3 clients in a round 3 must answer, so that at most 2 of them may"):
        build("exact", 3, Plan(privacy=Privacy(1, 1e-3, curious=3), secure=True), Facts(3))
    with pytest.raises(ParameterError, match=r"curious: of 3 clients in a round"):
        build("exact", 3, Plan(privacy=Privacy(1, 1e-3, curious=3), secure=True, participation=0.5), Facts(6))
    for wrong in (-1, 0.5, "one"):
        with pytest.raises(ParameterError, match="curious must be a whole number"):
            Privacy(1, 1e-3, curious=wrong)


def test_every_total_names_the_honest_clients_it_assumes(rng):
    Xs = [rng.random((9, 8)) for _ in range(6)]
    model = FederatedNMF(2, privacy=Privacy(2, 1e-4), secure=True).fit(Xs)
    assert str(model.ledger_.spend()).endswith(
        "; accountant: exact Gaussian; assuming at least 4 honest clients in every sum)"
    )
    alone = FederatedNMF(2, privacy=Privacy(2, 1e-4)).fit(Xs)
    assert "honest" not in str(alone.ledger_.spend())
    mixed = [Cost(Mechanism.DISCRETE_GAUSSIAN, 2.0, honest=h) for h in (3, 5)]
    assert spend(mixed, 1e-5).honest == 5
