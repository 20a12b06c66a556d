"""A tiny experiment whose cells leave a trace, fail on request, and are declared in TOML."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

TINY = """
paper = "none"
title = "Tiny"
run = "tests.helpers.experiment:cell"
seeds = [0, 1, 2]
settings = { trace = "TRACE", fails = [], dies = [] }

[methods]
exact = { ours = true, label = "ours" }
fedavg = { options = { sweeps = 2 }, label = "theirs" }

[[grid]]
method = ["exact", "fedavg"]
x = [1, 2, 4]

[quick]
seeds = [0]
x = [1, 2]

[[claims]]
says = "theirs is larger"
paper = "3 times"
measure = "value"
of = { method = "fedavg" }
over = { method = "exact" }
each = ["x"]
low = 2.5
high = 3.5
unit = "x"

[[claims]]
says = "ours is small, corrected"
paper = "below 5"
measure = "value"
of = { method = "exact" }
high = 5
fix = "the sign"

[[claims]]
says = "ours is tiny"
paper = "below 0"
measure = "value"
of = { method = "exact" }
high = 0

[[panels]]
x = "x"
y = "value"
log = "xy"

[[panels]]
kind = "curves"
x = "at"
y = "curve"

[[tables]]
rows = "method"
columns = "x"
measure = "value"
paper = { exact = { 1 = 0.9 } }
"""


def cell(settings: dict[str, Any]) -> dict[str, Any]:
    """Leave a trace; fail, or die, on the seeds that are named."""
    with Path(settings["trace"]).open("a") as file:
        file.write(f"{settings['method']} {settings['x']} {settings['seed']}\n")
    if settings["method"] == "fedavg" and settings["seed"] in settings["fails"]:
        raise ValueError(f"seed {settings['seed']} is bad")
    if settings["method"] == "fedavg" and settings["seed"] in settings["dies"]:
        os._exit(1)
    value = settings["x"] * (1 if settings["method"] == "exact" else 3) + settings["seed"] * 1e-3
    return {"value": value, "at": [1, 2, 3], "curve": [value, value / 2, value / 4]}


def written(folder: Path, text: str = TINY, **settings: Any) -> str:
    """Write the declaration into a folder; return its path as the command takes it."""
    for name, value in settings.items():
        text = text.replace(f"{name} = []", f"{name} = {value}")
    path = folder / "tiny.toml"
    path.write_text(text.replace("TRACE", str(folder / "trace")))
    return str(path)


def traces(folder: Path) -> list[str]:
    """Return the cells that were run, in any order, those run twice twice."""
    path = folder / "trace"
    return sorted(path.read_text().splitlines()) if path.exists() else []
