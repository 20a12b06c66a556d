"""``cofactor methods``: the catalog as a table."""

from __future__ import annotations

import inspect
import json

from rich.console import Console
from rich.table import Table

from cofactor.methods import catalog
from cofactor.privacy.plan import Privacy, Private

FEATURES, RANK = 1000, 10
BUDGET = Privacy(1.0, 1e-6)


def describe(name: str) -> dict[str, str]:
    """Return name, one sentence, what a client sends in the first and later rounds, and whether a sum is enough."""
    shape = {"shape": (FEATURES, FEATURES)} if name in catalog.names("blocks") else {}
    private = name in catalog.names("private")
    setting = {"participants": 1, "rounds": 1, "privacy": BUDGET if private else None}
    method = catalog.make_for(name, RANK, shape, **setting)  # type: ignore[arg-type]
    last = len(method.plan.shares) - 1 if isinstance(method, Private) else getattr(method, "warm_rounds", 0)
    first, later = (", ".join(method.schema(FEATURES, t)) for t in (0, last))
    return {
        "name": name,
        "what": (inspect.getdoc(catalog.find(name)) or "").splitlines()[0],
        "sends": first if first == later else f"{first}; then {later}",
        "rounds": "many" if method.rounds is None else str(method.rounds),
        "sums only": "yes" if method.additive else "no",
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
