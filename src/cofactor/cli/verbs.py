"""What the verbs do and print."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from cofactor.cli.progress import Progress
from cofactor.engines.checkpoint import atomic
from cofactor.engines.processes import speaks
from cofactor.runs import config as configs
from cofactor.runs import fit as runs
from cofactor.runs.build import planned_rounds
from cofactor.runs.choice import settled
from cofactor.runs.config import Config
from cofactor.runs.evaluate import add_pooled
from cofactor.runs.folder import RunFolder
from cofactor.select import RankScan
from cofactor.types import CofactorError

LEFT = ("top features", "items", "part", "user")
"""Columns of words."""


def fit(given: dict[str, Any], out: Path, *, config_file: Path | None, as_json: bool, quiet: bool) -> None:
    """Fit from a configuration file or from the options given; both together are an error."""
    config = settled(_config(given, config_file))
    if config.why and speaks() and not (quiet or as_json):
        Console().print(f"Method {config.why}", soft_wrap=True)
    with Progress(planned_rounds(config), quiet=quiet or as_json or not speaks()) as progress:
        folder = runs.fit(config, out, callbacks=[progress])
    if speaks():
        _conclude(folder, as_json=as_json, quiet=quiet)


def _config(given: dict[str, Any], config_file: Path | None) -> Config:
    if config_file is not None:
        if given:
            raise CofactorError(f"expected either --config or options, found --config and {', '.join(given)}.")
        return configs.read(config_file)
    for name, what in (("inputs", "at least one input file"), ("rank", "the number of components with -k")):
        if name not in given:
            raise CofactorError(f"expected {what}, found none; see `cofactor fit --help`.")
    return Config(**given)


def resume(run: Path, *, as_json: bool, quiet: bool) -> None:
    """Continue an interrupted run."""
    config = RunFolder.open(run).config()
    with Progress(planned_rounds(config), quiet=quiet or as_json or not speaks()) as progress:
        folder = runs.resume(run, callbacks=[progress])
    if speaks():
        _conclude(folder, as_json=as_json, quiet=quiet)


def _conclude(folder: RunFolder, *, as_json: bool, quiet: bool) -> None:
    """Write the report, and say what came out and where it lies."""
    from cofactor.report.html import render

    page = render(folder.path)
    result = folder.read_json("evaluation.json")
    if as_json:
        print(json.dumps({"run": str(folder.path), "report": str(page), **result}, indent=1))
    elif not quiet:
        _show_errors(result)
        if not result["converged"]:
            Console().print("Not converged: more --rounds, or a larger --tol, would end it.", style="yellow")
        Console().print(f"run {folder.path}, report {page}", soft_wrap=True)


def evaluate(run: Path, *, pooled: bool, as_json: bool) -> None:
    """Print the errors of a run; with ``pooled`` compute the bound first, and renew the report."""
    folder = RunFolder.open(run)
    if pooled:
        from cofactor.report.html import render

        add_pooled(folder)
        render(folder.path)
    result = folder.read_json("evaluation.json")
    if as_json:
        print(json.dumps(result, indent=1))
    else:
        _show_errors(result)


def _show_errors(result: dict[str, Any]) -> None:
    """Print the errors of every client, or of ratings those of both parts, or what a private run cost."""
    if "private" in result:
        _show_private(result)
        return
    if "parts" not in result:
        _show_clients(result)
        return
    Console().print(f"{result['users']} users, {result['items']} items")
    columns = list(dict.fromkeys(name for part in result["parts"] for name in part))
    _show_rows([{name: part.get(name) for name in columns} for part in result["parts"]])


def _show_private(result: dict[str, Any]) -> None:
    """Print what all releases of a run cost together; errors are the clients' own."""
    console = Console(soft_wrap=True)
    console.print(f"{result['rounds']} rounds: {result['text']}", highlight=False)
    if result["private"]:
        console.print("private: yes")
    else:
        console.print("private: no. The noise came from a seed and can be repeated.", style="red")
    console.print("The error of each client is in its own folder, clients/NAME/evaluation.json, and was not released.")


def _show_clients(result: dict[str, Any]) -> None:
    columns = {"relative error": "error", "own local fit": "local_error"}
    if "pooled_error" in result:
        columns["pooled"] = "pooled_error"
    table = Table()
    for column in ("client", "rows", *columns):
        table.add_column(column, justify="left" if column == "client" else "right")

    def cells(line: dict[str, Any], missing: str) -> list[str]:
        errors = [line.get(name) for name in columns.values()]
        return [missing if error is None else f"{error:.4f}" for error in errors]

    for line in result["clients"]:
        table.add_row(str(line["client"]), str(line["rows"]), *cells(line, "-"))
    table.add_section()
    table.add_row("all", str(sum(c["rows"] for c in result["clients"])), *cells(result, ""), style="bold")
    Console().print(table)


def transform(run: Path, file: Path, out: Path, *, layer: str | None, as_json: bool, quiet: bool) -> None:
    """Write the codes of new rows."""
    W, error = runs.transform(RunFolder.open(run), file, layer=layer)
    with atomic(out) as stream:
        np.save(stream, W)
    if as_json:
        print(json.dumps({"codes": str(out), "rows": len(W), "error": error}))
    elif not quiet:
        Console().print(f"{len(W)} rows, relative error {error:.4f}, codes in {out}", soft_wrap=True)


def recommend(run: Path, file: Path, n: int, *, as_json: bool) -> None:
    """Print the best items of every user of a file."""
    from cofactor.runs import ratings

    found = ratings.recommend(RunFolder.open(run), file, n)
    if as_json:
        print(json.dumps(found, indent=1))
    else:
        _show_rows([{"user": user, "items": ", ".join(items)} for user, items in found.items()])


def rank(config: Config, ranks: list[int], out: Path | None, *, seeds: int, as_json: bool, quiet: bool) -> None:
    """Scan ranks, print the table and the suggestion, and leave both in the folder."""
    scan = runs.scan_ranks(config, ranks, seeds=seeds)
    if out is not None:
        from cofactor.report.plots import rank_scan

        out.mkdir(parents=True, exist_ok=True)
        RunFolder(out).write_json("rank.json", _rank_words(scan))
        rank_scan(out / "rank.png", _rank_words(scan))
    if as_json:
        print(json.dumps(scan.to_dict(), indent=1))
    elif not quiet:
        _show_rows(
            [
                {
                    "rank": line["rank"],
                    "held-out error": line["heldout"],
                    "training error": line["training"],
                    "stability over seeds": line["seed_stability"],
                    "over clients": line["client_stability"],
                    "": "suggested" if line["suggested"] else "",
                }
                for line in scan.table()
            ]
        )
        Console().print(f"Suggested rank: {scan.suggestion}. {scan.reason}")


def _rank_words(scan: RankScan) -> dict[str, Any]:
    """Return a scan in the words of the report."""
    found = scan.to_dict()
    return {
        "ranks": found["ranks"],
        "heldout_mean": found["heldout"],
        "heldout_std": found["heldout_std"],
        "training_error": found["training"],
        "seed_stability": found["seed_stability"],
        "client_stability": found["client_stability"],
        "suggestion": scan.suggestion,
        "reason": scan.reason,
    }


def passports(run: Path, *, as_json: bool) -> None:
    """Print the passports of a run's components, the largest share first."""
    found = RunFolder.open(run).read_json("passports.json")
    if as_json:
        print(json.dumps(found, indent=1))
        return
    _show_rows(
        [
            {
                "component": p["component"],
                "share": p["share"],
                "clients": f"{p['clients_found']}/{p['n_clients']}",
                "stability": p["stability"],
                "drift": p["drift"],
                "top features": ", ".join(name for name, _ in p["top_features"][:6]),
            }
            for p in sorted(found, key=lambda p: -p["share"])
        ]
    )


def _show_rows(rows: list[dict[str, Any]]) -> None:
    table = Table()
    for column in rows[0]:
        table.add_column(column, justify="left" if column in LEFT else "right")
    for row in rows:
        table.add_row(*(f"{v:.4f}" if isinstance(v, float) else "-" if v is None else str(v) for v in row.values()))
    Console().print(table)
