"""A federation of real processes with real certificates on loopback: one server, four clients, many runs."""

import json
import shutil
import socket
import ssl
import subprocess
import sys

import numpy as np
import pytest
from tests.helpers.federation import blocks, factor_of, listening, running, wait_for

from cofactor import metrics, run
from cofactor.federation import kits, policy, start
from cofactor.jobs.folder import RunFolder
from cofactor.kinds import KINDS
from cofactor.methods import catalog
from cofactor.methods.build import Facts, build
from cofactor.plan import Plan
from cofactor.privacy import account

pytest.importorskip("nvflare")


@pytest.fixture(scope="module")
def data():
    return blocks((40, 30, 50, 35), features=24, rank=3, seed=3)


@pytest.fixture(scope="module")
def real(tmp_path_factory, data):
    with running(tmp_path_factory.mktemp("federation"), data) as federation:
        yield federation


def inline(data, name, rank=3, *, secure=False, **settings):
    """Return what the inline engine finds for the same settings."""
    plan = Plan(settings.get("rounds"), seed=settings.get("seed", 0), secure=secure)
    facts = Facts(len(data), data[0].shape[1], sum(len(X) for X in data))
    method, plan = build(name, rank, plan, facts, KINDS[catalog.CATALOG[name].kind].options)
    return run(method, data, plan)


def refused(real, context):
    """Whether the server hangs up on a stranger before it says anything."""
    try:
        line = socket.create_connection(("localhost", real.port), timeout=10)
        with line, context.wrap_socket(line, server_hostname="localhost") as tls:
            tls.settimeout(10)
            tls.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9))
            return tls.recv(100) == b""
    except (ssl.SSLError, ConnectionError):
        return True


def stranger(certificate=None, key=None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    if certificate:
        context.load_cert_chain(certificate, key)
    return context


def test_nobody_comes_in_without_a_certificate_of_this_federation(real, tmp_path):
    assert refused(real, stranger())
    kits.new_root(tmp_path, "other")
    key = kits.new_key(tmp_path / "alice.key")
    (tmp_path / "alice.crt").write_bytes(kits.sign(tmp_path, key.public_key(), "alice"))
    assert refused(real, stranger(tmp_path / "alice.crt", tmp_path / "alice.key"))
    startup = real.home / "alice-home" / "startup"
    assert not refused(real, stranger(startup / "client.crt", startup / "client.key"))  # and a member does


def test_a_client_cannot_take_the_name_of_another(real):
    """Mallory has alice's certificate, and says that it is bob."""
    home = real.home / "mallory-home"
    shutil.copytree(real.home / "alice-home" / "startup", home / "startup")
    shutil.copytree(real.home / "alice-home" / "local", home / "local")
    command = [sys.executable, "-m", start.CLIENT, "-m", str(home), "-s", "fed_client.json", "--set"]
    command += ["secure_train=true", "uid=bob", "org=cofactor", "config_folder=config"]
    with open(home / "console.txt", "wb") as console:
        mallory = subprocess.Popen(command, stdout=console, stderr=console, cwd=home)
    try:
        log, server = home / "log.txt", real.home / "federation" / "server" / "log.txt"
        refused = "authenticated as 'alice' but claimed endpoint 'bob'"
        wait_for(lambda: server.read_text().count(refused) > 1 or mallory.poll() is not None, "mallory")
        assert "Successfully registered" not in log.read_text()
    finally:
        mallory.kill()
        mallory.wait()


@pytest.mark.parametrize("name", ["oneshot", "fnmf-lap", "fedavg"])
def test_the_factor_is_that_of_the_inline_engine(real, data, name):
    """And that of `exact`, in test_faults.py: whatever happens on the way."""
    folder = real.fit(f"run-{name}", rank=3, method=name, rounds=10, tol=0.0, seed=2)
    here = inline(data, name, rounds=10, seed=2)
    assert np.abs(factor_of(folder) - here.factor).max() <= 1e-6
    assert len((folder / "history.jsonl").read_text().splitlines()) == len(here.history)
    assert (folder / "report.html").exists()


def test_a_boolean_run(real, data):
    for name, X in zip(real.names, data, strict=True):
        real.give(name, (X > 1).astype(float))
    folder = real.fit("run-felb", rank=3, method="felb", rounds=8, tol=0.0, seed=2)
    bits = [(X > 1).astype(float) for X in data]
    for name, X in zip(real.names, data, strict=True):
        real.give(name, X)
    assert np.abs(factor_of(folder) - inline(bits, "felb", rounds=8, seed=2).factor).max() <= 1e-6


def test_clients_answer_one_by_one(real):
    """An asynchronous method, in real time: everybody's updates are merged as they arrive."""
    folder = real.fit("run-stream", rank=3, method="asyn-sd", seed=2, rounds=50)
    found = json.loads((folder / "arrivals.json").read_text())
    assert {arrival["client"] for arrival in found["arrivals"]} == set(real.names)
    assert found["absent"] == []
    losses = [json.loads(line)["loss"] for line in (folder / "history.jsonl").read_text().splitlines()]
    # each is of the rows of the client that came, and how far it comes down depends on who came when
    assert np.mean(losses[-20:]) < 0.8 * np.mean(losses[:4])


def test_one_name_is_one_client(real):
    """An invite that was used, at another place; the same folder, started twice: refused, and nothing is lost."""
    words = ["join", "federation/invites/alice.cofactor", "--data", "alice.npy"]
    said = real.command(*words, "--home", "thief", expect=2)
    assert "this invite was used already; ask the coordinator for a new one" in said
    said = real.command(*words, expect=2)
    assert "the folder of client alice: expected to hold it alone" in said
    copied = shutil.ignore_patterns("runs", "running.lock", "*-*-*-*-*")
    shutil.copytree(real.home / "alice-home", real.home / "copied", ignore=copied)
    count = real.registrations("alice")
    said = real.command(*words, "--home", "copied", expect=2)
    assert "a copy of it takes part from another machine or folder; the two would evict each other" in said
    assert real.registrations("alice") == count
    real.command("federation", "invite", "alice")  # alice has lost its folder, say
    real.start("again", *words, "--home", "again")
    wait_for((real.home / "again" / "startup" / "client.crt").exists, "the new certificate")
    real.kill("again")
    count = real.registrations("alice")
    real.kill("alice")
    real.join("alice")
    wait_for(lambda: real.registrations("alice") > count, "alice")


def test_a_client_of_another_version_ends_the_command_that_asked(real):
    """It runs another version: fixed words for the coordinator. The next test is a run of all of them."""
    ask = ["fit", "--engine", "flare", "--config", real.write("again", rank=3, rounds=2, tol=0.0), "--out"]
    count = real.registrations("dave")
    real.kill("dave")
    real.join("dave", env=listening(COFACTOR_TEST_VERSION="0.0.1"))
    wait_for(lambda: real.registrations("dave") > count, "dave of another version")
    said = real.command(*ask, "version", expect=2)
    assert "client dave: it runs another version of cofactor than the coordinator" in said
    count = real.registrations("dave")
    real.kill("dave")
    real.join("dave")
    wait_for(lambda: real.registrations("dave") > count, "dave")


def test_secure_sums_over_the_network(real, data):
    folder = real.fit("run-secure", rank=3, method="exact", rounds=6, tol=0.0, seed=2, secure=True)
    assert np.abs(factor_of(folder) - inline(data, "exact", rounds=6, seed=2, secure=True).factor).max() <= 1e-5


@pytest.fixture
def ledger(real):
    """Bob's ledger over runs, which its policy says to charge."""
    file, rules = real.home / "bob-home" / "site.jsonl", real.home / "bob-home" / policy.FILE
    account.new(file, epsilon=1.2, delta=1e-6)
    rules.write_text('ledger = "site.jsonl"\nepsilon = 1.0\n')
    yield file
    rules.write_text(policy.TEXT)


def test_a_private_run_is_paid_for_at_the_clients_and_one_beyond_the_budget_is_refused(real, ledger):
    """Every client signs what left it and charges it first; bob's ledger over runs has no room for a second run."""
    settings = {"rank": 3, "method": "dp-nmf", "rounds": 3, "epsilon": 1.0, "delta": 1e-6}
    folder = RunFolder.open(real.fit("run-private", **settings))
    assert folder.verify().ok
    assert not list(folder.path.rglob("*.key"))
    assert folder.evaluation().privacy.epsilon == pytest.approx(1.0, rel=1e-6)
    run_name = json.loads((folder.path / "federation.json").read_text())["terms"]["run"]
    for name in real.names:
        kept = RunFolder.open(real.home / f"{name}-home" / "runs" / run_name)
        assert (kept.verify().ok, kept.verify().own, len(kept.charged())) == (True, [name], 3)
        assert policy.spent(real.home / f"{name}-home") == {run_name: pytest.approx(1.0, rel=1e-6)}
    spent = account.read(ledger).spent().epsilon
    assert 0.5 < spent <= 1.0 + 1e-6
    ask = ["fit", "--engine", "flare", "--config", real.write("more", **settings), "--out", "more"]
    assert "client bob: its policy does not allow more: what all runs together" in real.command(*ask, expect=2)
    run_name = json.loads((real.home / "more" / "federation.json").read_text())["terms"]["run"]
    assert not any(file.read_text() for file in real.home.glob(f"*-home/runs/{run_name}/ledger.jsonl"))
    assert account.read(ledger).spent().epsilon == spent


def test_a_client_is_forgotten_and_comes_late(real, data):
    """Dave is taken out of the run of one upload; dave comes when the others have run for some rounds."""
    folder = real.home / "run-oneshot"
    real.command("forget", "run-oneshot", "--client", "dave")
    np.testing.assert_allclose(factor_of(folder), inline(data[:3], "oneshot", seed=2).factor, atol=1e-8)
    assert "dave: was forgotten" in [f"{e['client']}: {e['what'][:13]}" for e in real.events("run-oneshot")]
    for file in (real.home / "federation" / "server").rglob("uploads.npz"):
        with np.load(file) as kept:
            assert "dave" not in kept["clients"]
    real.kill("dave")
    settings = {"rank": 3, "method": "exact", "rounds": 250, "tol": 0.0, "seed": 2}
    process = real.begin("late", **settings, federation={"silence": 30, "start": 10, "least": 3})
    wait_for(lambda: real.rounds("late") >= 3, "rounds of three clients")
    real.join("dave")
    process.wait(600)
    assert process.returncode == 0, (real.home / "late.log").read_text()
    said = [f"{e['client']}: {e['what']}" for e in real.events("late")]
    assert any(line.startswith("dave: has come late") for line in said), said
    lines = [json.loads(line) for line in (real.home / "late" / "history.jsonl").read_text().splitlines()]
    assert {3, 4} == {line["participants"] for line in lines}
    error = json.loads((real.home / "late" / "evaluation.json").read_text())["error"]
    here = inline(data, "exact", rounds=250, seed=2)
    assert error == pytest.approx(metrics.relative_error(np.vstack(data), np.vstack(here.codes), here.factor), abs=1e-4)
