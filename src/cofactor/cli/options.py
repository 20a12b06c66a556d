"""Options that several verbs of the command line share."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import Annotated, Any

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Seed = Annotated[int, typer.Option(help="Seed; the same seed gives the same numbers everywhere.")]
RunPath = Annotated[Path, typer.Argument(help="A run folder.")]


def pair(text: str) -> tuple[str, Any]:
    """Read ``name=value``; the value is a number, true, false or a word."""
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"expected name=value, found {text!r}")
    try:
        return name, jsonlib.loads(value)
    except ValueError:
        return name, value
