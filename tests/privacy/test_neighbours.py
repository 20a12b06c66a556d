"""Who masks with whom: what few neighbours stand, and that nothing else depends on how many there are."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers.secure import Round

from cofactor.privacy import errors
from cofactor.privacy.secure_sum import primitives
from cofactor.privacy.secure_sum.messages import Roster, Survivors, Terms
from cofactor.privacy.secure_sum.neighbours import COLLUDERS, DONE, FULL, HIDDEN, bound, exposed, threshold, unfinished
from cofactor.privacy.secure_sum.protocol import PHASES, Members, add_up, terms_of
from cofactor.privacy.secure_sum.rules import Phase
from cofactor.types import Message

GRAPHS = {"everybody": (9, None), "neighbours": (12, (6, 4))}
"""Clients, and the number of neighbours and shares."""


def made(name, **more):
    clients, graph = GRAPHS[name]
    return Round(clients, 3, graph=graph, **more)


# -- the circle --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("neighbours", [2, 6, 10])
def test_everybody_has_so_many_neighbours_and_they_agree(neighbours):
    terms = Terms(b"s", tuple(range(0, 24, 2)), 1, neighbours, 2)
    held = {c: set(terms.holders(c)) for c in terms.clients}
    for c, holders in held.items():
        assert c in holders
        assert len(holders) == neighbours + 1
        assert all(c in held[v] for v in holders)
    other = Terms(b"t", terms.clients, 1, neighbours, 2)
    assert {c: set(other.holders(c)) for c in terms.clients} != held
    assert other.tag != terms.tag != Terms(b"s", terms.clients, 1).tag


@pytest.mark.parametrize("wrong", [(3, 2), (0, 2), (12, 2), (11, 2), (4, 1), (4, 5)])
def test_terms_refuse_what_is_no_circle(wrong):
    with pytest.raises(errors.ParameterError):
        Terms(b"s", tuple(range(12)), 1, *wrong)


# -- the bounds --------------------------------------------------------------------------------------------------


def falls_apart(missing, neighbours):
    """Whether those who stay are in more than one group, each linked to the k/2 next on both sides."""
    here = np.flatnonzero(~missing)
    gaps = np.diff(np.append(here, here[0] + len(missing))) if len(here) else []
    return int(np.sum(np.asarray(gaps) > neighbours // 2)) > 1


@pytest.mark.parametrize(
    ("clients", "neighbours", "shares", "colluders", "absent"),
    [(40, 8, 5, 8, 8), (40, 4, 4, 6, 10), (30, 10, 6, 8, 6), (60, 6, 4, 6, 20)],
)
def test_bounds_hold_in_simulation(clients, neighbours, shares, colluders, absent):
    """The bounds are sums over all clients, so they are above what happens, and not far above where that is rare."""
    rng, trials = np.random.default_rng(0), 8000
    seen = lost = 0
    steps = np.r_[-neighbours // 2 : 0, 1 : neighbours // 2 + 1]
    near = (np.arange(clients)[:, None] + steps) % clients
    for _ in range(trials):
        order = rng.permutation(clients)
        bad, gone = order < colluders, (order >= colluders) & (order < colluders + absent)
        taken = bad[near].sum(axis=1)
        seen += bool(taken[~bad].max() >= shares) or falls_apart(bad | gone, neighbours)
        gone = rng.permutation(clients) < absent
        lost += bool((~gone)[near].sum(axis=1).min() < shares)
    risk = exposed(clients, neighbours, shares, colluders=colluders, absent=absent)
    late = unfinished(clients, neighbours, shares, absent=absent)
    for found, claimed in ((seen / trials, risk), (lost / trials, late)):
        noise = 3 * np.sqrt(found / trials) + 3 / trials
        assert found <= claimed + noise
        assert claimed <= 12 * (found + noise)


@pytest.mark.parametrize("clients", [FULL + 1, 200, 317, 1000, 3000])
def test_many_clients_have_the_fewest_neighbours_that_are_safe(clients):
    known = bound(clients)
    assert known.colluders == clients // COLLUDERS
    assert known.absent == clients - threshold(clients)
    assert known.exposed <= HIDDEN
    assert known.unfinished <= DONE
    fewer = known.neighbours - 2
    for shares in range(2, fewer + 1):
        risk = exposed(clients, fewer, shares, colluders=known.colluders, absent=known.absent)
        assert risk > HIDDEN / 2 or unfinished(clients, fewer, shares, absent=known.absent) > DONE
    assert "but for a chance of 2^-4" in str(known) or known.exposed < 2.0**-49


def test_few_clients_mask_with_all_others_and_the_number_grows_slowly():
    assert [bound(c).neighbours for c in (3, 20, FULL)] == [2, 19, FULL - 1]
    assert (bound(20).colluders, bound(20).exposed) == (threshold(20) - 1, 0.0)
    counts = [bound(c).neighbours for c in (200, 400, 800, 1600, 6400)]
    assert all(a < b < 1.5 * a for a, b in pairwise(counts))
    with pytest.raises(errors.ParameterError, match="at least 3 clients"):
        bound(2)


# -- the protocol, with both graphs ------------------------------------------------------------------------------


@st.composite
def absences(draw, clients, most):
    """Who drops out, and in which phase."""
    who = draw(st.lists(st.sampled_from(range(clients)), max_size=most, unique=True))
    return {c: draw(st.sampled_from(PHASES)) for c in who}


def carry(run, gone):
    """Carry a round to its end; return every answer of the last phase."""
    for phase in PHASES:
        run.ask({c for c, when in gone.items() if when is phase})
        told = run.answers
        run.close()
    return told


@pytest.mark.parametrize("name", GRAPHS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_whoever_drops_out_in_whatever_phase_the_sum_is_that_of_the_survivors(name, data):
    """With up to a third of the clients gone; a sum that cannot be unmasked is refused in words, never wrong.

    Spare noise is revealed where nobody is missing in the sum, and else by nobody.
    """
    clients = GRAPHS[name][0]
    gone = data.draw(absences(clients, clients - threshold(clients)))
    run = made(name, vectors={c: np.array([1.0, c, -2.0 * c]) for c in range(clients)})
    try:
        told = carry(run, gone)
    except errors.ThresholdError:
        assert name == "neighbours"  # a third may be too many of one client's neighbours
        return
    alive = [c for c in range(clients) if gone.get(c, Phase.UNMASK) in (Phase.AGREE, Phase.UNMASK)]
    assert run.server.survivors == tuple(alive)
    np.testing.assert_allclose(run.server.result(), [len(alive), sum(alive), -2 * sum(alive)], atol=1e-6)
    spares = {c: b"%032d" % c for c in told} if len(alive) == clients else {}
    assert run.server.spares == spares
    # nobody tells two secrets of one client, and all tell the same one
    for c, answer in told.items():
        seeds, keys = {r.owner for r in answer.seeds}, {r.owner for r in answer.keys}
        assert seeds <= set(alive)
        assert not keys & set(alive)
        assert seeds | keys <= set(run.terms.holders(c))


@pytest.mark.parametrize("name", GRAPHS)
def test_a_client_answers_once_and_never_for_two_sets_of_survivors(name):
    run = made(name).until(Phase.UNMASK)
    client, everyone = run.clients[0], run.terms.clients
    with pytest.raises(errors.RevealError):
        client.unmask(run.inbox[0])
    for survivors in (everyone, everyone[:-1]):
        with pytest.raises(errors.OrderError):
            client.agree(Survivors(run.terms.tag, survivors))


def test_strangers_are_refused_and_nothing_changes():
    """A roster with keys of somebody else than the neighbours; survivors among the neighbours that never shared."""
    run = Round(20, graph=(6, 4)).until(Phase.ADVERTISE)
    run.close()
    client, near = run.clients[0], run.terms.holders(0)
    far = next(c for c in run.terms.clients if c not in near)
    listed = run.inbox[0].keys
    assert {k.client for k in listed} == set(near)
    stranger = next(k for k in run.inbox[far].keys if k.client == far)
    before = dict(vars(client))
    with pytest.raises(errors.UnknownClientError, match=f"client {far} is no neighbour of client 0"):
        client.share(Roster(run.terms.tag, (*listed, stranger)))
    with pytest.raises(errors.ThresholdError, match="keys of at least 4 clients"):
        client.share(Roster(run.terms.tag, listed[:3]))
    assert vars(client) == before
    silent = next(c for c in near if c != 0)
    run.ask({silent})
    run.close()
    run.ask()
    run.close()
    with pytest.raises(errors.UnknownClientError, match="survivors must be clients that shared"):
        run.clients[0].agree(Survivors(run.terms.tag, run.terms.clients))
    near_few = {0, *[c for c in near if c not in (0, silent)][:2]}
    few = tuple(c for c in run.terms.clients if c not in near or c in near_few)
    with pytest.raises(errors.ThresholdError, match=r"at least 4 survivors were expected\. Found 3"):
        run.clients[0].agree(Survivors(run.terms.tag, few))
    assert run.clients[0].phase is Phase.AGREE


@pytest.mark.parametrize("name", GRAPHS)
def test_no_mask_is_used_twice(name, monkeypatch):
    """Over three rounds of the same clients every stream belongs to one session, and to one pair or one client."""
    used, mask = [], primitives.mask
    monkeypatch.setattr(primitives, "mask", lambda key, size: (used.append(key), mask(key, size))[1])
    pairs, rounds = None, []
    for t in range(3):
        run = made(name, session=f"round {t}".encode(), pairs=pairs).until(Phase.MASK)
        pairs = run.pairs
        rounds.append(list(used))
        used.clear()
    clients, graph = GRAPHS[name]
    links = clients * (graph[0] if graph else clients - 1) // 2
    for keys in rounds:
        assert len(set(keys)) == links + clients
        assert len(keys) == 2 * links + clients  # both ends of a link, and everybody's own
    assert len(set().union(*rounds)) == 3 * (links + clients)


def test_more_clients_than_mask_with_each_other():
    """The way of a run: 120 clients with some fifty neighbours each, a tenth of them gone."""
    members, schema = Members(range(120)), {"x": (2,)}
    members.bring({c: Message({"x": np.array([1.0, c])}) for c in range(120)}, schema)
    terms = terms_of(b"name", tuple(range(120)), 3)
    assert terms.neighbours == bound(120).neighbours < 119

    def ask(phase, inbox):
        left = {Phase.MASK: 6, Phase.UNMASK: 12}.get(phase, 0)
        return members.answer(terms, members.publics, {c: m for c, m in inbox.items() if c >= left})

    found = add_up(terms, members.publics, ask)
    assert found.survivors == tuple(range(6, 120))
    np.testing.assert_allclose(found.total, [114.0, 114.0, sum(range(6, 120))], atol=1e-5)
