"""``cofactor methods``: the catalog as a table."""

from __future__ import annotations

import json

from rich.console import Console
from rich.table import Table

from cofactor.methods import catalog
from cofactor.methods.build import Facts, build
from cofactor.plan import Plan
from cofactor.privacy.allowance import Privacy

FEATURES, RANK = 1000, 10
BUDGET = Privacy(1.0, 1e-6)


def describe(name: str) -> dict[str, str]:
    """Return name, kind, one sentence, what a client sends first and later, and of what a sum is enough."""
    entry = catalog.find(name)
    plan = Plan(privacy=BUDGET if entry.private else None)
    method, _ = build(name, RANK, plan, Facts(1, FEATURES, FEATURES))
    last = method.traits.stages[-1] if method.rounds is None else method.rounds - 1
    first, later = (", ".join(method.schema(FEATURES, t)) for t in (0, last))
    return {
        "name": name,
        "kind": "private" if entry.private else entry.kind,
        "what": entry.what,
        "sends": first if first == later else f"{first}; then {later}",
        "rounds": "many" if method.rounds is None else str(method.rounds),
        "only the sum of": entry.sums or "-",
        "paper": entry.paper or "ours",
    }


def show_methods(*, as_json: bool = False) -> None:
    """Print the catalog."""
    rows = [describe(name) for kind in catalog.KINDS for name in catalog.names(kind)]
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    table = Table(title="Methods", title_justify="left")
    for column in rows[0]:
        table.add_column(column, no_wrap=column == "name")
    for row in rows:
        table.add_row(*row.values())
    Console().print(table)
