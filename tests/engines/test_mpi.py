"""The MPI engine: several processes give the inline result, fail together, and go on where they were killed."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pytest
import zarr
from scipy import sparse

from cofactor import run
from cofactor.data import synthetic
from cofactor.engines.history import Stop
from cofactor.engines.processes import Processes
from cofactor.methods import catalog
from cofactor.methods.blocks import blocks
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
    assert {name for kind in catalog.KINDS for name in catalog.names(kind)} <= names
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
        "ragged": "True process 0: ragged blocks: expected every one of 60 rows in the row block of one client, found",
        "short": "True process 0: ragged blocks: expected every one of 60 rows in the row block of one client, found",
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


def test_the_stream_over_processes(tmp_path):
    """Real time: the order of arrivals differs from run to run, where it leads to does not."""
    script(4, "streamed.py", "streamed.json", cwd=tmp_path)
    found = json.loads((tmp_path / "streamed.json").read_text())
    for name in ("asyn-sd", "asyn-ssd-v"):
        line = found[name]
        assert line["error"] <= 1.05 * line["inline"]
        assert line["alike"]
        assert len(line["clients"]) == 150
        assert set(line["clients"]) == {0, 1, 2, 3}
        assert max(line["staleness"]) > 0
        assert min(line["staleness"]) >= 0
        assert line["clock"] == sorted(line["clock"])
        assert line["bytes"] == [[8 * 4 * 40 + 16, 8 * 4 * 40]]
    assert set(found["server only"]["clients"]) == {0, 1, 2}
    sleepy = found["sleepy"]
    assert sleepy["absent"] == [3]
    assert sleepy["clients"].count(3) == 2
    assert len(sleepy["clients"]) == 60
    assert sleepy["alike"]
    assert len([w for w in sleepy["warned"] if "client 3 did not answer within the deadline of 0.5 s" in w]) == 1
    expected = {
        "step": "process 3: client 3, round 2: MemoryError: no room for the codes",
        "callback": "process 0: OSError: no space left",
        "two": "process 0: a stream over MPI needs one client on each process",
        "speeds": "speeds: expected none with an engine",
        "after": "done",
    }
    for name, text in expected.items():
        assert all(text in told for told in found["errors"][name]), found["errors"][name]


@pytest.mark.parametrize("name", ["exact", "dsanls"])
def test_a_killed_job_is_resumed_from_the_command_line(name, big, tmp_path):
    np.save(tmp_path / "big.npy", big)
    if name == "exact":
        method, parts = catalog.make(name, 5), [big[:150], big[150:]]
        steps = rounds = ROUNDS
    else:
        steps = ROUNDS // 2
        method, parts = catalog.make(name, 5, shape=big.shape, iterations=steps), blocks(big, 2)
        rounds = method.rounds
    options = ["--engine", "mpi", "big.npy", "-k", "5", "--method", name, "--rounds", str(steps), "--tol", "0"]
    history = tmp_path / "run" / "history.jsonl"
    job = subprocess.Popen(
        words(2, BIN / "cofactor", "fit", *options), cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    wait_for(lambda: lines(history) >= 10)
    job.kill()
    job.wait()
    wait_for(lambda: still(history))
    assert 10 <= lines(history) < rounds
    done = launch(2, BIN / "cofactor", "resume", "run", cwd=tmp_path)
    assert done.stderr.count(f"round {rounds}/{rounds}") == 1, "one progress display"
    assert "round 1/" not in done.stderr
    whole = run(method, parts, rounds=rounds, stop=Stop(0))
    np.testing.assert_allclose(np.load(tmp_path / "run" / "factor.npz")["factor"], whole.factor, atol=1e-6)
    for j, W in enumerate(whole.codes):
        found = np.load(tmp_path / "run" / "clients" / f"client-{j}" / "codes.npy")
        np.testing.assert_allclose(found, W, atol=1e-6)
    result = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert [line["client"] for line in result["clients"]] == ["client-0", "client-1"]
    assert lines(history) == rounds


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
    config = Config([str(tmp_path / name) for name in inputs], 3, split=2 if len(inputs) == 1 else None)
    with pytest.raises(CofactorError, match=r"expected at most 2 processes \(the clients\), found 3"):
        list(opened(config, 3))


@pytest.mark.parametrize("method", ["exact", "dsanls"])
def test_more_processes_than_rows_are_refused(method, big, tmp_path):
    np.save(tmp_path / "few.npy", big[:2])
    with pytest.raises(CofactorError, match=r"few\.npy: expected at most 2 processes \(its rows\), found 3"):
        list(opened(Config([str(tmp_path / "few.npy")], 1, method=method, split=3, by="rows"), 3))


FILES = {
    "big.npy": np.save,
    "big.npz": lambda path, X: sparse.save_npz(path, sparse.csr_matrix(X)),
    "big.csv": lambda path, X: np.savetxt(path, X, delimiter=","),
    "big.h5ad": lambda path, X: anndata.AnnData(X).write_h5ad(path),
    "sparse.h5ad": lambda path, X: anndata.AnnData(sparse.csr_matrix(X)).write_h5ad(path),
    "big.zarr": lambda path, X: zarr.save_array(str(path), X),
}


def opened(config, count):
    """Open a configuration as each of ``count`` processes would, one after the other."""
    team = Processes()
    team.count = count
    for team.here in range(count):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(team, "exchange", lambda where, value=None, **_: [value] * count)
            yield open_own(config, team).data


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_read_by_its_rows_or_by_its_blocks(name, big, tmp_path):
    FILES[name](tmp_path / name, big)
    config = Config([str(tmp_path / name)], 3, split=3, by="rows")
    parts = [dense(X) for data in opened(config, 3) for X in data]
    np.testing.assert_allclose(np.vstack(parts), big)
    assert [len(part) for part in parts] == [100, 100, 100]
    for j, data in enumerate(opened(replace(config, method="dsanls"), 3)):
        for found, expected in zip(data, [blocks(big, 3)[j]], strict=True):
            np.testing.assert_allclose(dense(found.row_block), expected.row_block)
            np.testing.assert_allclose(dense(found.column_block), expected.column_block)
            assert (found.first_row, found.first_column) == (expected.first_row, expected.first_column)


def dense(X):
    return X.toarray() if sparse.issparse(X) else X


def test_groups_of_cells_on_several_processes_give_the_inline_result(big, tmp_path):
    """Rows of a group lie scattered in the file; --group-by reads those of the own groups."""
    site = np.array(["b", "a", "c"])[np.arange(300) % 3]
    anndata.AnnData(big, obs=pd.DataFrame({"site": site}, index=np.arange(300).astype(str))).write_h5ad(
        tmp_path / "x.h5ad"
    )
    words = ("fit", "x.h5ad", "-k", 4, "--group-by", "site", "--rounds", 4, "-q")
    launch(2, BIN / "cofactor", *words, "--engine", "mpi", "--out", "mpi", cwd=tmp_path)
    there = run(catalog.make("exact", 4), [big[site == name] for name in "abc"], rounds=4)
    np.testing.assert_allclose(np.load(tmp_path / "mpi" / "factor.npz")["factor"], there.factor, atol=1e-6)
    for name, W in zip("abc", there.codes, strict=True):
        np.testing.assert_allclose(np.load(tmp_path / "mpi" / "clients" / name / "codes.npy"), W, atol=1e-6)


def test_a_process_that_cannot_read_its_part_ends_all(big, tmp_path):
    """Line 200 belongs to the second process: the first one has nothing to complain about."""
    lines = [",".join(map(str, row)) for row in big.tolist()]
    lines[199] = "x" + lines[199][lines[199].index(",") :]
    (tmp_path / "x.csv").write_text("\n".join(lines) + "\n")
    done = launch(2, BIN / "cofactor", "fit", "--engine", "mpi", "x.csv", "-k", 3, cwd=tmp_path, check=2)
    assert done.stderr.startswith("cofactor: process 1: ")
    assert done.stderr.count("line 200: expected a number in column 1, found 'x'") == 1
    assert not (tmp_path / "run").exists()


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


def test_asynchronous_methods_from_the_command_line_are_streams(tmp_path, big):
    np.save(tmp_path / "big.npy", big)
    launch(3, BIN / "cofactor", "fit", "--engine", "mpi", "big.npy", "-k", 5, "--method", "asyn-sd", "--rounds", 10,
           "--out", "run", "--quiet", cwd=tmp_path)  # fmt: skip
    told = json.loads((tmp_path / "run" / "arrivals.json").read_text())
    assert len(told["arrivals"]) == 30
    assert {line["client"] for line in told["arrivals"]} == {"client-0", "client-1", "client-2"}
    assert max(line["staleness"] for line in told["arrivals"]) > 0
    assert told["absent"] == []
    assert json.loads((tmp_path / "run" / "evaluation.json").read_text())["error"] < 0.5
    launch(1, BIN / "cofactor", "ledger", "verify", "run", cwd=tmp_path)
