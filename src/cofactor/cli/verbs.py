"""What the verbs do and print."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table

from cofactor import records
from cofactor.cli import federation
from cofactor.cli.console import Console, speaks
from cofactor.cli.interrupts import AGAIN, leave, telling
from cofactor.cli.progress import Progress, announcer
from cofactor.data.formats.codes import write_codes
from cofactor.files import atomic, command
from cofactor.jobs import config as configs
from cofactor.jobs import job as jobs
from cofactor.jobs import judge, new_rows
from cofactor.jobs import ranks as ranks_
from cofactor.jobs.conclude import TOP
from cofactor.jobs.config import Config
from cofactor.jobs.folder import RunFolder
from cofactor.records import ClientScore, Evaluation, Passport
from cofactor.select.markers import to_tsv
from cofactor.types import CofactorError

LEFT = ("markers", "top features", "items", "part", "user")
"""Columns of words."""


def fit(
    given: dict[str, Any],
    out: Path,
    *,
    config_file: Path | None,
    as_json: bool,
    quiet: bool,
    home: Path,
    least: int | None = None,
) -> None:
    """Fit from a configuration file or from the options given; both together are an error."""
    if given.get("engine") == "flare":
        others = {name: value for name, value in given.items() if name != "engine"}
        if config_file is not None:
            _check_either(others)
        federation.fit(others, out, config_file, home, least=least, quiet=quiet or as_json)
        conclude(RunFolder.open(out), as_json=as_json, quiet=quiet)
        return
    if least is not None:
        raise CofactorError(
            "--min-clients: expected with --engine flare, found another engine, whose clients all answer."
        )
    config = _config(given, config_file)
    with interrupted(out), Progress(quiet=quiet or as_json or not speaks()) as progress:
        folder = jobs.fit(config, out, callbacks=[progress], announce=announcer(progress))
    if speaks():
        conclude(folder, as_json=as_json, quiet=quiet)


@contextmanager
def interrupted(out: Path) -> Iterator[None]:
    """Say of a run that is interrupted how far it came, and how it goes on."""
    try:
        yield
    except KeyboardInterrupt:
        from cofactor.jobs.inspect import standing

        leave(standing(RunFolder(out)))


def _config(given: dict[str, Any], config_file: Path | None) -> Config:
    if config_file is not None:
        _check_either(given)
        return configs.read(config_file)
    for name, what in (("inputs", "at least one input file"), ("rank", "the number of components with -k")):
        if name not in given:
            raise CofactorError(f"expected {what}, found none; see `cofactor fit --help`.")
    return Config(**given)


def _check_either(given: dict[str, Any]) -> None:
    """Refuse options beside a configuration file, which has all of them."""
    if given:
        raise CofactorError(f"expected either --config or options, found --config and {', '.join(given)}.")


def resume(run: Path, *, as_json: bool, quiet: bool) -> None:
    """Continue an interrupted run."""
    if federation.is_federated(run):
        federation.resume(run, quiet=quiet or as_json)
        conclude(RunFolder.open(run), as_json=as_json, quiet=quiet)
        return
    with interrupted(run), Progress(quiet=quiet or as_json or not speaks()) as progress:
        folder = jobs.resume(run, callbacks=[progress], announce=announcer(progress))
    if speaks():
        conclude(folder, as_json=as_json, quiet=quiet)


def conclude(folder: RunFolder, *, as_json: bool, quiet: bool) -> None:
    """Write the report, and say what came out and where it lies."""
    with telling(f" after the run was complete; {command('report', folder.path)} writes its report."):
        page = _report(folder)
    if as_json:
        print(json.dumps({"run": str(folder.path), "report": page, **records.plain(folder.evaluation())}, indent=1))
    elif not quiet:
        result = folder.evaluation()
        _show_errors(result)
        for line in judge.remarks(result):
            Console().print(line, style="yellow", markup=False)
        Console().print(f"run {folder.path}" + (f", report {page}" if page else ""), soft_wrap=True)


def _report(folder: RunFolder) -> str | None:
    """Write the report of a run that is over, which is whole without: what goes wrong is said, and ends nothing."""
    try:
        from cofactor.report.html import render

        return str(render(folder.path))
    except Exception as error:
        why = f"cofactor: the run is complete, and its report could not be made ({type(error).__name__}: {error})."
        print(f"{why} Once that is mended: {command('report', folder.path)}", file=sys.stderr)
        return None


def evaluate(run: Path, *, pooled: bool, as_json: bool) -> None:
    """Print the errors of a run; with ``pooled`` compute the bound first, and renew the report."""
    folder = RunFolder.open(run)
    if pooled:
        judge.add_pooled(folder)
        _report(folder)
    result = folder.evaluation()
    if as_json:
        print(json.dumps(records.plain(result), indent=1))
    else:
        _show_errors(result)


def _show_errors(result: Evaluation) -> None:
    """Print the errors of every client, or of ratings those of both parts, or what a private run cost."""
    if result.privacy is not None:
        _show_private(result)
    elif result.parts:
        short = [{name.partition("@")[0]: value for name, value in p.ranking.items()} for p in result.parts]
        rows = [{"part": p.part, "ratings": p.ratings, "rmse": p.rmse, **more} for p, more in zip(result.parts, short)]
        columns = list(dict.fromkeys(name for row in rows for name in row))
        _show_rows([{name: row.get(name) for name in columns} for row in rows])
        if any(short):
            Console().print(f"precision, recall, ndcg and coverage: of lists of {TOP} items")
    else:
        _show_clients(result)


def _show_private(result: Evaluation) -> None:
    """Print what all releases of a run cost together; errors are the clients' own."""
    console, spent = Console(soft_wrap=True), result.privacy
    assert spent is not None
    console.print(f"{result.rounds} rounds: {spent.text}", highlight=False)
    if spent.private:
        console.print("private: yes")
    else:
        console.print("private: no. The noise came from a seed and can be repeated.", style="red")
    if result.remark:
        console.print(f"Mind that {result.remark}", style="yellow")
    console.print(
        "The error of each client is in its own folder (clients/NAME/evaluation.json; of a federation, in its home) "
        "and was not released."
    )


def _show_clients(result: Evaluation) -> None:
    columns = {"relative error": "error"}
    if any(line.local_error is not None for line in result.clients):
        columns["own local fit"] = "local_error"
    if result.pooled_error is not None:
        columns["pooled"] = "pooled_error"
    table = Table()
    for column in ("client", "rows", *columns):
        table.add_column(column, justify="left" if column == "client" else "right", overflow="fold")

    def cells(line: ClientScore | Evaluation, missing: str) -> list[str]:
        errors = [vars(line).get(name) for name in columns.values()]
        return [missing if error is None else f"{error:.4f}" for error in errors]

    for line in result.clients:
        table.add_row(line.client, str(line.rows), *cells(line, "-"))
    table.add_section()
    table.add_row("all", str(sum(c.rows for c in result.clients) or "-"), *cells(result, ""), style="bold")
    Console().print(table)


def transform(run: Path, file: Path, out: Path, *, as_json: bool, quiet: bool, **how: str | None) -> None:
    """Write the codes of new rows."""
    folder = RunFolder.open(run)
    new_rows.spare(folder, out, file)
    found = new_rows.transform(folder, file, **how)
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.suffix.lower() == ".h5ad":
        new_rows.annotate_file(folder, file, out, found)
    else:
        write_codes(out, found.codes, found.rows, new_rows.columns(folder))
    if as_json:
        print(json.dumps({"codes": str(out), "rows": len(found.codes), "error": found.error}))
    elif not quiet:
        said = f"{len(found.codes)} rows, relative error {found.error:.4f}, codes in {out}"
        Console().print(said, soft_wrap=True)


def rank(config: Config, ranks: list[int], out: Path | None, *, seeds: int, as_json: bool, quiet: bool) -> None:
    """Scan ranks, print the table and the suggestion, and leave both in the folder."""
    if out is not None:
        ranks_.refuse_private(out)
    with telling(f"; nothing was written, {AGAIN}"), Progress(quiet=quiet or as_json):
        scan = ranks_.scan_ranks(config, ranks, seeds=seeds)
    if out is not None:
        from cofactor.report.plots import rank_scan

        out.mkdir(parents=True, exist_ok=True)
        found = ranks_.record(scan)
        RunFolder(out).write_json("rank.json", found)
        rank_scan(out / "rank.png", found)
    if as_json:
        print(json.dumps(scan.to_dict(), indent=1))
    elif not quiet:
        error = {"ratings": "RMSE", "boolean": "loss"}.get(config.kind, "error")
        _show_rows([_scanned(line, error) for line in scan.table()])
        Console().print(f"Suggested rank: {scan.suggestion}. {scan.reason}")


def _scanned(line: dict[str, Any], error: str) -> dict[str, Any]:
    """Return a line of a rank scan as it is shown; ratings are judged by their error alone."""
    shown = {"rank": line["rank"], f"held-out {error}": line["heldout"], f"training {error}": line["training"]}
    if error == "error":
        shown |= {"stability over seeds": line["seed_stability"], "over clients": line["client_stability"]}
    return {**shown, "": "suggested" if line["suggested"] else ""}


def markers(run: Path, top: int, out: Path | None, *, as_json: bool) -> None:
    """Print the markers of a run's components, or write them as a table."""
    folder = RunFolder.open(run)
    found = new_rows.markers(folder, top)
    if out is not None:
        new_rows.spare(folder, out, own="markers.tsv")
        out.parent.mkdir(parents=True, exist_ok=True)
        with atomic(out) as stream:
            stream.write(to_tsv(found).encode())
    if as_json:
        print(json.dumps([asdict(line) for line in found], indent=1))
    elif out is not None or not found:  # of components that nothing is made of there are none
        Console().print(f"{len(found)} markers" + (f" in {out}" if out else ""), soft_wrap=True)
    else:
        by: dict[int, list[str]] = {}
        for line in found:
            by.setdefault(line.component, []).append(str(line.feature))
        _show_rows([{"component": i, "markers": ", ".join(names)} for i, names in by.items()])


def passports(run: Path, *, as_json: bool) -> None:
    """Print the passports of a run's components, the largest share first."""
    folder = RunFolder.open(run)
    file = folder.path / "passports.json"
    if not file.exists():
        folder.evaluation()  # says what to do where a run has not ended
        raise CofactorError(
            f"{run}: has no passports: they compare components with those of clients alone, which only runs on "
            "non-negative numbers have, with the same features at every client, that are not private, not under masks "
            "and not too large."
        )
    found = records.load(list[Passport], file)
    if as_json:
        print(json.dumps(records.plain(found), indent=1))
        return
    marked = any(p.markers for p in found)
    _show_rows(
        [
            {
                "component": p.component,
                "share": p.share,
                "clients": f"{p.clients_found}/{p.n_clients}",
                "stability": p.stability,
                "moved": p.drift,
                "markers" if marked else "top features": ", ".join(n for n, _ in (p.markers or p.top_features)[:6]),
            }
            for p in sorted(found, key=lambda p: -p.share)
        ]
    )


def _show_rows(rows: list[dict[str, Any]]) -> None:
    table = Table()
    for column in rows[0]:
        table.add_column(column, justify="left" if column in LEFT else "right", overflow="fold")
    for row in rows:
        table.add_row(*(f"{v:.4f}" if isinstance(v, float) else "-" if v is None else str(v) for v in row.values()))
    Console().print(table)
