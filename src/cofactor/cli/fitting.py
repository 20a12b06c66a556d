"""The verbs that make a run: a fit by any method, and the consensus of many starts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cofactor.cli.options import Json, Quiet, pair
from cofactor.jobs.settings import PANELS, panel

COMPUTED, WHERE, OUTPUT = panel("option"), panel("engine"), panel("out")
"""Headings of the help."""
Out = Annotated[Path, typer.Option(help="The run folder to make.", rich_help_panel=OUTPUT)]
Pairs = Annotated[list[str] | None, typer.Option(help="Option of the method, as name=value.", rich_help_panel=COMPUTED)]
SETTLED = frozenset(
    f"method boolean rounds tol alpha_w alpha_h l1_ratio {PANELS['Ratings']} {PANELS['Privacy']}".split()
)
"""Options of a fit that a consensus leaves no choice in: it needs each client's summary, of numbers."""


def fit(
    out: Out = Path("run"),
    config: Annotated[
        Path | None, typer.Option(help="A TOML file instead of the other options.", rich_help_panel=OUTPUT)
    ] = None,
    option: Pairs = None,
    home: Annotated[Path, typer.Option(help="With --engine flare: the federation.", rich_help_panel=WHERE)] = Path(
        "federation"
    ),
    min_clients: Annotated[
        int | None,
        typer.Option(help="With --engine flare: go on with so many clients. Default: all.", rich_help_panel=WHERE),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
    **given: Any,
) -> None:
    """Learn one shared factor from files that are clients, and write a run folder.

    Example: cofactor fit a.h5ad b.npz c.csv -k 20 --out run

    Example: cofactor fit a.h5ad b.h5ad --layer counts --prepare library,log1p,hvg=2000 -k 20 --out run

    Example: cofactor fit all.csv --group-by hospital -k 20 --out run

    Example: cofactor fit ratings.csv --ratings --holdout time -k 10 --out run

    Example: cofactor fit a.npz b.npz c.npz -k 20 --epsilon 1 --delta 1e-6 --secure --out run

    Example: mpiexec -n 4 cofactor fit --engine mpi big.npy -k 50 --out run

    Example: cofactor fit --engine flare --config run.toml --out run
    """
    from cofactor.cli import verbs

    _check_named(given)
    said = _said(given, dict(map(pair, option or [])))
    verbs.fit(said, out, config_file=config, as_json=json, quiet=quiet, home=home, least=min_clients)


def consensus(
    starts: Annotated[int, typer.Option(help="Starts, on the server.", rich_help_panel=COMPUTED)] = 100,
    settles: Annotated[
        int | None,
        typer.Option(help="Rounds of exact after it, on the rows themselves. Default: 30.", rich_help_panel=COMPUTED),
    ] = None,
    out: Out = Path("run"),
    option: Pairs = None,
    json: Json = False,
    quiet: Quiet = False,
    **given: Any,
) -> None:
    """Find the components that many starts agree on (cNMF), and settle them on the rows of all clients.

    It is `cofactor fit --method consensus --option starts=100 --option settles=30`: one upload of a summary, then sums.

    Example: cofactor consensus a.h5ad b.h5ad -k 10 --prepare library,hvg=2000,scale --out run
    """
    from cofactor.cli import verbs
    from cofactor.methods.pooled import SETTLES

    options = {"starts": starts, "settles": SETTLES if settles is None else settles, **dict(map(pair, option or []))}
    said = _said({**given, "method": "consensus"}, options)
    verbs.fit(said, out, config_file=None, as_json=json, quiet=quiet, home=Path("federation"))


MEANT = {"boolean": "boolean-exact", "ratings": "exact-als"}
"""Of data of a kind the method that is for them what "exact" is for numbers."""


def _check_named(given: dict[str, Any]) -> None:
    """Refuse the default of other data where it is asked for by name: another method would run in its place."""
    for flag, like in MEANT.items():
        if given.get(flag) and given.get("method") == "exact":
            from cofactor import kinds
            from cofactor.types import CofactorError

            what = kinds.named(flag).called
            raise CofactorError(
                f"--{flag}: expected a method for {what}, found --method exact; {like!r} is what comes nearest."
            )


def _said(given: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that were given: of those that were not, the settings know what they are."""
    said = {name: value for name, value in given.items() if value is not None}
    return {**said, "options": options} if options else said
