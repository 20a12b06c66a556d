"""Every method of the catalog with default settings on every stored data set: how close to pooling, at what price.

    python benchmarks/defaults.py run                    # goes on where it ended; about 40 minutes on one core
    python benchmarks/defaults.py run bbc_news --methods exact oneshot
    python benchmarks/defaults.py page                   # docs/defaults.md from the results
    python benchmarks/defaults.py floor gene_all_aml     # what no summary of half as many components as rows can beat

Rows are spread over 8 clients at random ("iid"), or cut into 8 after they were sorted by their label, or without one by
the direction in which they differ most ("sorted"). Large data are cut: to ``ROWS`` rows, drawn at random, and to the
``FEATURES`` features that are not zero in most of them. Counts and expression values become ``log(1 + x)``. One seed.

A result is one line of JSON: error (codes refitted, of all rows), ratio to the best pooled run, rounds (of a stream:
answers for each client), bytes that all clients sent and received, CPU seconds, and why the run ended.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

from cofactor import FederatedBMF, FederatedKMeans, FederatedMF, FederatedNMF, Privacy, kinds, run
from cofactor.data import datasets, partition
from cofactor.engines.checkpoint import Checkpoint
from cofactor.engines.history import DONE, ENDED
from cofactor.kinds.measure import Measure, overall
from cofactor.local.brief import ROWS_PER_COMPONENT
from cofactor.local.refit import refit
from cofactor.local.stats import squares
from cofactor.methods import catalog
from cofactor.methods.blocks import blocks
from cofactor.methods.build import Facts, build
from cofactor.methods.planned import limit
from cofactor.plan import Plan, Stop

CLIENTS, RANK, ROWS, FEATURES = 8, 10, 800, 500
FEWER = (240, 200)
"""Rows and features for methods of a hundred sweeps in a round and 200 rounds, whose cells would take a minute."""
RESULTS = Path(__file__).with_name("defaults.jsonl")
CONVERGED = Path(__file__).with_name("converged.jsonl")
SHARES = (1.0, 0.25, 0.1)
PAGE = Path(__file__).parents[1] / "docs" / "defaults.md"
PRIVACY = Privacy(1.0, 1e-6, insecure_seed=1)
ESTIMATORS = {"boolean": FederatedBMF, "ratings": FederatedMF, "clusters": FederatedKMeans}
TITLES = {
    "real": "Non-negative data",
    "gaps": "Non-negative data with gaps",
    "private": "With differential privacy",
    "blocks": "Row and column blocks of one matrix",
    "boolean": "Boolean data",
    "ratings": "Ratings",
    "clusters": "Clusters",
}
LOGGED = ("scrna_hnsc_gse103322", "tdt2_top30", "newsgroups20", "bbc_news", "news_3windows", "gene_all_aml")
REAL = (
    *("cbcl_faces", "yaleb_32x32", "mnist", "fashion_mnist", "cifar10_test2500", "tcga_breast_mrna"),
    *("tcga_breast_mirna", "scrna_pbmc68k_reduced", *LOGGED),
)
BITS = (
    *("mushroom", "adult_onehot", "americas_small", "advertisement", "customer", "firewall1", "dna", "tic_tac_toe"),
    "apj",
)
SETS = {
    "real": REAL,
    "gaps": ("tcga_breast_mrna", "scrna_pbmc68k_reduced"),
    "private": REAL,
    "blocks": REAL,
    "boolean": BITS,
    "ratings": ("movielens_latest_small",),
    "clusters": ("mnist", "scrna_pbmc68k_reduced", "tcga_breast_mrna"),
}


class Cell(NamedTuple):
    """One line of the table: a method on a data set that is spread in one way."""

    kind: str
    data: str
    spread: str
    method: str


def cells() -> Iterator[Cell]:
    """Every line of the table; a data set after the other, so that its pooled runs are made once."""
    for kind, names in SETS.items():
        for name in names:
            for spread in ("one",) if kind == "blocks" else ("iid", "sorted"):
                yield from (Cell(kind, name, spread, method) for method in catalog.names(kind))


@cache
def rows_of(name: str, kind: str, most: tuple[int, int] = (ROWS, FEATURES)) -> tuple[Any, Any]:
    """Return the data set, cut to so many rows and features, and its labels (None where it has none)."""
    data = datasets.load(name)
    X, labels = data.X, data.labels
    if X.shape[0] > most[0]:
        chosen = np.sort(np.random.default_rng(0).choice(X.shape[0], most[0], replace=False))
        X, labels = X[chosen], None if labels is None else np.asarray(labels)[chosen]
    if X.shape[1] > most[1]:
        filled = np.asarray((X != 0).sum(axis=0)).ravel()
        X = X[:, np.sort(np.argsort(-filled, kind="stable")[: most[1]])]
    X = X.astype(np.float32)
    if name in LOGGED:
        X = X.log1p() if sparse.issparse(X) else np.log1p(X)
    some = np.asarray((X != 0).sum(axis=1)).ravel() > 0
    X, labels = X[some], None if labels is None else np.asarray(labels)[some]
    if kind == "gaps":
        X = np.asarray(X.todense() if sparse.issparse(X) else X).copy()
        X[np.random.default_rng(1).uniform(size=X.shape) < 0.1] = np.nan
    return X, labels


def split(cell: Cell, most: tuple[int, int] = (ROWS, FEATURES)) -> list[Any]:
    """Return the clients' data."""
    X, labels = rows_of(cell.data, cell.kind, most)
    if cell.spread == "one":
        return blocks(X, CLIENTS)
    if cell.spread == "iid":
        return partition.split(X, partition.iid(X.shape[0], CLIENTS, seed=0))
    if labels is not None:
        return partition.split(X, partition.sorted_by(labels, CLIENTS))
    return partition.split(X, np.array_split(np.argsort(_direction(X), kind="stable"), CLIENTS))


def _direction(X: Any) -> Any:
    """Return where rows lie in the direction in which they differ most."""
    dense = np.nan_to_num(np.asarray(X.todense() if sparse.issparse(X) else X, dtype=np.float64))
    dense = dense - dense.mean(axis=0)
    return dense @ np.linalg.eigh(dense.T @ dense)[1][:, -1]


def rank_of(shape: tuple[int, int]) -> int:
    """Return the rank: 10, or less for small data."""
    return max(2, min(RANK, min(shape) // 4))


def most_of(method: str) -> tuple[int, int]:
    """Return the most rows and features for a method."""
    return FEWER if method.startswith("fnmf-") else (ROWS, FEATURES)


@cache
def pooled(kind: str, name: str, most: tuple[int, int] = (ROWS, FEATURES)) -> float:
    """Return the best error of runs on all rows together: three seeds of the kind's default, or several methods."""
    X, _ = rows_of(name, kind, most)
    asked: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
        "boolean": (("boolean-oneshot", "boolean-exact", "felb"), {}),
        "ratings": (("exact-als",), {}),
        "clusters": (("k-means",), {}),
        "gaps": (("exact-gaps",), {}),
    }
    names, options = asked.get(kind, (("exact",), {"start": "random"}))
    plan = Plan(400, stop=Stop(1e-6, 10))
    seeds = range(1 if kind == "boolean" else 3)
    return min(fitted(method, [X], Plan(400, stop=plan.stop, seed=s), options)[0] for method in names for s in seeds)


def fitted(
    name: str, Xs: list[Any], plan: Plan, given: dict[str, Any], kept: Checkpoint | None = None
) -> tuple[float, Any]:
    """Run a method, from where it was kept; return the error of all rows and the run."""
    shape = (sum(X.shape[0] for X in Xs), Xs[0].shape[1])
    facts = Facts(len(Xs), shape[1], shape[0])
    usual = {} if plan.privacy is not None else kinds.named(catalog.CATALOG[name].kind).options
    known = {option: value for option, value in usual.items() if option in catalog.CATALOG[name].options}
    method, plan = build(name, rank_of(shape), plan, facts, {**known, **given})
    held = kinds.KINDS[method.traits.kind]
    kept = None if plan.stream else kept
    out = run(method, Xs, plan, work=[Measure(held, method)] * len(Xs), checkpoint=kept)
    return overall(held, out.findings).error, (out, plan)


def measured(cell: Cell) -> dict[str, Any]:
    """Return the line of a cell; what a method refuses is in it too."""
    estimator: Any = ESTIMATORS.get(cell.kind, FederatedNMF)()
    privacy = PRIVACY if cell.kind == "private" else None
    plan = Plan(estimator.rounds, stop=estimator.tol, privacy=privacy)
    most = most_of(cell.method)
    bound, Xs, begin = pooled(cell.kind, cell.data, most), split(cell, most), time.process_time()
    try:
        error, (out, settled) = fitted(cell.method, Xs, plan, {})
    except Exception as refused:
        return {**cell._asdict(), "refused": f"{type(refused).__name__}: {refused}"}
    return {
        **cell._asdict(),
        "error": round(error, 6),
        "pooled": round(bound, 6),
        "ratio": round(error / bound, 4) if bound > 0 else None,
        "rounds": len(out.history) // (len(Xs) if settled.stream else 1),
        "bytes": out.bytes,
        "seconds": round(time.process_time() - begin, 2),
        "ended": out.ended,
        **({"rows": sum(X.shape[0] for X in Xs), "features": Xs[0].shape[1]} if most == FEWER else {}),
    }


def floor(name: str, spread: str) -> float:
    """Return the ratio of the factor of the best approximations of all clients' rows at half as many components.

    A truncated singular value decomposition is the best approximation at its rank (Eckart and Young), and here a server
    sees all of its rows: a summary of as many components cannot tell it more.
    """
    X, _ = rows_of(name, "real")
    Xs = [np.asarray(x.todense() if sparse.issparse(x) else x) for x in split(Cell("real", name, spread, "oneshot"))]
    cut = []
    for x in Xs:
        r = min(rank_of(X.shape), x.shape[0] // ROWS_PER_COMPONENT)
        left, values, right = np.linalg.svd(x, full_matrices=False)
        cut.append(np.maximum((left[:, :r] * values[:r]) @ right[:r], 0))
    method, best = catalog.make("exact", rank_of(X.shape), start="random"), Plan(400, stop=Stop(1e-6, 10))
    runs = [run(method, [np.vstack(cut)], replace(best, seed=s)) for s in range(3)]
    H = min(runs, key=lambda out: out.history[-1].loss).factor.astype(Xs[0].dtype)
    rest, square = np.sum([squares(x, refit(x, H), H) for x in Xs], axis=0)
    return float(np.sqrt(rest / square) / pooled("real", name))


def carry_out(todo: Iterable[Any], measure: Callable[[Any], dict[str, Any]], options: argparse.Namespace) -> None:
    """Measure what is not in the results yet, of the data sets and methods that are asked for; add a line for each."""
    lines, names, methods = read(options.results), options.data, options.methods
    for item in todo:
        if (names and item.data not in names) or (methods and item.method not in methods):
            continue
        if any(item._asdict().items() <= line.items() for line in lines):
            continue
        with warnings.catch_warnings(), threadpool_limits(1):
            warnings.simplefilter("ignore")
            line = measure(item)
        with options.results.open("a") as file:
            file.write(json.dumps(line) + "\n")
        told = [line[name] for name in ("ratio", "refused", "seconds", "rounds", "ended") if name in line]
        print(*item, *told, flush=True)


def read(results: Path) -> list[dict[str, Any]]:
    """Return the lines that are there."""
    return [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []


def page(results: Path) -> str:
    """Return the page: a summary of every method, then a table for every kind."""
    lines = read(results)
    there = {tuple(line[name] for name in Cell._fields) for line in lines}
    left = [cell.method for cell in cells() if cell not in there]
    told = {
        "cells": f"{len(lines)} of {len(list(cells()))}",
        "left": _missing(left),
        "old": sum(_old(line) for line in lines),
    }
    parts = [HEAD.format(clients=CLIENTS, rank=RANK, rows=ROWS, features=FEATURES, few=FEWER, **told)]
    for kind, title in TITLES.items():
        own = [line for line in lines if line["kind"] == kind]
        if own:
            parts += [f"## {title}\n", _summary(own), "", _table(own), "", *_refusals(own)]
    if CONVERGED.exists():
        own = read(CONVERGED)
        parts += [
            "## Against its own converged result\n",
            AGAINST.format(few=FEWER, above=above(own)),
            against(own),
            "",
        ]
    ends = "\n".join(f"- `{code}`: {text}{' (converged)' if code in DONE else ''}." for code, text in ENDED.items())
    return "\n".join([*parts, "## Why runs end\n", ends, ""])


def _missing(methods: list[str]) -> str:
    """Say how many cells of which methods were not measured."""
    counts = {name: methods.count(name) for name in catalog.CATALOG if name in methods}
    return ", ".join(f"{count} of `{name}`" for name, count in counts.items()) or "none"


HEAD = """# Defaults on real data

What a method gives when nobody sets anything: every method of the catalog on every stored data set.

A number is the error of all rows, with codes refitted to the final factor, over that of the best run on all rows
together: 1.010 is 1 % above pooling. There are {clients} clients and rank {rank} (less for small data), at most {rows}
rows and {features} features, and one seed.

- *iid*: rows are dealt to clients at random. *sorted*: by label, or by the direction in which rows differ most, so
  that no client is like another. *one*: row and column blocks of one matrix.
- Below 1: a better local optimum than that of the pooled runs or, of `shared-own` and `simplex`, a richer model.
- `exact-beta` minimizes another loss. Private methods: epsilon 1, delta 1e-6, unit record.
- \\*: at most {few[0]} rows and {few[1]} features, because a round of FNMF is a hundred sweeps at every client.
- \u2020: ended at a limit of rounds that was lower than it is now ({old} cells).
- ?: not measured yet: {left}; `run` does it.

`oneshot` on gene_all_aml: clients of four or five rows send two components, at most half their rows, so that H_j is
not their rows. A server that saw the best approximation of every client's rows at that rank, row by row, would end at
1.083 (iid) and 1.054 (sorted) by the same search (`floor`), about where `oneshot` ends: two components of so few rows
tell too little for 1.02.

This page is made by `python benchmarks/defaults.py page` of {cells} cells.
"""
SPREADS = ("iid", "sorted", "one")
BESIDE = 5
"""Methods beside each other in a table."""


AGAINST = """Error with default settings over that of the same method with twice as many rounds and no stop rule: rows
sorted, at most {few[0]} rows and {few[1]} features, the worst over data sets of medians over one to nine
seeds, as many as were measured. With a share of .25 two of the 8 clients answer in each round, with .1 one.
Methods of one upload have nothing to run longer, and private ones nothing to pay it with. A relaxed Boolean method
carries out a schedule, and a longer one is another: ratios of single seeds go from .90 to 1.12.
Made by `python benchmarks/converged.py run`. Above 1.02 are:

{above}
"""
NEAR = 1.02
"""What twice as many rounds may give, at most."""


def medians(lines: list[dict[str, Any]]) -> dict[tuple[str, str, float], float]:
    """Return the median ratio over seeds, by method, data set and share of clients."""
    ratios: dict[tuple[str, str, float], list[float]] = {}
    for line in lines:
        if line.get("ratio") is not None:
            ratios.setdefault((line["method"], line["data"], line["share"]), []).append(line["ratio"])
    return {key: float(np.median(found)) for key, found in ratios.items()}


def above(lines: list[dict[str, Any]]) -> str:
    """Say which medians are above what they may be, and why these runs ended."""
    told = []
    for (method, data, share), ratio in medians(lines).items():
        if ratio > NEAR:
            where = {"method": method, "data": data, "share": share}
            first, *more = [line for line in lines if where.items() <= line.items()]
            words = f"{ratio:.3f} after {first['rounds']} rounds (`{first['ended']}`, seeds: {1 + len(more)})"
            told.append(f"- `{method}` on {data}, share {share:g}: {words}")
    return "\n".join(told) or "- none"


def _by(
    lines: list[dict[str, Any]], method: str, spread: str | None, value: Callable[[dict[str, Any]], Any]
) -> list[Any]:
    chosen = [line for line in lines if line["method"] == method and spread in (None, line["spread"])]
    return [found for line in chosen if "refused" not in line and (found := value(line)) is not None]


def _methods(lines: list[dict[str, Any]]) -> list[str]:
    there = {line["method"] for line in lines}
    return [name for name in catalog.CATALOG if name in there]


def _summary(lines: list[dict[str, Any]]) -> str:
    """Median and worst ratio of every method, and what it takes."""
    spreads = [s for s in SPREADS if any(line["spread"] == s for line in lines)]
    heads = [f"{s}: median | worst" for s in spreads]
    rows = [
        f"| method | {' | '.join(heads)} | rounds | MB | CPU s | converged |",
        "|---" * (2 * len(spreads) + 5) + "|",
    ]
    for method in _methods(lines):
        ratios = [_by(lines, method, s, lambda line: line["ratio"]) for s in spreads]
        told = [f"{np.median(r):.3f} | {max(r):.3f}" if r else "- | -" for r in ratios]
        rounds, size, seconds = (
            np.median(_by(lines, method, None, lambda line, n=n: line[n]) or [np.nan])
            for n in ("rounds", "bytes", "seconds")
        )
        ends = _by(lines, method, None, lambda line: line["ended"] in DONE)
        price = f"{rounds:.0f} | {size / 1e6:.2f} | {seconds:.1f} | {sum(ends)} of {len(ends)}"
        rows.append(f"| `{method}` | {' | '.join(told)} | {price} |")
    return "\n".join(rows)


def _table(lines: list[dict[str, Any]]) -> str:
    """Ratios by data set, iid / sorted, a few methods beside each other."""
    found = {(line["method"], line["data"], line["spread"]): line for line in lines}
    names = list(dict.fromkeys(cell.data for cell in cells() if cell.kind == lines[0]["kind"]))
    methods = _methods(lines)
    spreads = [s for s in SPREADS if any(line["spread"] == s for line in lines)]
    parts = []
    for first in range(0, len(methods), BESIDE):
        some = methods[first : first + BESIDE]
        heads = " | ".join(name.replace("-", "&#8209;") for name in some)
        rows = [f"| data ({' / '.join(spreads)}) | {heads} |", "|---" * (1 + len(some)) + "|"]
        for data in names:
            told = (" / ".join(_told(found.get((method, data, s))) for s in spreads) for method in some)
            rows.append(f"| {data} | {' | '.join(told)} |")
        parts.append("\n".join(rows))
    return "\n\n".join(parts)


def _told(line: dict[str, Any] | None) -> str:
    """Return what a table says of a cell."""
    if line is None:
        return "?"
    if "refused" in line or line["ratio"] is None:
        return "-"
    return f"{line['ratio']:.3f}" + ("*" if "rows" in line else "\u2020" if _old(line) else "")


def _old(line: dict[str, Any]) -> bool:
    """Whether a run ended at a limit of rounds that was lower than it is now."""
    entry = catalog.CATALOG[line["method"]]
    if line.get("ended") != "rounds" or entry.kind in ("blocks", "private"):
        return False
    return bool(line["rounds"] < limit(catalog.make(line["method"], 2), Plan(stop=1e-4)))


def _refusals(lines: list[dict[str, Any]]) -> list[str]:
    """What methods refused, and why."""
    told = dict.fromkeys((line["method"], line["data"], line["refused"]) for line in lines if "refused" in line)
    return [f"- `{method}` on {data}: {why}" for method, data, why in told]


def against(lines: list[dict[str, Any]]) -> str:
    """Worst ratio of every method to itself at every share of clients, of medians over seeds; and the rounds taken."""
    found = [line for line in lines if line.get("ratio") is not None]
    rows = ["| method | data sets | " + " | ".join(f"{share:g}: worst | rounds" for share in SHARES) + " |"]
    rows.append("|---" * (2 + 2 * len(SHARES)) + "|")
    for kind, method in dict.fromkeys((line["kind"], line["method"]) for line in found):
        told, seen = [], set()
        for share in SHARES:
            own = [line for line in found if (line["kind"], line["method"], line["share"]) == (kind, method, share)]
            seen |= {line["data"] for line in own}
            worst = max(medians(own).values(), default=np.nan)
            told.append(f"{worst:.3f} | {np.median([line['rounds'] for line in own]):.0f}" if own else "- | -")
        rows.append(f"| `{method}` | {len(seen)} | {' | '.join(told)} |")
    return "\n".join(rows)


def main() -> None:
    """Run, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "page", "floor"])
    parser.add_argument("data", nargs="*", help="only these data sets")
    parser.add_argument("--methods", nargs="*", default=[], help="only these methods")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.what == "page":
        PAGE.write_text(page(options.results))
    elif not os.environ.get(datasets.VARIABLE):
        parser.error(f"expected the folder of the data in {datasets.VARIABLE}, found none.")
    elif options.what == "floor":
        for name in options.data:
            print(name, *(f"{spread} {floor(name, spread):.4f}" for spread in ("iid", "sorted")), flush=True)
    else:
        carry_out(cells(), measured, options)


if __name__ == "__main__":
    main()
