"""What a network costs a federation: one server and 4 clients on loopback, with real certificates.

python benchmarks/federation.py [rounds]
python benchmarks/federation.py faults [runs] [seed]

Rounds and updates carry a factor of 50 x 20 000 float32 both ways. Steps are tiny (10 rows a client), so that a round
is what the network costs: TLS, FLARE, frames, and checkpoints. ``faults`` makes runs in which something happens to
somebody (killed, frozen, cut off, restarted), and compares each factor with that of a run in one process.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.helpers.federation import Real, blocks, factor_of, running, wait_for  # noqa: E402

from cofactor import run  # noqa: E402
from cofactor.methods import catalog  # noqa: E402
from cofactor.plan import Plan  # noqa: E402


def lines_of(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]


def told(name: str, real: Real, took: float) -> list[float]:
    """Print when a run began and what its rounds took; return their seconds."""
    lines = lines_of(real.home / name)
    seconds = [line["seconds"] for line in lines]
    begins = next(e for e in real.events(name) if e["what"].startswith("begins after"))
    each = lines[-1]["bytes_up"] / lines[-1]["participants"] / 1e6
    print(f"{name}: {len(lines)} rounds or updates, {each:.1f} MB up each")
    print(f"  {begins['what']}; first round took {seconds[0]:.2f} s; whole command {took:.1f} s")
    return seconds


def main(rounds: int = 50) -> None:
    rng = np.random.default_rng(0)
    Xs = [rng.uniform(size=(10, 20_000)).astype(np.float32) for _ in range(4)]
    with tempfile.TemporaryDirectory() as folder, running(Path(folder), Xs) as real:
        begun = time.time()
        real.fit("rounds", rank=50, method="fedavg", rounds=rounds, tol=0.0, options={"sweeps": 1})
        seconds = told("rounds", real, time.time() - begun)
        print(f"  seconds a round: median {statistics.median(seconds):.3f}, largest {max(seconds[1:]):.3f}")
        begins = next(e for e in real.events("rounds") if e["what"].startswith("begins after"))
        start = datetime.fromisoformat(begins["time"]).timestamp() - begun + seconds[0]
        print(f"  command to the end of the first round: {start:.1f} s (login, job, clients' processes, agreement)")
        begun = time.time()
        real.fit("updates", rank=50, method="asyn-sd", tol=0.0)
        took = time.time() - begun
        seconds = told("updates", real, took)
        print(f"  seconds an update: median {statistics.median(seconds):.3f}, largest {max(seconds[1:]):.3f}")


def freeze(real: Real, name: str, draw: random.Random) -> None:
    real.signal(name, signal.SIGSTOP)
    time.sleep(draw.uniform(1, 12))
    real.signal(name, signal.SIGCONT)


def restart(real: Real, name: str, draw: random.Random) -> None:
    count = real.registrations(name)
    real.kill(name)
    time.sleep(draw.uniform(0, 5))
    real.join(name)
    wait_for(lambda: real.registrations(name) > count, name)


def kill_worker(real: Real, name: str, draw: random.Random) -> None:
    for pid in real.worker(name):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def kill_server(real: Real, name: str, draw: random.Random) -> None:
    real.kill("server")
    time.sleep(draw.uniform(0, 3))
    real.serve()


def cut(real: Real, name: str, draw: random.Random) -> None:
    real.proxy.cut(draw.uniform(1, 10))


ROUNDS = 60
FAULTS = [freeze, restart, kill_worker, kill_server, cut]


def faults(runs: int = 20, seed: int = 0) -> None:
    """Print what happened in every run, and how many were lost."""
    draw, lost = random.Random(seed), 0
    data = blocks((60, 50, 70, 40), features=40, rank=4, seed=5)
    quiet = {name: run(catalog.make(name, 4), data, Plan(ROUNDS, seed=2)).factor for name in ("exact", "fedavg")}
    folder = tempfile.TemporaryDirectory()
    with folder as home, running(Path(home), data, proxied="alice", controlled=True) as real:
        for i in range(runs):
            begun, name, method = time.time(), f"run{i}", draw.choice(list(quiet))
            what = meets(real, name, method, draw)
            right = (real.home / name / "evaluation.json").exists()
            apart = np.abs(factor_of(real.home / name) - quiet[method]).max() if right else np.inf
            lost += not apart <= 1e-6
            print(f"{i} {method} {what}, {time.time() - begun:.0f} s, {apart:.1e}", flush=True)
    print(f"{runs} runs, {lost} lost")


def meets(real: Real, name: str, method: str, draw: random.Random) -> str:
    """Make a run in which something happens; return what."""
    fault, who = draw.choice(FAULTS), draw.choice(real.names)
    settings = {"rank": 4, "method": method, "rounds": ROUNDS, "tol": 0.0, "seed": 2}
    process = real.begin(name, **settings, federation={"silence": 20})
    note = real.home / name / "federation.json"
    wait_for(note.exists, "the run")
    if draw.random() < 0.7:
        real.reach(name, draw.randrange(1, ROUNDS // 2))
    else:  # while the job begins
        time.sleep(draw.uniform(0, 6))
    fault(real, who, draw)
    process.wait(300)
    jobs = len(json.loads(note.read_text())["jobs"])
    return f"{fault.__name__} {who}: {jobs} jobs"


if __name__ == "__main__":
    words = sys.argv[1:]
    if words[:1] == ["faults"]:
        faults(*map(int, words[1:]))
    else:
        main(*map(int, words))
