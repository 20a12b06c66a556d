"""Private runs with a checkpoint and a ledger: killed in a round on one process, and cut between rounds."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cofactor import run
from cofactor.engines.checkpoint import Checkpoint
from cofactor.engines.mpi import Mpi
from cofactor.methods.build import Facts, build
from cofactor.methods.wrapped import Wrapped
from cofactor.plan import Plan
from cofactor.privacy import Privacy, account

ROUNDS, KILL_AT = 4, 2
engine = Mpi()
team = engine.team
folder = Path(sys.argv[1])
Xs = [np.random.default_rng(j).random((10 + j, 5)) for j in range(4)]
mine = [Xs[j] for j in np.array_split(np.arange(len(Xs)), team.count)[team.here]]


class Cut(Exception):
    """Raised on all processes after a round."""


@dataclass(frozen=True)
class Counted(Wrapped):
    """A method that writes down every step, and kills the last process in one."""

    file: str
    kills: bool = False

    def step(self, data, shared, local, t, rng):
        """Step, or die."""
        with open(folder / f"{self.file}-{team.here}", "a") as file:
            file.write(f"{len(data)}-{t}\n")
        if self.kills and t == KILL_AT and team.here == team.count - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.method.step(data, shared, local, t, rng)


def go(file: str, ledger: str, *, kills: bool = False, cut: int | None = None):
    """Run this process's clients."""

    def ends(line, shared):
        if line.round == cut:
            raise Cut

    plan = Plan(ROUNDS, privacy=Privacy(1, 1e-3, unit="client", ledger=folder / ledger))
    method, plan = build("fedavg", 2, plan, Facts(len(Xs), 5))
    checkpoint = Checkpoint(folder / file, every=3)
    return run(Counted(method, file, kills), mine, plan, engine=engine, checkpoint=checkpoint, callbacks=[ends])


def told(*arguments, **more) -> str:
    """Return what a run that fails says."""
    try:
        go(*arguments, **more)
    except (ValueError, Cut) as error:
        return f"{type(error).__name__} {error}"
    return ""


if __name__ == "__main__":
    if sys.argv[2] == "killed":
        go("killed.npz", "one.jsonl", kills=True)
    refusals = team.exchange("refusals", told("killed.npz", "one.jsonl"))
    told("cut.npz", "two.jsonl", cut=1)
    ended = go("cut.npz", "two.jsonl")
    over = team.exchange("refusals", told("new.npz", "two.jsonl"))
    if team.first:
        spent = [account.read(folder / name).spent().epsilon for name in ("one.jsonl", "two.jsonl")]
        found = {"refusals": refusals, "epsilon": ended.epsilon, "spent": spent, "over": over}
        (folder / "found.json").write_text(json.dumps(found))
