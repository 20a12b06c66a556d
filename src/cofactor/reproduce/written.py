"""Tables of an experiment in Markdown: medians over seeds, the paper's own numbers beside them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Any

from cofactor.reproduce.claims import Verdict, number
from cofactor.reproduce.experiment import Experiment, Settings, chosen


def values(lines: Sequence[Settings], measure: str) -> list[float]:
    """Return what cells measured; never is infinite, and cells that failed or do not measure it are left out."""
    found = [line["result"][measure] for line in lines if not line.get("error") and measure in line["result"]]
    return [math.inf if v is None else float(v) for v in found]


def tables(experiment: Experiment, lines: Sequence[Settings]) -> list[str]:
    """Return every declared table."""
    return [text for spec in experiment.tables if (text := _table(experiment, spec, lines))]


def _table(experiment: Experiment, spec: Settings, lines: Sequence[Settings]) -> str:
    """One table: ``rows`` and ``columns`` are settings, ``measure`` stands in it, ``paper`` [row][column] beside it."""
    lines = chosen(lines, spec.get("where", {}))
    across = spec.get("columns")
    heads = _distinct(lines, across) if across else spec["measure"]
    printed = spec.get("paper", {})
    body = []
    for row in _distinct(lines, spec["rows"]):
        cells, of_row = [], chosen(lines, {spec["rows"]: row})
        for head in heads:
            # what does not depend on the columns is the same in all of them
            here = [line for line in of_row if not across or line["cell"].get(across, head) == head]
            shown = _shown(values(here, spec["measure"] if across else head), spec.get("never", "never"))
            told = printed.get(str(row), {}).get(str(head))
            cells.append(shown if told is None else f"{shown} ({told})")
        name = experiment.label(row)
        body.append([f"**{name}**" if experiment.ours(row) else name, *cells])
    if not body:
        return ""
    titles = spec.get("heads", {})
    top = [spec.get("corner", spec["rows"]), *(titles.get(str(h), experiment.label(h)) for h in heads)]
    caption = f"{spec['title']}\n\n" if "title" in spec else ""
    return caption + "\n".join(_row(cells) for cells in [top, ["---"] * len(top), *body])


def verdict_table(verdicts: Sequence[Verdict]) -> str:
    """Claims with what the paper says and what was measured here."""
    top = ["claim", "paper", "here", "asked", "verdict"]
    body = [[v.says, v.paper, v.here, v.asked, f"**{v.verdict}**" + (f": {v.fix}" if v.fix else "")] for v in verdicts]
    return "\n".join(_row(cells) for cells in [top, ["---"] * 5, *body])


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _shown(found: Sequence[float], never: str) -> str:
    """Return the median, and what never came in the words of the table."""
    return number(median(found)).replace("never", never) if found else "-"


def _distinct(lines: Sequence[Settings], name: str) -> list[Any]:
    return list(dict.fromkeys(line["cell"][name] for line in lines if name in line["cell"]))
