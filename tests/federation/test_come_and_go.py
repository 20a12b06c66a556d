"""Clients that come late, and clients that are forgotten, in a federation in this process."""

import json

import numpy as np
import pytest
from tests.helpers.client_jobs import NAMES, federation, terms_of
from tests.helpers.federation import blocks

from cofactor import metrics, run
from cofactor.engines.flare_clients import Patience
from cofactor.engines.flare_refusals import Short, Unfit
from cofactor.federation import going_on
from cofactor.federation.terms import RunTerms
from cofactor.jobs import uploads
from cofactor.jobs.forget import CONTINUED, MERGED
from cofactor.method import rng as address
from cofactor.methods import catalog
from cofactor.plan import Plan


def after(rounds):
    """Return what asks a run to pause when it has come so far."""
    seen = iter(range(rounds))
    return lambda: next(seen, None) is None


def events_of(folder):
    return [(e["client"], e["what"]) for e in map(json.loads, (folder.path / "events.jsonl").read_text().splitlines())]


@pytest.mark.parametrize("method", ["exact", "fedavg"])
def test_a_late_client_takes_part_from_the_next_round(tmp_path, method):
    """With the state that it would have there: the factor is that of a loop in which it steps from then on."""
    Xs = blocks()
    terms = terms_of(method=method, rounds=8, names=NAMES[:3])
    with pytest.raises(Short, match="asked to pause"):
        federation(tmp_path, Xs[:3], terms, stop=after(2))
    folder, _ = federation(tmp_path, Xs, terms.joined_by(["dave"]))
    lines = [json.loads(line) for line in (folder.path / "history.jsonl").read_text().splitlines()]
    assert [line["participants"] for line in lines] == [3, 3, 3, 4, 4, 4, 4, 4]
    assert ("dave", "has come late, and takes part from round 3 on") in events_of(folder)
    assert folder.verify().ok
    assert len(folder.evaluation().clients) == 4

    made, shared, states = catalog.make(method, 3), None, {}
    shared = made.start(20, address(0, -1, -1))
    for t in range(8):
        sent = []
        for j in range(3 if t < 3 else 4):
            told = shared.broadcast()
            if j not in states or t in made.traits.stages:
                states[j] = made.join(Xs[j], told, t, address(0, j, -1))
            states[j], message = made.step(Xs[j], told, states[j], t, address(0, j, t))
            sent.append(message)
        shared = made.aggregate(shared, sent, t)
    factor, found = made.factor(shared), folder.factor()[0]
    best = [np.abs(found - row).max(axis=1).min() for row in factor]  # components are put in order in the end
    assert max(best) <= 1e-6


def test_a_late_run_ends_where_one_with_all_ends(tmp_path):
    Xs = blocks()
    terms = terms_of(rounds=400, names=NAMES[:3], tol=1e-8)
    with pytest.raises(Short):
        federation(tmp_path, Xs[:3], terms, stop=after(30))
    folder, _ = federation(tmp_path, Xs, terms.joined_by(["dave"]))
    here = run(catalog.make("exact", 3), Xs, Plan(400, stop=1e-8))
    assert folder.evaluation().converged
    error = metrics.relative_error(np.vstack(Xs), np.vstack(here.codes), here.factor)
    assert folder.evaluation().error == pytest.approx(error, abs=1e-4)


def test_a_late_client_with_other_features_does_not_come_in(tmp_path):
    Xs, names = blocks(features=6), [[f"g{i}" for i in range(6)] for _ in range(4)]
    terms = terms_of(rounds=6, names=NAMES[:3], features="intersection")
    with pytest.raises(Short):
        federation(tmp_path, Xs[:3], terms, names=names[:3], stop=after(1))
    Xs[3], names[3] = Xs[3][:, 1:], names[3][1:]
    with pytest.raises(Unfit, match="dave"):
        federation(tmp_path, Xs, terms.joined_by(["dave"]), names=names)
    folder, _ = federation(tmp_path, Xs[:3], terms, names=names[:3])
    np.testing.assert_allclose(folder.factor()[0], run(catalog.make("exact", 3), Xs[:3], Plan(6)).factor, atol=1e-9)


def again(terms, names, **config):
    """Return the terms of a run that goes on from another one."""
    told = {**terms.plain(), "run": "r2", "after": terms.run}
    told["config"] = {**told["config"], "inputs": names, **config}
    return RunTerms.read(told)


def test_one_upload_of_a_late_client_joins_those_that_are_kept(tmp_path):
    Xs = blocks()
    terms = terms_of(method="oneshot", names=NAMES[:3])
    federation(tmp_path, Xs[:3], terms)
    folder, heard = federation(tmp_path, Xs, again(terms, NAMES))
    np.testing.assert_allclose(folder.factor()[0], run(catalog.make("oneshot", 3), Xs, Plan()).factor, atol=1e-8)
    assert sum(b'"answer"' in frame for frame in heard) == 1  # only dave has sent anything
    assert ("dave", going_on.LATE) in events_of(folder)
    assert not (tmp_path / "server" / "r1").exists()


def test_a_client_is_forgotten(tmp_path):
    Xs, terms = blocks(), terms_of(method="oneshot")
    federation(tmp_path, Xs, terms)
    assert list(uploads.load(tmp_path / "server" / "r1")) == NAMES
    folder, heard = federation(tmp_path, Xs[:3], again(terms, NAMES[:3], forgotten=["dave"]))
    here = run(catalog.make("oneshot", 3), Xs[:3], Plan())
    np.testing.assert_allclose(folder.factor()[0], here.factor, atol=1e-8)
    assert not any(b'"answer"' in frame for frame in heard)
    assert ("dave", MERGED) in events_of(folder)
    assert folder.config().forgotten == ["dave"]
    assert list(uploads.load(folder.path)) == NAMES[:3]
    assert (folder.path / "forgotten" / "1" / "ledger.jsonl").exists()
    assert not (tmp_path / "server" / "r1").exists()  # its upload is nowhere


def test_a_client_is_forgotten_by_more_rounds(tmp_path):
    Xs, terms = blocks(), terms_of(rounds=200, tol=1e-6)
    federation(tmp_path, Xs, terms)
    folder, _ = federation(tmp_path, Xs[:3], again(terms, NAMES[:3], forgotten=["dave"]))
    alone, _ = federation(tmp_path / "alone", Xs[:3], terms_of(rounds=200, tol=1e-6, names=NAMES[:3]))
    assert folder.evaluation().error == pytest.approx(alone.evaluation().error, abs=1e-4)
    assert ("dave", CONTINUED) in events_of(folder)
    assert isinstance(terms.patience, Patience)
