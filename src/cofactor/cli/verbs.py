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
from cofactor.runs import config as configs
from cofactor.runs import fit as runs
from cofactor.runs.config import Config
from cofactor.runs.folder import RunFolder
from cofactor.types import CofactorError


def fit(given: dict[str, Any], out: Path, *, config_file: Path | None, as_json: bool, quiet: bool) -> None:
    """Fit from a configuration file or from the options given; both together are an error."""
    config = _config(given, config_file)
    with Progress(config.rounds, quiet=quiet or as_json) as progress:
        folder = runs.fit(config, out, callbacks=[progress])
    _conclude(folder, as_json=as_json, quiet=quiet)


def _config(given: dict[str, Any], config_file: Path | None) -> Config:
    if config_file is not None:
        if given:
            raise CofactorError(f"expected either --config or options, found --config and {', '.join(given)}.")
        return configs.read(config_file)
    for name, what in (("inputs", "at least one input file"), ("rank", "the number of components with -k")):
        if name not in given:
            raise CofactorError(f"expected {what}, found none; see `cofactor fit --help`.")
    if given.get("boolean") and "method" not in given:
        given = {**given, "method": "boolean-oneshot"}
    return Config(**given)


def resume(run: Path, *, as_json: bool, quiet: bool) -> None:
    """Continue an interrupted run."""
    config = RunFolder.open(run).config()
    with Progress(config.rounds, quiet=quiet or as_json) as progress:
        folder = runs.resume(run, callbacks=[progress])
    _conclude(folder, as_json=as_json, quiet=quiet)


def _conclude(folder: RunFolder, *, as_json: bool, quiet: bool) -> None:
    """Write the report, and say what came out and where it lies."""
    from cofactor.report.html import render

    page = render(folder.path)
    result = folder.read_json("evaluation.json")
    if as_json:
        print(json.dumps({"run": str(folder.path), "report": str(page), **result}, indent=1))
    elif not quiet:
        _show_clients(result)
        if not result["converged"]:
            Console().print("Not converged: more --rounds, or a larger --tol, would end it.", style="yellow")
        Console().print(f"run {folder.path}, report {page}", soft_wrap=True)


def evaluate(run: Path, *, as_json: bool) -> None:
    """Print the errors of a run."""
    result = RunFolder.open(run).read_json("evaluation.json")
    if as_json:
        print(json.dumps(result, indent=1))
    else:
        _show_clients(result)


def _show_clients(result: dict[str, Any]) -> None:
    table = Table()
    for column in ("client", "rows", "relative error", "own local fit"):
        table.add_column(column, justify="left" if column == "client" else "right")
    for line in result["clients"]:
        own = line["local_error"]
        table.add_row(
            str(line["client"]), str(line["rows"]), f"{line['error']:.4f}", "-" if own is None else f"{own:.4f}"
        )
    table.add_section()
    table.add_row("all", str(sum(c["rows"] for c in result["clients"])), f"{result['error']:.4f}", "", style="bold")
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
