"""Rounds on a CUDA device against the bare products of the same run: one table, one JSON file.

python benchmarks/gpu.py --out gpu.json          # about two minutes on an H200, 30 GB of its memory
python benchmarks/gpu.py --rows 20000 --features 1000 --out small.json
"""

from __future__ import annotations

import argparse
import gc
import json
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cofactor import boolean
from cofactor.engines.inline import Inline
from cofactor.engines.loop import run
from cofactor.kinds import Checked
from cofactor.local import tensors
from cofactor.local.devices import place
from cofactor.local.placed import Placed
from cofactor.local.resident import Resident, product, product_of_codes, split
from cofactor.local.stats import for_codes, for_factor
from cofactor.local.streamed import Streamed
from cofactor.local.updates import HALS
from cofactor.methods import catalog
from cofactor.methods.summed import Summed

CUDA, F32 = torch.device("cuda"), np.dtype(np.float32)
RESULTS: dict[str, Any] = {}


def note(name: str, value: float, wanted: str = "") -> None:
    """Keep a number and print it."""
    RESULTS[name] = {"value": value, "wanted": wanted}
    print(f"| {name} | {value:.4g} | {wanted} |", flush=True)


def milliseconds(work: Callable[[], Any], repeats: int = 15, warm: int = 3) -> float:
    """Median time of work on the device."""
    for _ in range(warm):
        work()
    times = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return float(np.median(times))


def graphed(work: Callable[[], Any]) -> Callable[[], Any]:
    """Return work as one CUDA graph."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


@contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    """Let products of the data be in TF32, or not."""
    torch.backends.cuda.matmul.allow_tf32 = allowed
    yield
    torch.backends.cuda.matmul.allow_tf32 = False


def iteration(X: Any, W: Any, H: Any, sweeps: int) -> Callable[[], Any]:
    """Return a whole iteration, both products and both sweeps, as methods make it, in one graph."""
    update = HALS(sweeps)

    def once() -> None:
        codes = update(W, for_codes(X, H))
        H.tensor.copy_(update(H.T, for_factor(X, codes)).T.tensor)
        W.tensor.copy_(codes.tensor)

    return graphed(once)


def rounds(data: list[Any], k: int, sweeps: int) -> float:
    """Median time of a round of the sum-based method, in milliseconds."""
    found = run(Summed(k, HALS(sweeps)), Checked(data), rounds=15).history
    return 1e3 * float(np.median([line.seconds for line in found[4:]]))


def places(n: int, m: int, k: int) -> tuple[Any, Any]:
    """Random codes and a random factor on the device, component by component in memory."""
    return Placed(torch.rand(k, n, device=CUDA).T), Placed(torch.rand(k, m, device=CUDA))


def dense(n: int, m: int, k: int) -> float:
    X = torch.rand(n, k, device=CUDA).pow(4) @ torch.rand(k, m, device=CUDA).pow(4)
    W, H = places(n, m, k)
    data = Resident(X, F32)
    with tf32(True):
        one, two = (
            milliseconds(lambda: product(X, H.tensor)),
            milliseconds(lambda: product_of_codes(X, W.tensor.T)),
        )
        other = milliseconds(lambda: W.tensor.T @ X)
        note("TF32 products, ms", one + two)
        note("TF32 products with W^T X as it is written, ms", one + other)
        for sweeps in (1, 8):
            took = milliseconds(iteration(data, W, H, sweeps))
            wanted = "<= 1.15" if sweeps == 1 else ""
            note(f"TF32 iteration, {sweeps} sweep(s), ms", took)
            note(f"TF32 iteration, {sweeps} sweep(s), over its products", took / (one + two), wanted)
            note(f"TF32 iteration, {sweeps} sweep(s), over the products as written", took / (one + other), wanted)
        pooled = {sweeps: rounds([data], k, sweeps) for sweeps in (1, 8)}
        cut = [Resident(part, F32) for part in X.chunk(8)]
        for sweeps, took in pooled.items():
            note(f"round of a run, {sweeps} sweep(s), ms", took)
            note(f"round of a run, {sweeps} sweep(s), over its products", took / (one + two))
            note(f"8 clients, {sweeps} sweep(s): round over the pooled one", rounds(cut, k, sweeps) / took, "<= 1.2")
    return one + other


def narrow(n: int, m: int, k: int, wide: float) -> None:
    X = torch.randint(0, 256, (n, m), device=CUDA, dtype=torch.uint8).to(torch.bfloat16)
    W, H = places(n, m, k)
    parts = split(H.tensor), split(W.tensor.T)
    bare = milliseconds(lambda: torch.mm(parts[0], X.T, out_dtype=torch.float32))
    bare += milliseconds(lambda: torch.mm(parts[1], X, out_dtype=torch.float32))
    note("bfloat16 products of two parts, ms", bare)
    for sweeps in (1, 8):
        took = milliseconds(iteration(Resident(X, F32), W, H, sweeps))
        note(f"bfloat16 iteration, {sweeps} sweep(s), ms", took)
        note(
            f"bfloat16 iteration, {sweeps} sweep(s), over TF32 products", took / wide, "<= 0.55" if sweeps == 1 else ""
        )
    note("round of a run on bfloat16, 1 sweep, ms", rounds([Resident(X, F32)], k, 1))
    exact = H.tensor.double() @ X[:4096].double().T
    found = product(X[:4096], H.tensor)
    note("error of a bfloat16 product", float((found - exact).norm() / exact.norm()))


def streaming(n: int, m: int, k: int) -> None:
    source = np.empty((n, m), np.float32)
    source[...] = np.random.default_rng(0).random(m, dtype=np.float32)
    held = Streamed(source, CUDA, F32)
    W, H = places(n, m, k)
    held.times_factor(H)
    there = torch.empty((1 << 28) // m, m, device=CUDA)
    block = (
        held._locked[: len(there)] if held._locked is not None else torch.empty_like(there, device="cpu").pin_memory()
    )
    rate = block.numel() * 4 / milliseconds(lambda: there.copy_(block, non_blocking=True)) / 1e6
    note("copy from locked memory, GB/s", rate)
    for name, work in (("X H^T", lambda: held.times_factor(H)), ("X^T W", lambda: held.times_codes(W))):
        took = milliseconds(work, 3, 1)
        note(f"streamed {name}, GB/s", source.nbytes / took / 1e6)
        note(f"streamed {name}, share of the copy's rate", source.nbytes / took / 1e6 / rate, ">= 0.8")


def whole_fit() -> None:
    rng = np.random.default_rng(0)
    strokes = rng.random((50, 784), dtype=np.float32) ** 8
    codes = rng.gamma(0.2, 1, (70000, 50)).astype(np.float32)
    X = np.clip(codes @ strokes * 80, 0, 255).astype(np.uint8)
    engine = Inline(device="cuda")
    for name, options in (("default start", {}), ("random start", {"start": "random"})):
        method = catalog.make("exact", 50, **options)
        times = []
        for _ in range(4):
            begin = time.perf_counter()
            found = run(method, [X], stop=1e-4, engine=engine)
            times.append(time.perf_counter() - begin)
        wanted = "<= 0.5" if not options else ""
        note(f"fit of 70000 x 784 pixels, k = 50, {name}, s", float(np.median(times[1:])), wanted)
        note(f"  its rounds, {name}", len(found.history))
        note(f"  its first round, {name}, s", found.history[0].seconds)
        later = [line.seconds for line in found.history[4:]]
        note(f"  a later round, {name}, ms", 1e3 * float(np.median(later)))
        note(f"  loss, {name}", found.history[-1].loss)


def agreement() -> None:
    rng = np.random.default_rng(0)
    X = (rng.random((2000, 8)) ** 4 @ rng.random((8, 500)) ** 4 + 0.01 * rng.random((2000, 500))).astype(np.float32)
    method = catalog.make("exact", 8, start="random", momentum=0.0)
    here = run(method, [X], rounds=50)
    for allowed in (False, True):
        with tf32(allowed):
            there = run(method, [X], rounds=50, engine=Inline(device="cuda"))
        apart = abs(there.history[-1].loss - here.history[-1].loss) / (0.5 * float(np.vdot(X, X)))
        A, B = (found.codes[0] @ found.factor for found in (there, here))
        name = "with TF32" if allowed else "without TF32"
        note(f"GPU against CPU, 50 rounds of float32 {name}: loss, of |X|^2 / 2", apart, "" if allowed else "<= 1e-5")
        gap = float(np.linalg.norm(A - B) / np.linalg.norm(B))
        note(f"GPU against CPU, 50 rounds of float32 {name}: W H", gap, "" if allowed else "<= 1e-5")


def counted() -> None:
    """Kullback-Leibler as it is by default, on data of several shapes: the worst of them."""
    worst = {"loss": 0.0, "H": 0.0, "W H": 0.0}
    for seed, (n, m, k) in enumerate(((3000, 400, 8), (5000, 1000, 20), (2000, 300, 40))):
        rng = np.random.default_rng(seed)
        X = rng.poisson(3 * rng.gamma(0.3, 1, (n, k)) @ rng.gamma(0.3, 1, (k, m))).astype(np.float32)
        method = catalog.make("exact-beta", k)
        here, there = (run(method, [X], rounds=50, engine=Inline(device=place)) for place in (None, "cuda"))
        A, B = (np.asarray(found.codes[0]) @ np.asarray(found.factor) for found in (there, here))
        loss, known = there.history[-1].loss, here.history[-1].loss
        worst["loss"] = max(worst["loss"], abs(loss - known) / known)
        pairs = {"H": [np.asarray(found.factor) for found in (there, here)], "W H": [A, B]}
        for name, (a, b) in pairs.items():
            worst[name] = max(worst[name], float(np.linalg.norm(a - b) / np.linalg.norm(b)))
    for name, gap in worst.items():
        note(f"Kullback-Leibler, GPU against CPU, 50 rounds of float32: {name}", gap, "<= 1e-5")


def tiled(n: int, m: int, k: int) -> tuple[Any, Any]:
    """Rows of about eight of k random tiles each, a fifth of their cells missing, and a few ones elsewhere."""
    rng = np.random.default_rng(0)
    H, W = rng.random((k, m)) < 0.02, rng.random((n, k)) < 8 / k
    X = (W.astype(np.float32) @ H.astype(np.float32) > 0) & (rng.random((n, m)) < 0.8)
    return (X | (rng.random((n, m)) < 0.002)).astype(np.float32), H.astype(np.uint8)


def seconds(work: Callable[[], Any]) -> float:
    """Return how long work takes, compiled before."""
    times = []
    for _ in range(4):
        begin = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return float(np.median(times[1:]))


def bits(n: int = 8300, m: int = 5000, k: int = 200) -> None:
    """Boolean methods on the device and on the CPU of the same machine."""
    X, H = tiled(n, m, k)
    there, here, factor = boolean.pack(place(X, CUDA)), boolean.pack(X), boolean.pack(H)
    W = boolean.greedy_refit(here, factor)
    same = np.array_equal(np.asarray(boolean.greedy_refit(there, factor)), W)
    for name, work in (
        ("greedy cover", lambda held: boolean.greedy_refit(held, factor)),
        ("changes of flips", lambda held: boolean.changes(held, W, factor)),
        ("error", lambda held: boolean.error(held, W, factor)),
    ):
        note(f"bits {n} x {m}, k = {k}: {name}, ms", 1e3 * seconds(lambda work=work: work(there)))
        note("  on one core, ms", 1e3 * seconds(lambda work=work: work(here)))
    note("  codes of both are the same (1: yes)", float(same))
    clients = np.array_split(X, 8)
    for name in ("boolean-exact", "felb", "boolean-oneshot"):
        method = catalog.make(name, k, sweeps=3)
        for called, device in (("", CUDA), ("  on the CPU of the machine: ", None)):
            run(method, [part[:200] for part in clients], engine=Inline(device=device))  # compiles
            begin = time.perf_counter()
            found = run(method, clients, engine=Inline(device=device))
            note(f"{called}{name}, 8 clients, s", time.perf_counter() - begin)
            note("  its errors over ones", 2 * found.history[-1].loss / float(X.sum()))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--features", type=int, default=10_000)
    parser.add_argument("--rank", type=int, default=64)
    parser.add_argument("--out", type=Path, default=Path("gpu.json"))
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    sizes = asked.rows, asked.features, asked.rank
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {sizes[0]} x {sizes[1]}, k = {sizes[2]}\n")
    print("| what | measured | wanted |\n|---|---|---|")
    agreement()
    counted()
    whole_fit()
    bits()
    wide = dense(*sizes)
    gc.collect()
    torch.cuda.empty_cache()
    narrow(*sizes, wide)
    gc.collect()
    torch.cuda.empty_cache()
    streaming(*sizes)
    note("arrays that left the device in all", tensors.departures["arrays"])
    about = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "sizes": sizes}
    asked.out.write_text(json.dumps({**about, "results": RESULTS}, indent=1) + "\n")


if __name__ == "__main__":
    main()
