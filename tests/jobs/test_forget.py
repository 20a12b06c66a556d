"""A client is forgotten: the run is what it would have been without it, and says so; or it is refused in words."""

import json
import shutil

import numpy as np
import pytest
from tests.helpers.command import cofactor
from tests.helpers.federation import blocks
from tests.helpers.kills import Killed, kill_at
from tests.helpers.processes import BIN, launch

from cofactor.engines import host
from cofactor.engines.history import draws
from cofactor.jobs import uploads
from cofactor.jobs.config import Config
from cofactor.jobs.folder import RunFolder
from cofactor.jobs.forget import CONTINUED, MERGED, forget
from cofactor.jobs.inspect import audit
from cofactor.jobs.job import fit
from cofactor.jobs.new_rows import transform
from cofactor.types import CofactorError

NAMES = ("alice", "bob", "carol", "dave")


@pytest.fixture
def home(tmp_path):
    for name, X in zip(NAMES, blocks((60, 45, 70, 50), features=24, seed=4), strict=True):
        np.save(tmp_path / f"{name}.npy", X)
    return tmp_path


def files(home, *names):
    return [str(home / f"{name}.npy") for name in names]


@pytest.mark.parametrize("method", ["oneshot", "consensus", "oneshot-lap"])
@pytest.mark.parametrize("client", ["bob", "dave"])
def test_uploads_are_merged_anew(home, monkeypatch, method, client):
    """To the factor and the codes of a run in which the client never was, with the seeds that the others had."""
    others = [name for name in NAMES if name != client]
    fit(Config(files(home, *NAMES), 3, method=method), home / "run")
    folder = forget(home / "run", client)
    numbers = [NAMES.index(name) for name in others]
    monkeypatch.setattr(host, "draws", lambda seed, j, t, **how: draws(seed, numbers[j], t, **how))
    alone = fit(Config(files(home, *others), 3, method=method), home / "alone")
    np.testing.assert_allclose(folder.factor()[0], alone.factor()[0], atol=1e-8)
    for name in others:
        mine, theirs = (f.client(name).path / "codes.npy" for f in (folder, alone))
        np.testing.assert_allclose(np.load(mine), np.load(theirs), atol=1e-8)
    assert folder.evaluation().error == pytest.approx(alone.evaluation().error, abs=1e-8)
    assert list(uploads.load(folder.path)) == others
    assert not folder.client(client).path.exists()


@pytest.mark.parametrize("method", ["oneshot", "exact"])
def test_new_rows_are_prepared_as_before(home, method):
    """What the steps had learned was deleted with the run before, so that new rows were not prepared."""
    fit(Config(files(home, *NAMES), 3, method=method, prepare="library=10,log1p"), home / "run")
    folder = forget(home / "run", "dave")
    codes = np.load(folder.client("bob").path / "codes.npy")
    np.testing.assert_allclose(transform(folder, home / "bob.npy").codes, codes, atol=1e-8)
    (folder.path / "preparation.npz").unlink()  # as in runs that have forgotten before
    np.testing.assert_allclose(transform(folder, home / "bob.npy").codes, codes, atol=1e-8)


def test_without_the_last_client_it_is_the_plain_run_of_the_others(home):
    fit(Config(files(home, *NAMES), 3, method="oneshot"), home / "run")
    alone = fit(Config(files(home, *NAMES[:3]), 3, method="oneshot"), home / "alone")
    np.testing.assert_allclose(forget(home / "run", "dave").factor()[0], alone.factor()[0], atol=1e-8)


@pytest.mark.parametrize("client", ["alice", "bob", "dave"])
def test_rounds_go_on_over_the_sums_of_the_others(home, client):
    others = [name for name in NAMES if name != client]
    fit(Config(files(home, *NAMES), 3, rounds=200, tol=1e-6), home / "run")
    folder = forget(home / "run", client)
    alone = fit(Config(files(home, *others), 3, rounds=200, tol=1e-6), home / "alone")
    assert folder.evaluation().error == pytest.approx(alone.evaluation().error, abs=1e-4)
    assert [line.client for line in folder.evaluation().clients] == others
    assert folder.evaluation().converged


@pytest.mark.parametrize("method", ["oneshot", "exact"])
def test_runs_of_several_processes(home, method):
    """A folder that mpiexec wrote forgets as any other: the files of its clients are read by one process."""
    words = ["fit", *(f"{name}.npy" for name in NAMES), "-k", 3, "--method", method, "--engine", "mpi", "--out", "run"]
    launch(2, BIN / "cofactor", *words, "--quiet", cwd=home)
    cofactor("forget", "run", "--client", "dave", cwd=home)
    folder = RunFolder.open(home / "run")
    assert folder.verify().ok
    alone = fit(Config(files(home, *NAMES[:3]), 3, method=method), home / "alone")
    if method == "oneshot":
        np.testing.assert_allclose(folder.factor()[0], alone.factor()[0], atol=1e-8)
    assert folder.evaluation().error == pytest.approx(alone.evaluation().error, abs=1e-4)
    assert [line.client for line in folder.evaluation().clients] == ["alice", "bob", "carol"]
    assert not list((home / "run").glob("checkpoint*-of-*"))  # the states of its processes had the client in them


def test_records_ledger_and_report_say_so_and_it_can_be_done_again(home):
    fit(Config(files(home, *NAMES), 3, method="oneshot"), home / "run")
    before = (home / "run" / "ledger.jsonl").read_text()
    said = cofactor("forget", "run", "--client", "bob", cwd=home).stdout
    assert "bob" not in said
    folder = RunFolder.open(home / "run")
    assert folder.verify().ok
    assert folder.config().forgotten == ["bob"]
    assert folder.manifest()["config"]["forgotten"] == ["bob"]
    assert [line.client for line in folder.inputs()] == ["alice", "carol", "dave"]
    assert (home / "run" / "forgotten" / "1" / "ledger.jsonl").read_text() == before
    assert RunFolder.open(home / "run" / "forgotten" / "1").verify().ok
    assert {path.name for path in (home / "run" / "forgotten" / "1").iterdir()} == {"manifest.json", "ledger.jsonl"}
    assert f"<bdi>bob</bdi></th><td>{MERGED}" in (home / "run" / "report.html").read_text()
    assert "bob was forgotten" in cofactor("ledger", "show", "run", cwd=home).stdout
    cofactor("forget", "run", "--client", "carol", cwd=home)
    events = [json.loads(line) for line in (home / "run" / "events.jsonl").read_text().splitlines()]
    assert [(e["client"], e["what"]) for e in events] == [("bob", MERGED), ("carol", MERGED)]
    assert len(list((home / "run" / "forgotten").iterdir())) == 2
    assert {p.name for p in home.iterdir() if p.is_dir()} == {"run"}


def test_clients_of_one_file(home):
    X = np.vstack(blocks((30, 30, 30)))
    np.save(home / "all.npy", X)
    fit(Config([str(home / "all.npy")], 3, split=3, by="rows", rounds=100), home / "run")
    folder = forget(home / "run", "client-1")
    assert [line.client for line in folder.evaluation().clients] == ["client-0", "client-2"]
    np.save(home / "x.npy", X[:30])
    np.save(home / "z.npy", X[60:])
    alone = fit(Config(files(home, "x", "z"), 3, rounds=100), home / "alone")
    assert folder.evaluation().error == pytest.approx(alone.evaluation().error, abs=1e-4)
    assert json.loads((folder.path / "events.jsonl").read_text())["what"] == CONTINUED


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"method": "fedavg", "rounds": 2}, "method 'fedavg' mixes what clients send into later rounds"),
        ({"method": "ipalm"}, "method 'ipalm' mixes"),
        ({"rounds": 2, "secure": True}, "nothing of single clients was kept"),
        ({"method": "dp-moments", "epsilon": 1.0, "delta": 1e-6}, "what was released stays released"),
        ({"rounds": 2, "prepare": "scale"}, "prepare: scale has learned from all clients"),
    ],
)
def test_where_only_a_new_run_forgets(home, settings, words):
    fit(Config(files(home, *NAMES), 3, **settings), home / "run")
    factor = RunFolder.open(home / "run").factor()[0]
    with pytest.raises(CofactorError, match=f"{words}.*Only a new run without it forgets"):
        forget(home / "run", "bob")
    np.testing.assert_array_equal(RunFolder.open(home / "run").factor()[0], factor)
    assert uploads.FILE not in {path.name for path in (home / "run").iterdir()}


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"epsilon": 1.0, "delta": 1e-6}, "this run is private"), ({"secure": True, "rounds": 2}, "under masks")],
)
def test_a_run_that_was_private_stays_so_whatever_run_toml_says(home, settings, words):
    """It was run again without noise, and what it had spent was deleted with its charges."""
    fit(Config(files(home, *NAMES), 3, **settings), home / "run")
    toml = (home / "run" / "run.toml").read_text().splitlines(keepends=True)
    bare = [line for line in toml if not line.startswith(("epsilon", "delta", "method", "secure"))]
    (home / "run" / "run.toml").write_text("".join(bare))
    before = sorted(path.name for path in (home / "run").iterdir())
    with pytest.raises(CofactorError, match=words):
        forget(home / "run", "bob")
    assert sorted(path.name for path in (home / "run").iterdir()) == before


def test_mistakes(home):
    fit(Config(files(home, *NAMES), 3, method="oneshot"), home / "run")
    said = cofactor("forget", "run", "--client", "eve", cwd=home, check=2).stderr
    assert "client: expected one of alice, bob, carol, dave; found 'eve'" in said
    np.save(home / "carol.npy", np.ones((5, 24)))
    with pytest.raises(CofactorError, match="expected the data that the run began with"):
        forget(home / "run", "bob")
    assert cofactor("forget", "none", "--client", "bob", cwd=home, check=2).stderr.startswith("cofactor: ")
    fit(Config(files(home, "alice", "bob"), 3, method="oneshot"), home / "two")
    with pytest.raises(CofactorError, match="at least two clients besides 'bob', found 1"):
        forget(home / "two", "bob")


def test_files_of_somebody_else_are_not_deleted(home):
    """Notes in a run folder were gone; a copy of the run called run.old was in the way after all work was done."""
    folder = fit(Config(files(home, *NAMES), 3, method="oneshot", prepare="library"), home / "run")
    cofactor("report", "run", cwd=home)
    cofactor("rank", *files(home, *NAMES), "-k", "2:3", "--out", "run", "--quiet", cwd=home)
    (home / "run.old").mkdir()
    (home / "run.old" / "notes.txt").write_text("of the copy")
    (folder.path / "notes.txt").write_text("mine")
    with pytest.raises(CofactorError, match=r"run: expected only what the run has written, found 'notes.txt'; "):
        forget(home / "run", "bob")
    (folder.path / "notes.txt").rename(home / "notes.txt")
    forget(home / "run", "bob")
    forget(home / "run", "carol")
    assert (home / "run.old" / "notes.txt").read_text() == "of the copy"
    assert not list(home.glob("run.again*"))


def test_killed_at_every_step_the_same_command_forgets_and_leaves_nothing_behind(home):
    """Codes and uploads of the client stayed in a folder beside the run, or the run was nowhere."""
    whole = fit(Config(files(home, *NAMES), 3, method="oneshot"), home / "whole")
    reached, found = [""], None
    while found is None:
        run = home / f"run{len(reached)}"
        shutil.copytree(whole.path, run)
        try:
            with kill_at(len(reached) - 1) as seen:
                found = forget(run, "bob")
        except Killed:
            reached.append(seen[-1])
        folder = forget(run, "bob") if found is None else found
        assert list(uploads.load(folder.path)) == ["alice", "carol", "dave"]
        assert not folder.client("bob").path.exists()
        assert [path for path in home.glob(f"{run.name}*") if path != run] == []
    assert {"the old folder: out of the way", "the new folder: in its place"} <= set(reached)
    with pytest.raises(CofactorError, match="found 'bob'"):
        forget(run, "bob")


@pytest.mark.parametrize("method", ["exact", "oneshot"])
def test_an_audit_finds_nothing_wrong_with_a_run_that_has_forgotten(home, method):
    """Rounds that went on from a factor have no uploads: the audit took their sums for what nobody had declared."""
    fit(Config(files(home, *NAMES), 3, method=method), home / "run")
    forget(home / "run", "bob")
    assert {found.audit: found.passed for found in audit(home / "run")} == {"hash chain": True, "transcript": True}
