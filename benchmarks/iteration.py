"""What one round of exact statistics costs next to its two matrix products, and next to scikit-learn's CD solver.

    python benchmarks/iteration.py            # 20000 x 2000, k = 50, one thread, float64 and float32

All timings are medians of alternating repetitions in one process, so that the ratios mean something.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable

import numpy as np
from sklearn.decomposition import NMF
from threadpoolctl import threadpool_limits

from cofactor.local import arrays
from cofactor.method import SERVER, rng
from cofactor.methods import catalog

SKLEARN_ITERATIONS = (4, 24)
"""Two lengths of scikit-learn runs: their difference is the cost of iterations without set-up and final error."""


def median_seconds(works: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            begin = time.perf_counter()
            work()
            times[name].append(time.perf_counter() - begin)
    return {name: float(np.median(t)) for name, t in times.items()}


def measure(n: int, m: int, k: int, dtype: type, repeats: int) -> dict[str, float]:
    generator = np.random.default_rng(0)
    H0 = generator.uniform(size=(k, m)) * (generator.uniform(size=(k, m)) < 0.3)
    W0 = generator.uniform(size=(n, k)) * (generator.uniform(size=(n, k)) < 0.3)
    X = (W0 @ H0 + 0.1 * generator.uniform(size=(n, m))).astype(dtype)
    method = catalog.make("exact", k, start="random")
    shared = method.start(m, rng(0, SERVER, -1))
    state = {"shared": shared, "local": method.join(X, shared, 0, rng(0, 0, -1)), "t": 0}
    H, W = generator.uniform(size=(k, m)).astype(dtype), generator.uniform(size=(n, k)).astype(dtype)

    def one_round() -> None:
        t = state["t"]
        state["local"], message = method.step(X, state["shared"], state["local"], t, rng(0, 0, t))
        state["shared"] = method.aggregate(state["shared"], [message], t)
        state["t"] = t + 1

    def plain_products() -> None:
        _ = X @ H.T
        _ = X.T @ W

    def products() -> None:
        arrays.times_factor(X, H)
        arrays.times_codes(X, W)

    one_round(), one_round()
    works = {"round": one_round, "products": products, "plain": plain_products}
    works |= {f"sklearn_{i}": lambda i=i: fit_sklearn(X, k, i) for i in SKLEARN_ITERATIONS}
    seconds = median_seconds(works, repeats)
    few, many = SKLEARN_ITERATIONS
    seconds["sklearn"] = (seconds[f"sklearn_{many}"] - seconds[f"sklearn_{few}"]) / (many - few)
    return seconds


def fit_sklearn(X: np.ndarray, k: int, iterations: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        NMF(k, init="random", solver="cd", max_iter=iterations, tol=0, random_state=0).fit(X)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20000)
    parser.add_argument("--features", type=int, default=2000)
    parser.add_argument("--rank", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    print(f"{options.rows} x {options.features}, k = {options.rank}, one thread")
    with threadpool_limits(1):
        for dtype in (np.float64, np.float32):
            s = measure(options.rows, options.features, options.rank, dtype, options.repeats)
            print(
                f"{dtype.__name__}: two products {s['products'] * 1e3:.0f} ms "
                f"(X @ H.T and X.T @ W as numpy runs them: {s['plain'] * 1e3:.0f} ms); "
                f"one round {s['round'] / s['products']:.3f} x the products, {s['round'] / s['plain']:.3f} x numpy's; "
                f"a scikit-learn CD iteration takes {s['sklearn'] / s['round']:.2f} x a round"
            )


if __name__ == "__main__":
    main()
