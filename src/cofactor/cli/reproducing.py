"""``cofactor reproduce``: run experiments of papers again, and say what holds."""

from __future__ import annotations

import json as json_
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cofactor.cli.console import Console
from cofactor.cli.options import Json, Quiet
from cofactor.types import CofactorError

if TYPE_CHECKING:
    from cofactor.reproduce.measuring import Done
    from cofactor.reproduce.pipeline import Outcome


def reproduce(  # noqa: PLR0917 - typer options are parameters
    ids: Annotated[list[str] | None, typer.Argument(help="Experiments by name, or TOML files of your own.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All experiments.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller sizes and fewer seeds.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="List the experiments and leave.")] = False,
    out: Annotated[Path, typer.Option(help="The folder for results; cells that it holds are not run again.")] = Path(
        "reproduced"
    ),
    seeds: Annotated[int | None, typer.Option(help="Only the first so many seeds of each.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes at a time (default: one for each core).")] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run tables and figures of the papers again, and say of each claim whether it holds here.

    Real data are looked up in the folder that COFACTOR_DATA names; what is missing is said, and the rest runs.

    Example: cofactor reproduce --list

    Example: cofactor reproduce fnmf-fig3 --quick

    Example: cofactor reproduce --all --quick --out reproduced
    """
    if listed:
        show_list(as_json=json)
        return
    from cofactor.reproduce.experiment import names
    from cofactor.reproduce.pipeline import reproduce as run

    if not ids and not every:
        raise CofactorError(f"expected experiments, or --all. Found none. There are: {', '.join(names())}.")
    for name, value in (("workers", workers), ("seeds", seeds)):
        if value is not None and value < 1:
            raise CofactorError(f"{name} must be at least 1. Found {value}.")
    asked = names() if every else list(dict.fromkeys(ids or []))
    tell = Tell(quiet=quiet or json)
    try:
        made = run(asked, out, size="quick" if quick else "full", seeds=seeds, workers=workers, told=tell)
    except KeyboardInterrupt:
        said = f"interrupted; {tell.count} cells are kept in {out}, the same command goes on"
        print(f"cofactor: {said}.", file=sys.stderr)
        raise typer.Exit(130) from None
    if json:
        found = [
            {
                "experiment": m.experiment.name,
                "claims": [v.record() for v in m.verdicts],
                "missing": m.missing,
                "failed": m.failed,
            }
            for m in made
        ]
        print(json_.dumps(found, indent=1, ensure_ascii=False))
    elif not quiet:
        _show(made)


def show_list(*, as_json: bool = False) -> None:
    """Print every experiment with its paper, what it shows and how many cells it has."""
    from cofactor.reproduce.experiment import find, names

    found = [find(name) for name in names()]
    if as_json:
        rows = [{"experiment": e.name, "paper": e.paper, "title": e.title, "claims": len(e.claims)} for e in found]
        print(json_.dumps(rows, indent=1, ensure_ascii=False))
        return
    console = Console(highlight=False)
    for paper in dict.fromkeys(e.paper for e in found):
        console.print(f"\n{paper}", style="bold")
        for e in (e for e in found if e.paper == paper):
            cells = f"{len(e.cells('full'))} cells, quick {len(e.cells('quick'))}"
            console.print(f"{e.name:22s} {e.title} ({cells})", soft_wrap=True)


class Tell:
    """Says each cell as it ends, with the time that is left."""

    def __init__(self, *, quiet: bool) -> None:
        self.quiet, self.count = quiet, 0

    def __call__(self, done: Done) -> None:
        """Print one line."""
        self.count += 1
        if self.quiet:
            return
        cell = {k: v for k, v in done.line["cell"].items() if k != "spec"}
        said = " ".join(f"{k}={v}" for k, v in cell.items() if k in ("method", "data", "seed", "split", "setting"))
        end = f"FAILED: {done.line['error']}" if done.line.get("error") else f"{done.line['seconds']:.1f} s"
        print(
            f"{done.done}/{done.cells}  {done.experiment}  {said}  {end}  about {done.left:.0f} s left",
            file=sys.stderr,
            flush=True,
        )


STYLES = {"reproduced": "green", "holds": "green", "reproduced with correction": "yellow", "not run": "dim"}
"""Colours of verdicts; the others are red."""


def _show(made: list[Outcome]) -> None:
    console = Console(highlight=False)
    for m in made:
        console.print(f"\n{m.experiment.title}", style="bold", soft_wrap=True)
        for verdict in m.verdicts:
            console.print(f"  {verdict.verdict}", style=STYLES.get(verdict.verdict, "red"), end="")
            console.print(f": {verdict.says}", soft_wrap=True)
            asked = f"; asked: {verdict.asked}" if verdict.asked else ""
            console.print(f"    paper: {verdict.paper}; here: {verdict.here}{asked}", soft_wrap=True)
            if verdict.fix:
                console.print(f"    corrected: {verdict.fix}", soft_wrap=True)
        for text in m.missing.values():
            console.print(f"  left out: {text}", soft_wrap=True)
        if m.failed:
            console.print(f"  {len(m.failed)} of {len(m.lines)} cells failed; see {m.folder / 'table.md'}", style="red")
        there = ", ".join(sorted(path.name for path in m.folder.iterdir()))
        took = f"{m.seconds:.0f} CPU seconds" if m.lines else "nothing was run"
        console.print(f"  {m.folder}: {there} ({took})", soft_wrap=True)
