"""Noise that clients share: whole from the view of everybody, also of one who knows what it added itself."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.helpers.private import built, privacy
from tests.helpers.secure import total_of

from cofactor import FederatedNMF, Privacy
from cofactor.assurance.statistics import mu_lower
from cofactor.methods.build import Facts, build
from cofactor.plan import Plan
from cofactor.privacy.accountant import Cost, Mechanism, spend
from cofactor.privacy.allowance import Parts, honest_of
from cofactor.privacy.errors import ParameterError
from cofactor.privacy.secure_sum.rules import Phase

RELEASES = 30_000
SURE = 1 - 1e-6
"""The noise is drawn anew in every run of the tests, and the claim is what there is: at 99 % one in a hundred fails."""


def claimed(allowance):
    """The mu of all releases of a run together."""
    return math.sqrt(
        math.fsum(c.multiplier**-2 for t in range(len(allowance.shares)) for c in allowance.costs(t).values())
    )


def seen_by_the_last(allowance, clients, *, there, gone=None):
    """Joint log-likelihood ratio of many runs: client 0 has the worst-case record or not, the last subtracts its own.

    Many runs travel as one array of numbers, each the sum of one run, in the direction in which the record moves it.
    With the last one is the server, which knows the spare noise that anybody revealed. Returns also the deviation that
    the server reckons with for the noise of the others, in the last sum.
    """
    rng, score = np.random.default_rng(), np.zeros(RELEASES)
    for t, shares in enumerate(allowance.shares):
        for name in shares:
            moved = {c: np.full(RELEASES, float(there and c == 0)) for c in range(clients)}
            sent = {c: allowance.release(t, {name: a}, {name: 1.0}, rng) for c, a in moved.items()}
            total, survivors, _, seeds = total_of(sent, {name: (RELEASES,)}, gone)
            own = sent[clients - 1]
            known = allowance.spared(total._replace(cost=own.cost), seeds.values())
            own = allowance.spared(own, [own.spare] if clients - 1 in seeds else [])
            seen = known.arrays[name] - own.arrays[name]
            score += seen * allowance.costs(t)[name].multiplier ** -2
            others = allowance.sigma(t, name, 1.0, len(survivors) - 1, known.spared - own.spared)
    return score, np.std(seen - float(there)) / others


DROPOUTS = {
    "nobody": {},
    "before its vector": {1: Phase.MASK},
    "before it agrees": {1: Phase.AGREE},
    "before it reveals": {1: Phase.UNMASK},
    "from the beginning": {1: Phase.ADVERTISE},
}


@pytest.mark.parametrize(
    ("clients", "curious", "gone"), [(3, 1, "nobody"), (3, 2, "nobody"), *((5, 1, gone) for gone in DROPOUTS)]
)
def test_one_participant_and_the_server_learn_no_more_than_claimed(clients, curious, gone):
    """Of all clients that answer one is curious; whoever drops out whenever, the others' noise is whole."""
    allowance = built("exact", privacy(8.0, 1e-3, curious=curious), clients=clients, rounds=None, secure=True).allowance
    assert allowance.parts == honest_of(clients, curious)
    (with_it, deviation), (without, _) = (
        seen_by_the_last(allowance, clients, there=there, gone=DROPOUTS[gone]) for there in (True, False)
    )
    mu = claimed(allowance)
    assert mu > 1
    assert mu_lower(with_it, without, SURE) <= mu
    assert deviation == pytest.approx(1, abs=0.02)  # what is left is what the server reckons with
    # the test has an eye: it finds what there is to find, which with nobody missing is all that is claimed
    fewest = {"before it agrees": 4 / 3, "before it reveals": (3 / 4 + 1 / 3)}.get(gone, 1.0)
    fewest = (clients - 1) / (clients - curious) if curious > 1 else fewest
    assert mu_lower(with_it, without, 0.99) > 0.93 * mu / math.sqrt(fewest)


@pytest.mark.parametrize(("parts", "gone"), [(Parts(3, 3), "nobody"), (Parts(3, 5), "nobody"), (Parts(4, 4), "mask")])
def test_noise_that_is_not_whole_would_be_found(parts, gone):
    """Parts as if nobody knew its own, or as if nobody dropped out: mu is more than the claim."""
    clients = parts.full if parts.least < 4 else 5
    allowance = built("exact", privacy(8.0, 1e-3), clients=clients, rounds=None, secure=True).allowance
    wrong = replace(allowance, parts=parts)
    away = {1: Phase.MASK} if gone == "mask" else {}
    (with_it, _), (without, _) = (seen_by_the_last(wrong, clients, there=there, gone=away) for there in (True, False))
    assert mu_lower(with_it, without, 0.99) > 1.05 * claimed(wrong)


@pytest.mark.parametrize(
    ("clients", "curious", "honest"),
    [(3, 0, (3, 3)), (3, 1, (2, 2)), (3, 2, (1, 1)), (6, 1, (4, 5)), (200, 10, (124, 190))],
)
def test_honest_clients_are_those_that_answer_and_are_not_curious(clients, curious, honest):
    assert honest_of(clients, curious) == Parts(*honest)
    plan = Plan(privacy=Privacy(1, 1e-3, curious=curious), secure=True)
    assert build("exact", 3, plan, Facts(clients))[0].traits.allowance.parts == Parts(*honest)


def test_what_a_seed_gives_back_is_what_was_added(rng):
    """To the last bit; the rest of the noise is not in it, and the seed is in no array, cost or text."""
    allowance = built("exact", privacy(1.0), clients=5, rounds=None, secure=True).allowance
    bounds = dict.fromkeys(allowance.shares[0], 1.0)
    zeros = {"sum": np.zeros(4000), "count": np.zeros(())}
    sent = allowance.release(0, zeros, bounds, rng)
    spare = allowance.spare({name: np.shape(a) for name, a in zeros.items()}, sent.cost, sent.spare)
    kept = allowance.spared(sent, [sent.spare])
    for name in zeros:
        np.testing.assert_array_equal(kept.arrays[name] + spare[name], sent.arrays[name])
    left, gone = np.std(kept.arrays["sum"]), np.std(spare["sum"])
    whole = allowance.sigma(0, "sum", 1.0) * math.sqrt(3)
    assert left == pytest.approx(whole / 2, rel=0.05)
    assert gone == pytest.approx(whole * math.sqrt(1 / 3 - 1 / 4), rel=0.05)
    assert sent.spare.hex() not in str(sent.cost)
    assert len({allowance.release(0, zeros, bounds, rng).spare for _ in range(20)}) == 20


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
    mixed = [Cost(Mechanism.GAUSSIAN, 2.0, honest=h) for h in (3, 5)]
    assert spend(mixed, 1e-5).honest == 5
