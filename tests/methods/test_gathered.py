"""Rounds of few clients that count as one: what all of them say decides, whoever is drawn when."""

import numpy as np
import pytest

from cofactor import FederatedBMF, boolean, run
from cofactor.data import synthetic
from cofactor.engines.checkpoint import Checkpoint
from cofactor.local import batches
from cofactor.methods import catalog
from cofactor.methods.boolean_sweeps import Sweeps, lengths
from cofactor.methods.build import Facts, build
from cofactor.methods.gathered import Gathered, turn_of
from cofactor.plan import Plan
from cofactor.privacy import Privacy
from cofactor.types import CofactorError

CLIENTS, SHARE, TURN = 8, 0.25, 40


@pytest.fixture(scope="module")
def planted():
    """Rows of ten tiles sorted by them, so that no client is like another, and a bad start for five components."""
    data = synthetic.tiles(320, 60, 10, noise=0.05, seed=2)
    order = np.lexsort(data.codes.T)
    start = data.factor[:5] ^ (np.random.default_rng(0).random((5, 60)) < 0.2)
    return np.array_split(data.X[order].astype(np.float32), CLIENTS), start.astype(np.float64)


def turns(history):
    """Return the losses by turn: the first one ends at its length, and others with a new loss."""
    losses = [line.loss for line in history][TURN - 1 :]
    return [a for a, b in zip(losses, [None, *losses], strict=False) if a != b]


def test_sweeps_of_few_clients_are_those_of_all(planted):
    Xs, start = planted
    few = run(Gathered(Sweeps(5, 3), TURN), Xs, start=start, participation=SHARE)
    all_ = run(Sweeps(5, 12), Xs, start=start)
    known, found = [line.loss for line in all_.history], turns(few.history)
    assert len(found) >= 3
    assert found == sorted(set(known), reverse=True)[: len(found)]
    assert known[0] > known[-1]
    assert boolean.loss(np.vstack(Xs), np.vstack(few.codes), few.factor) <= 2 * known[0] / np.vstack(Xs).sum()


def test_turns_after_the_first_end_as_soon_as_everybody_was_heard(planted):
    Xs, start = planted
    history = run(Gathered(Sweeps(5, 3), TURN), Xs, start=start, participation=1.0).history
    assert len({line.loss for line in history[TURN:]}) > 2  # one round each


def test_votes_of_few_clients_are_those_of_all(planted):
    Xs, _ = planted
    method = catalog.make("asso", 5, align=None, share=SHARE)
    few, all_ = run(method, Xs, participation=SHARE), run(catalog.make("asso", 5, align=None), Xs)
    np.testing.assert_array_equal(few.factor, all_.factor)
    assert few.history[-1].loss == all_.history[-1].loss


@pytest.mark.parametrize("name", ["boolean-exact", "boolean-oneshot"])
def test_a_fit_with_absent_clients_comes_near_that_with_all(name, planted):
    """Where each client has tiles of its own, sweeps of two of them are at the cost of the six others."""
    few, all_ = (
        FederatedBMF(5, method=name, participation=share, random_state=0).fit(planted[0]).reconstruction_err_
        for share in (SHARE, 1.0)
    )
    assert few <= 1.02 * all_


@pytest.mark.parametrize("name", ["boolean-oneshot", "boolean-exact"])
def test_a_run_that_was_broken_off_in_a_turn_goes_on_to_the_same_bits(name, planted, tmp_path):
    method = catalog.make(name, 5, sweeps=2, rounds=40, share=SHARE)
    whole = run(method, planted[0], participation=SHARE, seed=1)
    for ended in (7, 33):
        kept = Checkpoint(tmp_path / f"{name}{ended}.npz")
        run(
            method,
            planted[0],
            participation=SHARE,
            seed=1,
            checkpoint=kept,
            callbacks=[lambda line, _, last=ended: line.round == last],
        )
        again = run(method, planted[0], participation=SHARE, seed=1, checkpoint=kept)
        np.testing.assert_array_equal(again.factor, whole.factor)
        assert [line.loss for line in again.history[-3:]] == [line.loss for line in whole.history[-3:]]


def test_tiny_clients_in_one_batch_are_heard_one_by_one(planted, monkeypatch):
    Xs, start = np.array_split(np.vstack(planted[0]), 80), planted[1]
    method = Gathered(Sweeps(5, 3), 10)
    batched = run(method, Xs, start=start, participation=0.3)
    monkeypatch.setattr(batches, "SMALL", 0)
    alone = run(method, Xs, start=start, participation=0.3)
    np.testing.assert_array_equal(batched.factor, alone.factor)
    np.testing.assert_array_equal([r.loss for r in batched.history], [r.loss for r in alone.history])


@pytest.mark.parametrize("here", [(0, 0, 0), (0, 1, 0, 0, 0, 0)])
def test_a_turn_without_somebody_only_flips_bits(here):
    """In the last turn the only client that uses the second tile does not answer: the tile stays as it is."""
    tiles = np.kron(np.eye(2), np.ones((1, 6))).astype(np.uint8)
    Xs = [np.tile(tile, (5, 1)).astype(np.float32) for tile in tiles]
    Xs[0][:2, 8] = 1  # what a component that begins anew would cover
    method, rng = Gathered(Sweeps(2, 5), 3), np.random.default_rng(0)
    shared = method.start(12, rng, tiles.astype(np.float64))
    states = [method.join(X, shared, 0, rng) for X in Xs]
    for t, j in enumerate(here):
        states[j], message = method.step(Xs[j], shared.broadcast(), states[j], t, rng)
        shared = method.aggregate(shared, [message], t)
    assert shared.extra["turn"] == len(here) // 3
    np.testing.assert_array_equal(method.factor(shared)[1], tiles[1])


def test_schedules_are_longer_by_the_share_unless_rounds_are_asked_for_or_paid():
    def rounds(name, plan, **options):
        return build(name, 3, plan, Facts(clients=CLIENTS), options)[0].rounds

    assert rounds("felb", Plan(), sweeps=3) == 60
    assert rounds("felb", Plan(participation=SHARE), sweeps=3) == 240
    assert rounds("boolean-exact", Plan(60, participation=SHARE), sweeps=3) == 60
    assert rounds("boolean-oneshot", Plan(participation=SHARE), sweeps=3) == 5 * 24
    assert rounds("boolean-oneshot", Plan(20, participation=SHARE), sweeps=3) == 20
    assert rounds("boolean-oneshot", Plan(3, participation=SHARE), sweeps=3) == 5  # of which three are run, as ever
    private = Privacy(1.0, 1e-6, unit="client", insecure_seed=1)
    assert rounds("felb", Plan(privacy=private, participation=SHARE)) == 50


@pytest.mark.parametrize("sweeps", [1, 3, 10, 40])
@pytest.mark.parametrize(("rounds", "share"), [(200, 0.25), (500, 0.1), (60, 0.25), (44, 0.5)])
def test_sweeps_after_a_schedule_are_rather_few_than_of_some_of_the_clients(rounds, share, sweeps):
    own, count, turn = lengths(rounds, sweeps, share)
    assert own == rounds - count * turn >= rounds // 2
    assert turn == turn_of(share)
    assert 1 <= count <= sweeps


def test_schedules_have_more_sweeps_than_uploads_unless_their_number_is_asked_for():
    for name in ("boolean-oneshot", "asso"):
        assert catalog.make(name, 3, sweeps=None) == catalog.make(name, 3, sweeps=3)
    for name in ("boolean-exact", "felb", "falb"):
        assert catalog.make(name, 3, sweeps=None) == catalog.make(name, 3, sweeps=20)
        assert catalog.make(name, 3, sweeps=None, rounds=10) == catalog.make(name, 3, sweeps=3, rounds=10)
    model = FederatedBMF(3, method="boolean-exact", random_state=0).fit(synthetic.tiles(60, 20, 3).X)
    assert model.history_[40].loss == round(2 * model.history_[40].loss) / 2  # half the errors, in a sweep


def small_blocks(k=16, rows=10, features=120):
    """Sparse rows of many small patterns, each of one client's: components that begin anew come one after the other."""
    rng = np.random.default_rng(2)
    H = np.zeros((k, features), np.uint8)
    for pattern in H:
        pattern[rng.choice(features, 5, replace=False)] = 1
    return np.array_split(np.repeat(H, rows, axis=0) & (rng.random((k * rows, features)) < 0.9), CLIENTS)


def test_sweeps_after_a_schedule_go_on_until_none_changes_anything():
    Xs = small_blocks()
    usual = FederatedBMF(16, method="felb", random_state=0).fit(Xs)
    longer = FederatedBMF(16, method="felb", random_state=0, sweeps=40, rounds=80).fit(Xs)
    assert usual.history_[-1].loss < usual.history_[-11].loss  # ten sweeps are too few here
    np.testing.assert_array_equal(usual.components_, longer.components_)


@pytest.mark.parametrize("share", [0.0, 1.5, float("nan")])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(CofactorError, match=r"share of 'felb': expected a number in \(0, 1\], found"):
        catalog.make("felb", 3, share=share)
