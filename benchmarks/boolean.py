"""The numbers that Boolean factorization has to reach, with what was measured beside them.

    COFACTOR_DATA=folder python benchmarks/boolean.py                 # everything; minutes
    python benchmarks/boolean.py --parts planted table --seeds 3      # some of it, faster

Parts: prox, planted, many, table, real, speed. Losses are |X xor (W o H)| / |X| after the greedy refit; the
excess is the loss above that of the planted factor. ``real`` needs the datasets of COFACTOR_DATA.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator

import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

from cofactor import boolean, run
from cofactor.boolean import asso, elbmf
from cofactor.data import binarize, datasets, partition, synthetic
from cofactor.methods import catalog
from cofactor.types import DataError

NOISES = (0.0, 0.05, 0.1, 0.2)
PLANTED = (0.111, 0.454, 0.631, 0.813)

TABLE: dict[str, tuple[str, dict[str, object], tuple[float, ...] | None]] = {
    "felb, independent": ("felb", {"align": None, "common_start": False}, (0.440, 0.697, 0.656, 0.825)),
    "felb, shared start": ("felb", {"align": None}, None),
    "felb, aligned once": ("felb", {"align": "first"}, (0.156, 0.455, 0.633, 0.825)),
    "felb, aligned every": ("felb", {"align": "every"}, None),
    "falb": ("falb", {"align": None}, None),
    "falb, aligned once": ("falb", {"align": "first"}, None),
    "boolean-exact": ("boolean-exact", {}, (0.133, 0.455, 0.633, 0.824)),
    "asso vote": ("asso", {"align": None}, (0.803, 0.898, 0.949, 0.982)),
    "asso vote, aligned": ("asso", {}, (0.111, 0.455, 0.645, 0.888)),
    "elbmf vote": ("elbmf", {"align": None}, None),
    "elbmf vote, aligned": ("elbmf", {}, None),
    "boolean-oneshot": ("boolean-oneshot", {}, None),
}
"""Rows of the table 2000 x 200, k = 10, c = 10: method, options, losses known from before."""


def loss(Xs: list, codes: list, factor: np.ndarray) -> float:
    return sum((boolean.tally(X, W, factor) for X, W in zip(Xs, codes)), boolean.Tally()).loss


def by_tile(data: synthetic.Planted, c: int) -> list[np.ndarray]:
    """Rows sorted by their first tile (rows without one last), cut into equal clients."""
    first = np.where(data.codes.any(axis=1), data.codes.argmax(axis=1), data.codes.shape[1])
    return [data.X[rows] for rows in np.array_split(np.argsort(first, kind="stable"), c)]


def iid(X: np.ndarray, c: int, seed: int) -> list[np.ndarray]:
    return [X[rows] for rows in partition.iid(X.shape[0], c, seed=seed)]


def planted_loss(name: str, data: synthetic.Planted, Xs: list, *, seed: int, **options: object) -> tuple[float, float]:
    """Return (loss, excess over the planted factor)."""
    k = len(data.factor)
    result = run(catalog.make(name, k, **options), Xs, rounds=1000, seed=seed)
    best = loss([data.X], [boolean.greedy_refit(data.X, data.factor)], data.factor)
    found = loss(Xs, result.codes, result.factor)
    return found, found - best


def prox(seeds: int) -> Iterator[str]:
    grid = np.linspace(0, 1, 20001)
    worst = 0.0
    for kappa, lam in ((0.01, 0.01), (0.05, 0.3), (0.1, 2.0)):
        x = np.linspace(-0.5, 1.5, 41)
        d = np.minimum(grid, 1 - grid)
        cost = 0.5 * (grid[None] - x[:, None]) ** 2 + kappa * d + lam * d**2 / 2
        at = boolean.elb_prox(x, kappa, lam)
        d = np.minimum(at, 1 - at)
        reached = 0.5 * (at - x) ** 2 + kappa * d + lam * d**2 / 2
        worst = max(worst, float(np.max(reached - cost.min(axis=1))))
    yield line("prox, objective above a grid's argmin", f"{worst:.1e}", "<= 1e-4")
    data = synthetic.tiles(500, 60, 8, noise=0.05, seed=0)
    far: list[float] = []
    method = catalog.make("felb", 8, rounds=120, rate=1.01)
    run(method, iid(data.X, 5, 0), rounds=120, callbacks=[lambda _, s: far.append(distance(s.factor)) and None])
    shown = ", ".join(f"{far[t - 1]:.1e} after {10 * t}" for t in (50, 100, 120))
    yield line("felb, rate 1.01: distance of H to bits before rounding", shown + " steps", "0")


def distance(H: np.ndarray) -> float:
    return float(np.abs(H - np.rint(H)).max())


def planted(seeds: int) -> Iterator[str]:
    cases = [
        ("felb aligned every round", "felb", {"align": "every"}, False, ".9"),
        ("felb aligned first", "felb", {"align": "first"}, False, ".8"),
        ("felb not aligned", "felb", {"align": None}, False, "-"),
        ("boolean-oneshot", "boolean-oneshot", {}, False, ".9"),
        ("boolean-oneshot, rows by tile", "boolean-oneshot", {}, True, ".9"),
        ("boolean-exact", "boolean-exact", {}, False, "-"),
        ("boolean-exact, rows by tile", "boolean-exact", {}, True, ".8"),
    ]
    for label, name, options, tiled, wanted in cases:
        found = []
        for seed in range(seeds):
            data = synthetic.tiles(1000, 100, 8, noise=0.05, seed=seed)
            Xs = by_tile(data, 10) if tiled else iid(data.X, 10, seed)
            found.append(planted_loss(name, data, Xs, seed=seed, **options)[1])
        solved = f"{sum(e < 0.01 for e in found)} of {seeds}"
        yield line(f"1000 x 100, {label}: within .01", f"{solved}, worst {max(found):.3f}", f"share {wanted}")


def many(seeds: int) -> Iterator[str]:
    for align in ("first", None):
        found = []
        for seed in range(seeds):
            data = synthetic.tiles(6400, 100, 8, noise=0.05, seed=seed)
            Xs = iid(data.X, 128, seed)
            found.append(planted_loss("felb", data, Xs, seed=seed, align=align, rounds=30)[1])
        shown = " ".join(f"{e:.3f}" for e in found)
        yield line(f"128 clients x 50 rows, 30 rounds, align {align}: excess", shown, "< .01" if align else "-")


def table(seeds: int) -> Iterator[str]:
    data = {(q, s): synthetic.tiles(2000, 200, 10, noise=q, seed=s) for q in NOISES for s in range(seeds)}
    yield f"2000 x 200, k = 10, c = 10, noise {NOISES}: mean loss (mean excess) over {seeds} seeds; in ALGORITHMS"
    for label, (name, options, known) in TABLE.items():
        cells = []
        for q in NOISES:
            pairs = [planted_loss(name, d, iid(d.X, 10, s), seed=s, **options) for (p, s), d in data.items() if p == q]
            cells.append(np.mean(pairs, axis=0))
        shown = " ".join(f"{a:.3f} ({e:.3f})" for a, e in cells)
        before = " ".join(f"{a:.3f} ({a - p:.3f})" for a, p in zip(known, PLANTED)) if known else "-"
        yield line(label, shown, before)


def real_data() -> dict[str, Callable[[], np.ndarray]]:
    def movielens() -> np.ndarray:
        liked = binarize.threshold(datasets.load("movielens_latest_small").X, 3.5)
        return liked[:, np.flatnonzero(np.asarray(liked.sum(axis=0)).ravel() >= 30)].toarray()

    def adult() -> np.ndarray:
        return datasets.load("adult_onehot").X[:3000].toarray()

    return {"mushroom": lambda: datasets.load("mushroom").X[:2000], "adult": adult, "movielens": movielens}


REAL = {
    "felb": ("felb", {"align": None, "rounds": 100}),
    "felb + 3 sweeps": ("felb", {"align": None, "rounds": 103, "sweeps": 3}),
    "felb aligned once": ("felb", {"align": "first", "rounds": 100}),
    "felb aligned once + 3 sweeps": ("felb", {"align": "first", "rounds": 103, "sweeps": 3}),
    "boolean-exact": ("boolean-exact", {"rounds": 60}),
    "boolean-exact + 3 sweeps": ("boolean-exact", {"rounds": 63, "sweeps": 3}),
    "boolean-oneshot, asso": ("boolean-oneshot", {"local": "asso"}),
    "boolean-oneshot, elbmf": ("boolean-oneshot", {"local": "elbmf"}),
    "boolean-oneshot": ("boolean-oneshot", {}),
    "boolean-oneshot + 3 sweeps": ("boolean-oneshot", {"sweeps": 3}),
}
WANTED = {
    ("mushroom", "felb"): "<= .30",
    ("mushroom", "felb + 3 sweeps"): "<= .28",
    ("adult", "felb"): "<= .30",
}


def real(seeds: int) -> Iterator[str]:
    for name, load in real_data().items():
        try:
            X = load()
        except DataError as error:
            yield f"{name}: missing. {error}"
            continue
        pooled = {}
        for algorithm in (asso, elbmf):
            short = algorithm.__name__.split(".")[-1]
            found = [algorithm.factorize(X, 20, np.random.default_rng(s))[1] for s in range(seeds)]
            pooled[short] = np.mean([loss([X], [boolean.greedy_refit(X, H)], H) for H in found])
            yield line(f"{name} {X.shape}, pooled {short} + refit", f"{pooled[short]:.4f}", "-")
        for label, (method, options) in REAL.items():
            found = [real_loss(method, iid(X, 10, s), seed=s, options=options) for s in range(seeds)]
            local = label.rsplit(", ", maxsplit=1)[-1]
            wanted = f"<= {1.03 * pooled[local]:.4f}" if local in pooled else WANTED.get((name, label), "-")
            yield line(f"{name}, {label}", f"{np.mean(found):.4f} (worst {max(found):.4f})", wanted)


def real_loss(name: str, Xs: list, *, seed: int, options: dict) -> float:
    result = run(catalog.make(name, 20, **options), Xs, rounds=1000, seed=seed)
    return loss(Xs, result.codes, result.factor)


def seconds(work: Callable[[], object], repeats: int = 3) -> float:
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return float(np.median(times))


def speed(seeds: int, n: int = 100_000, m: int = 5000, k: int = 50) -> Iterator[str]:
    rng = np.random.default_rng(0)
    X = sparse.random(n, m, 0.01, format="csr", dtype=np.float32, random_state=rng)
    X.data[:] = 1
    W, H = (rng.random((n, k)) < 0.05).astype(np.uint8), (rng.random((k, m)) < 0.02).astype(np.uint8)
    bits, Wb, Hb = boolean.pack(X), boolean.pack(W), boolean.pack(H)
    boolean.error(bits, Wb, Hb)

    def dense() -> int:
        wrong, Hf = 0, H.astype(np.float32)
        for i in range(0, n, 2000):
            R = W[i : i + 2000].astype(np.float32) @ Hf > 0
            wrong += np.count_nonzero(R != (X[i : i + 2000].toarray() > 0))
        return wrong

    packed, slow = seconds(lambda: boolean.error(bits, Wb, Hb)), seconds(dense, 1)
    assert dense() == boolean.error(bits, Wb, Hb)
    yield line(
        f"{n} x {m}, k = {k}: error packed {packed:.3f} s, dense blocks {slow:.2f} s",
        f"{slow / packed:.0f} x",
        ">= 20 x",
    )
    yield line("packing, once", f"{seconds(lambda: boolean.pack(X), 1):.2f} s", "-")
    steps = 4
    method = catalog.make("felb", k, steps=steps)
    shared = method.start(m, rng)
    local = method.join(X, shared, 0, rng)
    Hf, Wf = shared.factor.astype(np.float32).T.copy(), local.codes
    products = seconds(lambda: (X @ Hf, X.T @ Wf))
    step = seconds(lambda: method.step(X, shared, local, 0, rng)) / steps
    yield line(f"felb iteration {step:.2f} s, two products {products:.2f} s", f"{step / products:.2f} x", "<= 1.5 x")


def line(what: str, found: str, wanted: str) -> str:
    return f"{what:58s} {found:>28s}   wanted {wanted}"


PARTS = {"prox": prox, "planted": planted, "many": many, "table": table, "real": real, "speed": speed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--seeds", type=int, default=0, help="0: ten for planted tiles, five elsewhere")
    options = parser.parse_args()
    with threadpool_limits(1, "blas"):
        for part in options.parts:
            print(f"--- {part}", flush=True)
            for text in PARTS[part](options.seeds or (10 if part == "planted" else 5)):
                print(text, flush=True)


if __name__ == "__main__":
    main()
