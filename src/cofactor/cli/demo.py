"""``cofactor demo``: what the library is for, in one table and one picture."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from cofactor.data import datasets, partition
from cofactor.engines.history import Round
from cofactor.engines.loop import run
from cofactor.engines.outcome import Run
from cofactor.jobs.config import Config
from cofactor.jobs.job import fit
from cofactor.local.refit import refit
from cofactor.methods import catalog
from cofactor.metrics import sum_rmsd
from cofactor.plan import Stop
from cofactor.report.html import render
from cofactor.report.plots import component_rows
from cofactor.report.words import size
from cofactor.types import Array, Data

CLIENTS, RANK, ALPHA = 5, 12, 0.1
POOLED_ROUNDS, STARTS = 300, 3
METHODS = {"exact": 10, "oneshot": 1, "fnmf-lap": 10, "fedprox": 10, "fedavg": 10}


class Line(NamedTuple):
    """One row of the table."""

    name: str
    error: float
    ratio: float
    bytes: int | None
    rounds: int
    seconds: float


def run_demo(out: Path, *, seed: int = 0, as_json: bool = False) -> list[Line]:
    """Run every method on the digits, print the table, draw the components."""
    console = Console(quiet=as_json)
    digits = datasets.digits()
    assert digits.labels is not None
    parts = partition.dirichlet(digits.labels, CLIENTS, alpha=ALPHA, seed=seed)
    Xs = partition.split(digits.X, parts)
    sizes = ", ".join(str(len(p)) for p in parts)
    console.print(f"\n[bold]cofactor demo[/]: {len(digits.X)} digits of 64 pixels at {CLIENTS} clients ({sizes} rows),")
    console.print(f"each with its own mix of classes. One shared factor of rank {RANK}; rows stay where they are.\n")
    lines, factors = _compare(Xs, digits.X, seed, console)
    picture = component_rows(
        out / "components.png",
        factors,
        (8, 8),
        captions=[f"{line.ratio:.3f} x pooled" for line in lines if line.name in factors],
    )
    if as_json:
        print(json.dumps([line._asdict() for line in lines], indent=1))
    else:
        console.print(_table(lines))
        console.print("error: sum over clients of the RMSD, codes refitted; ratio: to the best of three pooled runs.")
        console.print(f"Picture of the components: {picture}", soft_wrap=True)
        console.print(f"Report to open in a browser: {_report(Xs, out, seed)}\n", soft_wrap=True)
    return lines


def _report(Xs: list[Data], out: Path, seed: int) -> Path:
    """Fit the same clients as files, as `cofactor fit` does, and return the report of the run; once for each seed."""
    folder = out / f"run-{seed}"
    if not (folder / "evaluation.json").exists():
        files = [out / "clients" / f"client{j}.npy" for j in range(len(Xs))]
        files[0].parent.mkdir(parents=True, exist_ok=True)
        for file, X in zip(files, Xs, strict=True):
            np.save(file, X)
        fit(Config([str(file) for file in files], RANK, seed=seed, image="8x8"), folder)
    return render(folder)


def _compare(Xs: list[Data], X: Data, seed: int, console: Console) -> tuple[list[Line], dict[str, Array]]:
    """Run pooled, every method and every client alone; return the table and the factors for the picture."""
    columns = (
        TextColumn("{task.description:<12}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:

        def timed(name: str, rounds: int, work: Callable[[Any], Run]) -> tuple[Run, float]:
            task = progress.add_task(name, total=rounds, note="")

            def show(line: Round, _: Any) -> None:
                progress.update(task, completed=line.round + 1, note=f"loss {line.loss:9.2f}  drift {line.drift:5.2f}")

            begin = time.perf_counter()
            outcome = work(show)
            progress.update(task, completed=rounds)
            return outcome, time.perf_counter() - begin

        def pooled(start: int) -> Callable[[Any], Run]:
            method = catalog.make("exact", RANK, start="random")
            return lambda show: run(
                method, [X], rounds=POOLED_ROUNDS, seed=start, stop=Stop(1e-6, 10), callbacks=[show]
            )

        def federated(name: str, rounds: int) -> Callable[[Any], Run]:
            method = catalog.make(name, RANK)
            return lambda show: run(method, Xs, rounds=rounds, seed=seed, callbacks=[show])

        runs = [timed(f"pooled {s + 1}", POOLED_ROUNDS, pooled(s)) for s in range(STARTS)]
        (best, seconds), floor = min(((r, _error(Xs, r[0].factor)) for r in runs), key=lambda pair: pair[1])
        lines = [Line("pooled", floor, 1.0, None, len(best.history), seconds)]
        factors = {"pooled": best.factor}
        for name, rounds in METHODS.items():
            outcome, seconds = timed(name, rounds, federated(name, rounds))
            error = sum_rmsd(Xs, outcome.codes, outcome.factor)
            lines.append(Line(name, error, error / floor, outcome.bytes, len(outcome.history), seconds))
            factors[name] = outcome.factor
        lines.append(_best_alone(Xs, floor, seed))
    return lines, factors


def _best_alone(Xs: list[Data], floor: float, seed: int) -> Line:
    """Return the client whose own factor serves all clients best."""
    begin = time.perf_counter()
    method = catalog.make("exact", RANK, start="random")
    alone = [run(method, [X], rounds=100, seed=seed) for X in Xs]
    error = min(_error(Xs, outcome.factor) for outcome in alone)
    return Line("best client alone", error, error / floor, 0, 0, time.perf_counter() - begin)


def _error(Xs: list[Data], H: Array) -> float:
    return sum_rmsd(Xs, [refit(X, H) for X in Xs], H)


def _table(lines: list[Line]) -> Table:
    table = Table()
    for column in ("method", "error", "ratio to pooled", "sent", "rounds", "seconds"):
        table.add_column(column, justify="left" if column == "method" else "right")
    for line in lines:
        style = "bold green" if line.name in ("exact", "oneshot") else ""
        sent = "all rows" if line.bytes is None else size(line.bytes)
        cells = (f"{line.error:.4f}", f"{line.ratio:.3f}", sent, str(line.rounds or "-"), f"{line.seconds:.2f}")
        table.add_row(line.name, *cells, style=style)
    return table
