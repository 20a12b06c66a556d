"""Run folders for the report, written by the job that writes them for everyone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.helpers.command import cofactor

from cofactor import records
from cofactor.data import datasets, partition
from cofactor.jobs.config import Config
from cofactor.jobs.folder import RunFolder
from cofactor.jobs.job import fit
from cofactor.records import ClientScore, Evaluation, Line, Release

RANK, ROUNDS, SEED = 10, 12, 0
NAMES = ["Basel", "Lyon", "Porto", "Turku", "Gdańsk"]
RANKS = "2:14:2"


def save(path: Path, Xs: list[np.ndarray]) -> list[str]:
    """Write the clients' files; return their paths."""
    for name, X in zip(NAMES, Xs):
        np.save(path / f"{name}.npy", X)
    return [str(path / f"{name}.npy") for name, _ in zip(NAMES, Xs)]


def write_lines(folder: RunFolder, name: str, lines: list[Any]) -> None:
    """Write records as JSON lines."""
    folder.write_text(name, "".join(json.dumps(records.plain(line)) + "\n" for line in lines))


@pytest.fixture(scope="session")
def real_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete folder of ``exact`` on five unequal clients, with all that can be added; tests must not change it."""
    path, digits = tmp_path_factory.mktemp("report"), datasets.digits()
    assert digits.labels is not None
    files = save(path, partition.split(digits.X, partition.dirichlet(digits.labels, 5, alpha=0.3, seed=1)))
    config = Config(files, RANK, rounds=ROUNDS, tol=0, seed=SEED, image="8x8", options={"start": "summaries"})
    folder = fit(config, path / "run")
    cofactor("rank", *files, "-k", RANKS, "--seeds", 2, "--out", "run", "-q", cwd=path)
    cofactor("evaluate", "run", "--pooled", cwd=path)
    (folder.path / "report.html").unlink()  # tests write their own
    return folder.path


@pytest.fixture(scope="session")
def private_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A private run of three clients under secure summation."""
    path = tmp_path_factory.mktemp("private")
    files = save(path, np.split(datasets.digits().X, [500, 1100]))
    config = Config(files, 5, method="dp-nmf", rounds=3, epsilon=2.0, delta=1e-5, secure=True, image="8x8")
    return fit(config, path / "run").path


@pytest.fixture
def folder(real_run: Path, tmp_path: Path) -> Path:
    """A copy of the real run that a test may change."""
    return Path(shutil.copytree(real_run, tmp_path / "run"))


@pytest.fixture
def edit() -> Callable[[Path, Callable[[Any], Any]], None]:
    """Change a JSON file: ``edit(path, function)``, where the function returns the new value or changes the old one."""

    def change(path: Path, function: Callable[[Any], Any]) -> None:
        value = json.loads(path.read_text(encoding="utf-8"))
        changed = function(value)
        path.write_text(json.dumps(value if changed is None else changed), encoding="utf-8")

    return change


@pytest.fixture
def large(folder: Path) -> Path:
    """50 components of 2000 named features, 200 clients, 300 rounds; numbers drawn, records as a job writes them."""
    rng, run = np.random.default_rng(0), RunFolder(folder)
    k, m, c, rounds = 50, 2000, 200, 300
    names = [f"client {i:03d}" for i in range(c)]
    run.write_factor(rng.gamma(0.3, size=(k, m)), [f"gene{i}" for i in range(m)])
    clients = [ClientScore(name, 5 + i, *rng.random(4)) for i, name in enumerate(names)]
    run.write_json("evaluation.json", Evaluation(rounds, True, 0.4, clients, rng.random((k, c)).tolist()))
    lines = [Line(t, 1e6 / (t + 1) ** 2, 10**6, 10**6, 0.1, c, drift=1.0) for t in range(rounds)]
    write_lines(run, "history.jsonl", lines)
    sent = Release("", 0, "cross", [k, m], "float32", 4 * k * m)
    write_lines(run, "ledger.jsonl", [replace(sent, client=n, round=t) for t in range(rounds) for n in names])
    run.write_json("manifest.json", replace(run.manifest_record(), rank=k))
    (folder / "passports.json").unlink()
    return folder
