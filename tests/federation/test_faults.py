"""Faults of real processes: killed, frozen, cut off, slow, full, restarted. Every run ends with the right factor.

Steps take 50 ms at least, so that runs last as long on a fast machine; nothing here ends because a machine is slow.
"""

import os
import signal
import time
from datetime import UTC, datetime

import numpy as np
import pytest
from tests.helpers.federation import blocks, factor_of, running, wait_for

from cofactor import metrics, run
from cofactor.federation.watch import contents
from cofactor.jobs.folder import RunFolder
from cofactor.methods import catalog
from cofactor.plan import Plan

pytest.importorskip("nvflare")
ROUNDS = 100


@pytest.fixture(scope="module")
def data():
    return blocks((60, 50, 70, 40), features=40, rank=4, seed=5)


@pytest.fixture(scope="module")
def real(tmp_path_factory, data):
    """Alice is behind a line that can be cut."""
    with running(tmp_path_factory.mktemp("faults"), data, proxied="alice", controlled=True) as federation:
        yield federation


def started(federation, name, rounds=ROUNDS, **waits):
    settings = {"rank": 4, "method": "exact", "rounds": rounds, "tol": 0.0, "seed": 2}
    return federation.begin(name, **settings, federation={"silence": 30, **waits})


def ended(federation, process, name, code=0):
    """Wait for the end of a run; return what happened, which the report and the page tell, too."""
    process.wait(600)
    assert process.returncode == code, (federation.home / f"{name}.log").read_text()
    events = [f"{e['client']}: {e['what']}" for e in federation.events(name)]
    if code == 0:
        shown = {f"{who}: {what}" for _, who, what in contents(federation.home / name)["events"]}
        assert {e for e in events[-200:] if e[0] != ":"} <= shown
        report = (federation.home / name / "report.html").read_text()
        assert all(e.split(": ", 1)[1] in report for e in events if "does not answer" in e or "is given up" in e)
    return events


def quiet(data, rounds=ROUNDS):
    """Return the run of the same settings in one process, where nothing happens."""
    return run(catalog.make("exact", 4), data, Plan(rounds, seed=2))


def noticed(federation, name, client, since):
    """Return the seconds until it was written down that a client does not answer."""
    times = [
        datetime.fromisoformat(e["time"])
        for e in federation.events(name)
        if e["client"] == client and e["what"] == "does not answer"
    ]
    return min((one - since).total_seconds() for one in times if one > since)


def test_one_run_survives_everything(real, data):
    """Frozen, cut off, its worker killed, the server killed, a client killed: the factor is that of a quiet run."""
    name = "long"
    process = started(real, name, silence=20)
    real.reach(name, 5)
    real.signal("bob", signal.SIGSTOP)
    real.proxy.cut(10)  # and at the same time alice cannot be reached
    time.sleep(15)
    real.signal("bob", signal.SIGCONT)
    real.reach(name, real.rounds(name) + 5)
    for pid in real.worker("carol"):
        os.kill(pid, signal.SIGKILL)
    real.reach(name, real.rounds(name) + 5)
    real.kill("server")
    real.serve()
    real.reach(name, real.rounds(name) + 5)
    real.fall_asleep("dave", 60)
    count, killed = real.registrations("dave"), datetime.now(UTC)
    real.kill("dave")  # in its step
    real.join("dave")
    wait_for(lambda: real.registrations("dave") > count, "dave")
    events = ended(real, process, name)
    assert np.abs(factor_of(real.home / name) - quiet(data).factor).max() <= 1e-6
    for line in ("bob: does not answer", "bob: answers again", "alice: does not answer", "alice: answers again"):
        assert line in events
    assert sum("submitted again" in e for e in events) >= 2
    assert noticed(real, name, "dave", killed) < 10


def test_with_a_quorum_the_others_go_on(real, data):
    """Dave dies between two steps and stays away: noticed, given up, and the factor is that of a run without it."""
    name = "quorum"
    process = started(real, name, rounds=50, silence=12, least=3)
    real.reach(name, 10)
    real.fall_asleep("bob", 4)
    time.sleep(2)  # dave's step is done, bob's is not
    killed = datetime.now(UTC)
    real.kill("dave")
    events = ended(real, process, name)
    assert "dave: was silent for 12 s, and is given up" in events
    assert noticed(real, name, "dave", killed) < 10
    assert np.abs(factor_of(real.home / name) - quiet(data[:3], 50).factor).max() <= 1e-6
    count = real.registrations("dave")
    real.join("dave")
    wait_for(lambda: real.registrations("dave") > count, "dave")


def test_a_slow_client_and_a_full_disk(real, data):
    """Bob sleeps beyond the deadline, and its answer counts for neither side; carol can write nothing down."""
    name = "slow"
    real.fill("carol")
    process = started(real, name, rounds=100, deadline=5, least=3)
    real.reach(name, 10)
    real.fall_asleep("bob", 12)
    events = ended(real, process, name)
    (real.home / "carol.full").unlink()
    assert "bob: took longer than 5 s; the others go on" in events
    assert "carol: cannot write its state; the run goes on without" in events
    here = quiet(data, 100)
    error = metrics.relative_error(np.vstack(data), np.vstack(here.codes), here.factor)
    assert RunFolder.open(real.home / name).evaluation().error == pytest.approx(error, abs=1e-4)


def test_data_that_changed_end_the_command_and_lose_nothing(real, data):
    """Carol's file is another one when its worker is started again: refused; with the old one the run goes on."""
    name = "changed"
    process = started(real, name, rounds=60)
    real.reach(name, 5)
    real.give("carol", data[2] + 1)
    for pid in real.worker("carol"):
        os.kill(pid, signal.SIGKILL)
    ended(real, process, name, code=2)
    said = (real.home / f"{name}.log").read_text()
    assert "client carol: its data are not those that the run began with" in said
    real.give("carol", data[2])
    real.command("resume", name)
    assert np.abs(factor_of(real.home / name) - quiet(data, 60).factor).max() <= 1e-6
