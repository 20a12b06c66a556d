"""The pipeline of a reproduction: declarations, cells, tables, a figure, verdicts; a folder for each experiment."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from cofactor import __version__
from cofactor.data import datasets
from cofactor.files import atomic
from cofactor.reproduce.claims import OPEN, Verdict, judge
from cofactor.reproduce.experiment import PACKAGE, Experiment, Settings, find
from cofactor.reproduce.measuring import Book, Told, run_cells
from cofactor.reproduce.written import tables, verdict_table

BOOK, TABLE, FIGURE, RESULTS = "cells.jsonl", "table.md", "figure.png", "results.json"


@dataclass(frozen=True)
class Outcome:
    """What came out of one experiment: its lines, verdicts, what was missing, and its folder."""

    experiment: Experiment
    size: str
    lines: list[Settings]
    verdicts: list[Verdict]
    missing: dict[str, str]
    folder: Path
    seeds: int | None = None

    @property
    def failed(self) -> list[Settings]:
        """Cells that ended with an error."""
        return [line for line in self.lines if line.get("error")]

    @property
    def seconds(self) -> float:
        """CPU seconds of all cells, when they were run."""
        return float(sum(line["seconds"] for line in self.lines))


def reproduce(
    names: Sequence[str],
    out: Path,
    *,
    size: str = "full",
    seeds: int | None = None,
    workers: int | None = None,
    told: Told,
) -> list[Outcome]:
    """Run experiments, and write the folder of each: cells, table, figure, verdicts. Cells that are there stay.

    With ``seeds`` only the first ones of each experiment are run, and what is written says so.
    """
    wanted = [find(name) for name in names]
    books = {e.name: Book(out / e.name / BOOK) for e in wanted}
    cells = {e.name: e.cells(size, seeds) for e in wanted}
    lost = {name: missing(found) for name, found in cells.items()}
    jobs = [(e, c) for e in wanted for c in cells[e.name] if c.get("data") not in lost[e.name]]
    run_cells(jobs, books, workers=workers, told=told)
    found = {e.name: books[e.name].of(cells[e.name]) for e in wanted}
    judged = {e.name: [_said(v, lost[e.name]) for v in judge(e, found[e.name])] for e in wanted}
    made = [
        Outcome(e, size, found[e.name], judged[e.name], lost[e.name], out / e.name, _fewer(e, size, seeds))
        for e in wanted
    ]
    return [_conclude(one) for one in made]


def _fewer(experiment: Experiment, size: str, seeds: int | None) -> int | None:
    """Return how many seeds were asked for, where that is fewer than there are."""
    return seeds if seeds and len(experiment.cells(size, seeds)) < len(experiment.cells(size)) else None


def _conclude(made: Outcome) -> Outcome:
    """Write what a reader wants."""
    folder = made.folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in ((TABLE, page(made)), (RESULTS, record(made))):
        with atomic(folder / name) as file:
            file.write(text.encode())
    from cofactor.reproduce.drawn import draw

    draw(folder / FIGURE, made.experiment, made.lines)
    return made


def _said(verdict: Verdict, lost: dict[str, str]) -> Verdict:
    """Say of a claim that could not be measured which data it lacks."""
    if verdict.verdict != OPEN or not lost:
        return verdict
    return Verdict(verdict.says, verdict.paper, f"data missing: {', '.join(lost)}", OPEN)


def page(made: Outcome) -> str:
    """Return tables and verdicts as Markdown."""
    e = made.experiment
    parts = [f"# {e.title}", e.note, *tables(e, made.lines), verdict_table(made.verdicts)]
    parts += [f"Left out, because its data are not here: {text}" for text in made.missing.values()]
    parts += [f"A cell failed: {line['cell']}: {line['error']}" for line in made.failed]
    parts.append(f"{len(made.lines)} cells, {made.seconds:.0f} CPU seconds, size {made.size}: `{command(made)}`")
    return "\n\n".join(part for part in parts if part) + "\n"


def command(made: Outcome) -> str:
    """The command that made it."""
    return " ".join(
        [
            f"cofactor reproduce {made.experiment.name}",
            *(["--quick"] if made.size == "quick" else []),
            *([f"--seeds {made.seeds}"] if made.seeds else []),
        ]
    )


def record(made: Outcome) -> str:
    """Return everything as JSON, one line for each cell."""
    head: dict[str, Any] = {
        "experiment": made.experiment.name,
        "paper": made.experiment.paper,
        "title": made.experiment.title,
        "size": made.size,
        "command": command(made),
        "version": __version__,
        "cpu_seconds": round(made.seconds, 1),
        "missing": made.missing,
        "claims": [v.record() for v in made.verdicts],
    }
    body = ",\n".join(json.dumps(line) for line in made.lines)
    return json.dumps(head, indent=1, ensure_ascii=False)[:-2] + f',\n "cells": [\n{body}\n ]\n}}\n'


def missing(cells: Sequence[Settings]) -> dict[str, str]:
    """Return every dataset that cells name under "data" and that is not here, with what to do about it."""
    wanted = dict.fromkeys(cell["data"] for cell in cells if "data" in cell)
    return {name: text for name in wanted if (text := _why_not(name))}


def _why_not(name: str) -> str:
    """Say why a dataset cannot be read; "" where it can."""
    file = datasets.file_of(name)
    if file is None:
        return ""
    folder = os.environ.get(datasets.VARIABLE)
    if folder and (Path(folder) / file).is_file():
        return ""
    where = f"not in {folder}" if folder else f"the environment variable {datasets.VARIABLE} names no folder"
    return f"{file}: {where}. It can be made from {sources().get(file.removesuffix('.npz'), 'a source of your own')}."


def sources() -> dict[str, str]:
    """Return where each file can be had."""
    text = (resources.files(PACKAGE) / "data.toml").read_text(encoding="utf-8")
    return {name: str(entry) for name, entry in tomllib.loads(text).items()}
