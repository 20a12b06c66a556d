"""Private commands on several processes, killed where process 0 writes: no round leaves twice."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from tests.helpers.command import FILES, cofactor
from tests.helpers.kills import DYING
from tests.helpers.processes import ROOT, launch, words

KILL = 9
BUDGET = ("--epsilon", 1, "--delta", 1e-3, "--unit", "client", "--method", "fedavg", "--rounds", 4, "-k", 2, "-q")


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    rng = np.random.default_rng(0)
    for name in FILES:
        np.save(tmp_path / name, rng.random((12, 5)))
    return [tmp_path / name for name in FILES]


def left(folder: Path) -> Counter[str]:
    """How often each client has left a message of each round."""
    return Counter((folder / "left").read_text().split())


def spent(folder: Path) -> dict:
    return json.loads(cofactor("privacy", "spend", "run", "--json", cwd=folder).stdout)


def killed(folder: Path, files: list[Path], where: str, times: int) -> None:
    command = (sys.executable, "-c", DYING, where, times, "fit", *files, *BUDGET, "--engine", "mpi")
    launch(2, *command, cwd=folder, check=KILL)


def test_a_round_whose_charge_is_half_written_is_charged_and_never_repeated(files, tmp_path) -> None:
    killed(tmp_path, files, "charges.jsonl: half of it", 4)
    assert set(left(tmp_path).values()) == {1}
    before = spent(tmp_path)
    assert before["rounds"] == 3
    refusal = launch(2, sys.executable, "-c", DYING, "nowhere", 1, "resume", "run", cwd=tmp_path, check=2)
    assert "which may have been released: it is charged" in refusal.stderr
    assert before["text"] in refusal.stderr
    assert spent(tmp_path) == before
    assert len(left(tmp_path)) == 2 * len(files)


def test_of_two_resumes_at_once_one_goes_on_and_no_round_leaves_twice(files, tmp_path) -> None:
    """Killed when the third charge is about to be written: two rounds have left, and the run may go on."""
    killed(tmp_path, files, "charges.jsonl.seal: written", 4)
    assert (len(left(tmp_path)), set(left(tmp_path).values()), spent(tmp_path)["rounds"]) == (2 * len(files), {1}, 2)
    command = words(2, sys.executable, "-c", DYING, "nowhere", 1, "resume", "run", "-q")
    env = {"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    both = [
        subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [one.communicate(timeout=100)[1] for one in both]
    assert 0 in [one.returncode for one in both], said
    for one, text in zip(both, said, strict=True):  # waited, said who holds the run, or met the other at the report
        assert one.returncode == 0 or "expected to hold it alone" in text or "report.html" in text, text
    assert (len(left(tmp_path)), set(left(tmp_path).values())) == (4 * len(files), {1})
    assert spent(tmp_path)["epsilon"] == pytest.approx(1)
    assert "ok: 12 entries of 3 chains" in cofactor("ledger", "verify", "run", cwd=tmp_path).stdout
