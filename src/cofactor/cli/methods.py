"""``cofactor methods``: the catalog, readable at any width."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence

from cofactor import kinds
from cofactor.cli.console import Console
from cofactor.methods import catalog
from cofactor.methods.build import Facts, build
from cofactor.plan import Plan
from cofactor.privacy.allowance import Privacy

CLIENTS, FEATURES, RANK = 5, 1000, 10
BUDGET = Privacy(1.0, 1e-6)
NAME, WIDEST = 20, 120
"""Columns of a name, and the most columns of a line."""
FLAGS = {"boolean": " (--boolean)", "ratings": " (--ratings)"}
"""How data of a kind are told apart."""


def title(kind: str) -> str:
    """Return the heading of the methods of a kind; private ones are those of numbers, with noise."""
    private = kind == "private"
    words = kinds.named("real" if private else kind).called.capitalize()
    return f"{words}, with noise (--epsilon, --delta)" if private else words + FLAGS.get(kind, "")


def describe(name: str) -> dict[str, str]:
    """Return name, kind, a sentence, what one of several clients sends first and later, and of what a sum is enough.

    It is the method as it runs unless options are given: Boolean ones with their sweeps.
    """
    entry = catalog.find(name)
    plan = Plan(privacy=BUDGET if entry.private else None)
    usual = {} if entry.private else kinds.named(entry.kind).options
    method, _ = build(name, RANK, plan, Facts(CLIENTS, FEATURES, FEATURES), usual)
    last = method.traits.stages[-1] if method.rounds is None else method.rounds - 1
    sent = [", ".join(method.schema(FEATURES, t)) for t in sorted({*method.traits.stages, last})]
    return {
        "name": name,
        "kind": "private" if entry.private else entry.kind,
        "what": entry.what,
        "sends": "; then ".join(dict.fromkeys(sent)),
        "rounds": "many" if method.rounds is None else str(method.rounds),
        "only the sum of": entry.sums or "-",
        "paper": entry.paper or "ours",
    }


def options(name: str) -> str:
    """Return what ``--option`` may say of a method, with its defaults."""
    entry = catalog.find(name)
    return ", ".join(f"{option}={json.dumps(entry.default(option), default=str)}" for option in entry.options)


def show_methods(names: Sequence[str] = (), *, as_json: bool = False) -> None:
    """Print the catalog: under a heading for each kind of data, a few lines for each method; of some, their options."""
    rows = [describe(name) for name in names or [n for kind in catalog.KINDS for n in catalog.names(kind)]]
    if names:
        rows = [row | {"options": options(row["name"])} for row in rows]
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    console = Console(highlight=False)
    width = min(console.width, WIDEST)
    for kind in dict.fromkeys(row["kind"] for row in rows):
        console.print(f"\n{title(kind)}", style="bold")
        for row in (row for row in rows if row["kind"] == kind):
            for line in lines(row, width):
                console.print(line, soft_wrap=True)


def lines(row: dict[str, str], width: int) -> list[str]:
    """Return the lines of one method: what it is, then what a client sends, and whose idea it was."""
    rounds = "1 round" if row["rounds"] == "1" else f"{row['rounds']} rounds"
    sums = "" if row["only the sum of"] == "-" else f" (only summed: {row['only the sum of']})"
    whose = "Ours" if row["paper"] == "ours" else row["paper"]
    texts = [row["what"], f"{rounds}; sends {row['sends']}{sums}. {whose}."]
    if row.get("options"):
        texts.append(f"Options (--option NAME=VALUE): {row['options']}.")
    indent = " " * (NAME + 1)
    found = [line for text in texts for line in textwrap.wrap(text, max(width - len(indent), 20))]
    return [f"{row['name']:{NAME}s} {found[0]}", *(f"{indent}{line}" for line in found[1:])]
