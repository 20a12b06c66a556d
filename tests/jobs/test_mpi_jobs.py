"""The command line under mpiexec writes the folder that one process writes, of every kind of data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.helpers.command import cofactor
from tests.helpers.folders import public, same_run
from tests.helpers.processes import BIN, launch
from tests.helpers.samples import SAMPLES, write

from cofactor.jobs.folder import RunFolder

NAMES = ("real", "union", "boolean", "ratings", "several", "clusters")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("mpi"))


@pytest.mark.parametrize("name", NAMES)
def test_three_processes_write_the_folder_of_one(home: Path, name: str) -> None:
    words = ("fit", *SAMPLES[name].words(), "-q")
    cofactor(*words, "--out", f"{name}-inline", cwd=home)
    done = launch(3, BIN / "cofactor", *words, "--engine", "mpi", "--out", f"{name}-mpi", cwd=home)
    assert (done.stdout, done.stderr) == ("", "")
    inline, mpi = RunFolder(home / f"{name}-inline"), RunFolder(home / f"{name}-mpi")
    assert "report.html" in public(mpi)
    same_run(inline, mpi)
    assert (mpi.path / "passports.json").exists() == (name == "real")
    assert "not in this run" not in (mpi.path / "report.html").read_text()
    assert cofactor("ledger", "verify", f"{name}-mpi", cwd=home).stdout.splitlines()[-1].startswith("ok")


def test_one_process_speaks_for_all(home: Path) -> None:
    words = ("fit", *SAMPLES["ratings"].words(), "--engine", "mpi", "--out", "told")
    done = launch(2, BIN / "cofactor", *words, cwd=home)
    assert done.stdout.count("held out by time") == 1
    assert done.stderr.count("round 6/6") == 1
    result = json.loads((home / "told" / "evaluation.json").read_text())
    assert len(result["clients"]) == 24


def test_what_one_process_cannot_read_is_told_once_and_leaves_no_folder(home: Path) -> None:
    words = ("fit", "x-stars.csv", "gone.csv", "--ratings", "-k", 2, "--engine", "mpi", "--out", "nothing")
    done = launch(2, BIN / "cofactor", *words, cwd=home, check=2)
    assert done.stderr.count("gone.csv: expected a file, found nothing there") == 1
    assert not (home / "nothing").exists()
    done = launch(
        3, BIN / "cofactor", "fit", "a.csv", "b.csv", "-k", 2, "--engine", "mpi", "--out", "nothing", cwd=home, check=2
    )
    assert done.stderr.count("expected at most 2 processes (the clients), found 3") == 1
    assert done.stderr.count("\n") == 1
