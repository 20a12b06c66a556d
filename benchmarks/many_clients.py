"""One-row clients from 10^2 to 10^5, a tenth of them in each round: seconds, growth, memory; and a new user's codes.

Participants are a tenth of the clients; a round has a part that does not depend on them (the items are solved or moved,
the factor is sent), so growth is shown against the round before and against a line through zero.

python benchmarks/many_clients.py
"""

from __future__ import annotations

import resource
import time

import numpy as np
from scipy import sparse

from cofactor import FederatedMF, run
from cofactor.methods import catalog

ITEMS, RANK, RATED, SHARE, ROUNDS = 1000, 16, 50, 0.1, 12
CLIENTS = (100, 1000, 10_000, 100_000)


def users(count: int, seed: int = 0) -> list[sparse.csr_matrix]:
    """Return one row per user: ``RATED`` ratings each, from 0.5 to 5."""
    rng = np.random.default_rng(seed)
    values = rng.integers(1, 11, (count, RATED)) / 2
    items = np.sort((rng.integers(0, ITEMS, (count, 1)) + 17 * np.arange(RATED)) % ITEMS, axis=1)
    return [sparse.csr_matrix((v, i, [0, RATED]), shape=(1, ITEMS)) for v, i in zip(values, items)]


def growth() -> None:
    """Print the median round by method and number of clients."""
    print(f"{'method':16s} {'clients':>7s} {'here':>6s} {'ms':>8s} {'us each':>8s} {'to linear':>9s} {'GB':>5s}")
    first: dict[str, float] = {}
    for clients in CLIENTS:
        rows = users(clients)
        for name in catalog.names("ratings"):
            history = run(catalog.make(name, RANK), rows, rounds=ROUNDS, participation=SHARE).history
            seconds, here = float(np.median([line.seconds for line in history[3:]])), history[-1].participants
            linear = f"{seconds / here / first[name]:9.2f}" if clients > CLIENTS[1] else f"{'-':>9s}"
            if clients == CLIENTS[1]:
                first[name] = seconds / here
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
            each = f"{seconds * 1e3:8.1f} {seconds / here * 1e6:8.1f}"
            print(f"{name:16s} {clients:7d} {here:6d} {each} {linear} {memory:5.2f}")


def cold_start(*, times: int = 200) -> None:
    """Print how long one new user's codes and list take, after the first call has compiled what it needs."""
    rows = users(300)
    model = FederatedMF(RANK, random_state=0, rounds=5).fit(sparse.vstack(rows, format="csr"))
    row, given = rows[3], dict(zip(rows[3].indices, rows[3].data))
    works = {
        "transform, one CSR row": lambda: model.transform(row),
        "transform, a mapping": lambda: model.transform(given),
        "recommend 10": lambda: model.recommend(n=10, ratings=given),
    }
    for name, work in works.items():
        work()
        seconds = []
        for _ in range(times):
            begin = time.perf_counter()
            work()
            seconds.append(time.perf_counter() - begin)
        print(f"{name:24s} median {np.median(seconds) * 1e3:.3f} ms, slowest {max(seconds) * 1e3:.3f} ms")


if __name__ == "__main__":
    growth()
    cold_start()
