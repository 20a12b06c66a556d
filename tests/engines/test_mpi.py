"""The MPI engine: several processes give the inline result, fail together, and go on where they were killed."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from cofactor import run
from cofactor.data import synthetic
from cofactor.engines.history import Stop
from cofactor.engines.processes import Processes
from cofactor.methods import catalog
from cofactor.runs.config import Config
from cofactor.runs.mpi import open_own
from cofactor.types import CofactorError

BIN = Path(sys.executable).parent
SCRIPTS = Path(__file__).parent / "mpi"
ROUNDS = 150


def words(count, *command):
    return [str(BIN / "mpiexec"), "-n", str(count), *map(str, command)]


def launch(count, *command, cwd, check=0):
    """Run a command on ``count`` processes of one thread each; a hang is a failure."""
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        words(count, *command), cwd=cwd, env=env, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == check, done.stdout + done.stderr
    return done


def script(count, name, *arguments, cwd, check=0):
    return launch(count, sys.executable, SCRIPTS / name, *arguments, cwd=cwd, check=check)


@pytest.fixture(scope="module")
def big():
    return np.vstack(synthetic.blocks(2, 150, features=40, rank=5, seed=5).Xs)


def test_every_method_gives_the_inline_result(tmp_path):
    script(3, "equal.py", "equal.json", cwd=tmp_path)
    lines = json.loads((tmp_path / "equal.json").read_text())
    names = {line["name"] for line in lines}
    assert {*catalog.names(), *catalog.names(boolean=True)} <= names
    far = [line for line in lines if line["gap"] > (2e-5 if line["name"] == "single precision" else 1e-6)]
    assert not far
    assert [line for line in lines if not (line["same"] and line["alike"])] == []


def test_what_goes_wrong_on_one_process_is_raised_on_all(tmp_path):
    script(3, "failures.py", "failures.json", cwd=tmp_path)
    found = json.loads((tmp_path / "failures.json").read_text())
    expected = {
        "nan": "True process 2: client 2: NaN: expected finite values >= 0, found 1 such cell(s), the first at row 4",
        "step": "True process 2: client 2, round 2: MemoryError: no room for the codes",
        "message": "True process 2: client 2, round 0: expected finite numbers in 'cross'",
        "features": "True process 2: client 2: expected 9 features like client 0, found 8",
        "empty": "True process 2: expected at least one client on each of 3 processes, found none here and 2 in all",
        "callback": "True process 0: OSError: no space left",
        "disagree": "True process 1: expected at 'refit' like process 0, found at 'round 1'",
        "plan": "False rounds must be at least 1",
        "fine": "done",
    }
    for name, text in expected.items():
        assert len(set(found[name])) == 1, name
        assert found[name][0].startswith(text)


def test_checkpoints_of_processes_that_were_cut_or_killed(tmp_path):
    script(2, "resumed.py", ".", "cut", cwd=tmp_path, check=9)  # it ends in a round that a process does not survive
    assert all(json.loads((tmp_path / "cut.json").read_text()).values())
    script(2, "resumed.py", ".", "resumed", cwd=tmp_path)
    found = json.loads((tmp_path / "resumed.json").read_text())
    assert found["same"]
    assert found["first"] in (4, 5)
    assert "expected the 2 processes that wrote the checkpoint, found 1" in found["told"]


def test_a_killed_job_is_resumed_from_the_command_line(big, tmp_path):
    np.save(tmp_path / "big.npy", big)
    options = ["--engine", "mpi", "big.npy", "-k", "5", "--rounds", str(ROUNDS), "--tol", "0", "--out", "run"]
    history = tmp_path / "run" / "history.jsonl"
    job = subprocess.Popen(
        words(2, BIN / "cofactor", "fit", *options), cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    wait_for(lambda: lines(history) >= 10)
    job.kill()
    job.wait()
    wait_for(lambda: still(history))
    assert 10 <= lines(history) < ROUNDS
    done = launch(2, BIN / "cofactor", "resume", "run", cwd=tmp_path)
    assert done.stderr.count(f"round {ROUNDS}/{ROUNDS}") == 1, "one progress display"
    assert "round 1/" not in done.stderr
    whole = run(catalog.make("exact", 5), [big[:150], big[150:]], rounds=ROUNDS, stop=Stop(0))
    np.testing.assert_allclose(np.load(tmp_path / "run" / "factor.npz")["factor"], whole.factor, atol=1e-6)
    for j, W in enumerate(whole.codes):
        found = np.load(tmp_path / "run" / "clients" / f"client-{j}" / "codes.npy")
        np.testing.assert_allclose(found, W, atol=1e-6)
    result = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert [line["client"] for line in result["clients"]] == ["client-0", "client-1"]
    assert lines(history) == ROUNDS


def test_the_command_line_fails_once(big, tmp_path):
    np.save(tmp_path / "fine.npy", big)
    fit = (BIN / "cofactor", "fit", "--engine", "mpi", "-k", 3)
    done = launch(2, *fit, "fine.npy", "gone.npy", cwd=tmp_path, check=2)
    assert done.stderr.startswith("cofactor: process 1: ")
    assert done.stderr.count("gone.npy: expected a file, found nothing there") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("inputs", [["fine.npy", "fine.npy"], ["fine.npy"]])
def test_more_processes_than_clients_are_refused(inputs, big, tmp_path):
    np.save(tmp_path / "fine.npy", big)
    team = Processes()
    team.count = 3
    config = Config([str(tmp_path / name) for name in inputs], 3, split=2 if len(inputs) == 1 else None)
    with pytest.raises(CofactorError, match=r"expected at most 2 processes \(the clients\), found 3"):
        open_own(config, team)


def test_a_file_is_read_by_its_rows(big, tmp_path):
    np.save(tmp_path / "big.npy", big)
    team, parts = Processes(), []
    for team.here in range(3):
        team.count = 3
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(team, "exchange", lambda where, value=None, **_: [value] * 3)
            parts += open_own(Config([str(tmp_path / "big.npy")], 3, split=3, by="rows"), team).data
    assert [len(part) for part in parts] == [100, 100, 100]
    np.testing.assert_array_equal(np.vstack(parts), big)


def test_without_mpi4py_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(CofactorError, match=r"pip install 'cofactor\[mpi\]'"):
        Processes()


def lines(path):
    return path.read_text().count("\n") if path.exists() else 0


def still(path):
    before = lines(path)
    time.sleep(0.5)
    return lines(path) == before


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
