"""The verbs of runs on ratings."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import Annotated

import typer

from cofactor.cli.options import Json, RunPath

Count = Annotated[int, typer.Option("-n", help="How many items.")]


def recommend(
    run: RunPath,
    file: Annotated[Path | None, typer.Argument(help="Ratings of one or more users, as user,item,rating.")] = None,
    user: Annotated[list[str] | None, typer.Option(help="A user of the run, whose codes are here.")] = None,
    n: Count = 10,
    json: Json = False,
) -> None:
    """Recommend items that users have not rated: to new users from their own ratings and the factor of a run alone.

    Users of the run are known by name where their codes are on this machine.

    Example: cofactor recommend run mine.csv -n 5

    Example: cofactor recommend run --user 42 --user 17
    """
    from cofactor.jobs import lists
    from cofactor.jobs.folder import RunFolder
    from cofactor.types import CofactorError

    folder = RunFolder.open(run)
    if (file is None) == (not user):
        raise CofactorError("expected either a file of ratings or --user, found " + ("both." if user else "neither."))
    found = lists.recommend(folder, file, n) if file is not None else lists.recommend_known(folder, user or [], n)
    _show("user", found, lists.titled(folder, found, of="user"), as_json=json)


def similar(
    run: RunPath,
    items: Annotated[list[str], typer.Argument(help="Items of a run on ratings.")],
    n: Count = 10,
    json: Json = False,
) -> None:
    """Show the items that the same users like: by the cosine of the items' factors.

    Example: cofactor similar run 260 -n 5
    """
    from cofactor.jobs import lists
    from cofactor.jobs.folder import RunFolder

    folder = RunFolder.open(run)
    found = lists.similar(folder, items, n)
    _show("item", found, lists.titled(folder, found, of="item"), as_json=json)


def _show(who: str, found: dict[str, list[str]], titles: list[tuple[str, list[str]]], *, as_json: bool) -> None:
    """Print lists with titles; JSON has the names of items."""
    from rich.table import Table

    from cofactor.cli.console import Console

    if as_json:
        print(jsonlib.dumps(found, indent=1))
        return
    table = Table(who, "items")
    for name, best in titles:
        table.add_row(name, "; ".join(best) if any("," in title for title in best) else ", ".join(best))
    Console().print(table)
