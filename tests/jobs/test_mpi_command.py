"""Jobs of several processes from the command line: killed and resumed, failing as one, reading their parts only."""

import json
import subprocess
import time

import anndata
import numpy as np
import pandas as pd
import pytest
from tests.helpers.processes import BIN, launch, words

from cofactor import run
from cofactor.data import synthetic
from cofactor.methods import catalog
from cofactor.methods.blocks import blocks
from cofactor.plan import Stop

ROUNDS = 150


@pytest.fixture(scope="module")
def big():
    return np.vstack(synthetic.blocks(2, 150, features=40, rank=5, seed=5).Xs)


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
