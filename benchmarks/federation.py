"""Round overhead of a federation on loopback: 4 clients, a factor of 50 x 20 000 float32 both ways, 50 rounds.

python benchmarks/federation.py [rounds]

Steps are tiny (10 rows a client), so that a round is what the network costs: TLS, FLARE, frames, and checkpoints.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.helpers.federation import Real  # noqa: E402


def main(rounds: int = 50) -> None:
    rng = np.random.default_rng(0)
    Xs = [rng.uniform(size=(10, 20_000)).astype(np.float32) for _ in range(4)]
    with tempfile.TemporaryDirectory() as folder:
        real = Real(Path(folder), Xs)
        try:
            real.serve()
            for name in real.names:
                real.join(name)
            real.wait_for_clients()
            begun = time.time()
            out = real.fit("run", rank=50, method="fedavg", rounds=rounds, tol=0.0, options={"sweeps": 1})
            took = time.time() - begun
            lines = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
            seconds = [line["seconds"] for line in lines]
            job = json.loads((out / "federation.json").read_text())
            print(f"{len(lines)} rounds, {lines[0]['bytes_up'] / 4e6:.1f} MB up from each client")
            print(f"seconds a round: median {statistics.median(seconds):.3f}, largest {max(seconds[1:]):.3f}")
            print(f"first round {seconds[0]:.2f} s; whole command {took:.1f} s; run {job['terms']['run']}")
            print("events:", [e["what"] for e in real.events("run")])
        finally:
            real.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
