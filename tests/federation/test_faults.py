"""Faults of real processes: killed, frozen, cut off, restarted. Every run ends with the right factor and says why."""

import os
import signal
import time
from datetime import UTC, datetime

import numpy as np
import pytest
from tests.helpers.federation import blocks, factor_of, running, wait_for

from cofactor import run
from cofactor.methods import catalog
from cofactor.plan import Plan

pytest.importorskip("nvflare")
ROUNDS = 600


@pytest.fixture(scope="module")
def data():
    return blocks((60, 50, 70, 40), features=40, rank=4, seed=5)


@pytest.fixture(scope="module")
def real(tmp_path_factory, data):
    """Alice is behind a line that can be cut."""
    with running(tmp_path_factory.mktemp("faults"), data, proxied="alice") as federation:
        yield federation


def started(federation, name, rounds=ROUNDS, **waits):
    settings = {"rank": 4, "method": "exact", "rounds": rounds, "tol": 0.0, "seed": 2}
    return federation.begin(name, **settings, federation={"silence": 20, **waits})


def ended(federation, process, name):
    """Wait for the end of a run; return its factor and what happened."""
    process.wait(400)
    assert process.returncode == 0, (federation.home / f"{name}.log").read_text()
    return factor_of(federation.home / name), [f"{e['client']}: {e['what']}" for e in federation.events(name)]


def test_one_run_survives_everything(real, data):
    """Frozen, cut off, its worker killed, the server killed, a client killed: the factor is that of a quiet run."""
    name = "long"
    process = started(real, name)
    real.reach(name, 5)
    real.signal("bob", signal.SIGSTOP)  # for longer than two pings
    time.sleep(15)
    real.signal("bob", signal.SIGCONT)
    real.reach(name, real.rounds(name) + 5)
    real.proxy.cut(10)
    real.reach(name, real.rounds(name) + 5)
    for pid in real.worker("carol"):
        os.kill(pid, signal.SIGKILL)
    real.reach(name, real.rounds(name) + 5)
    real.kill("server")
    real.serve()
    real.reach(name, real.rounds(name) + 5)
    count = real.registrations("dave")
    real.kill("dave")
    real.join("dave")
    wait_for(lambda: real.registrations("dave") > count, "dave")
    factor, events = ended(real, process, name)
    here = run(catalog.make("exact", 4), data, Plan(ROUNDS, seed=2))
    assert np.abs(factor - here.factor).max() <= 1e-6
    assert "bob: does not answer" in events
    assert "bob: answers again" in events
    assert "alice: does not answer" in events
    assert "alice: answers again" in events
    assert sum("submitted again" in e for e in events) >= 2


def test_with_a_quorum_the_others_go_on(real, data):
    """Dave dies in a step and stays away: noticed, given up, and the others' factor is that of a run without it."""
    name = "quorum"
    process = started(real, name, rounds=150, silence=8, least=3)
    real.reach(name, 10)
    killed = datetime.now(UTC)
    real.kill("dave")
    factor, events = ended(real, process, name)
    assert "dave: was silent for 8 s, and is given up" in events
    noticed = [e["time"] for e in real.events(name) if e["client"] == "dave" and e["what"] == "does not answer"]
    assert 0 < (datetime.fromisoformat(noticed[0]) - killed).total_seconds() < 10
    here = run(catalog.make("exact", 4), data[:3], Plan(150, seed=2)).factor
    assert np.abs(factor - here).max() <= 1e-6
    assert "is given up" in (real.home / name / "report.html").read_text()
    real.join("dave")
