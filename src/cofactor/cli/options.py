"""Options that several verbs of the command line share."""

from __future__ import annotations

import inspect
import json as jsonlib
from collections.abc import Callable, Container
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from cofactor.jobs.settings import panel

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


def with_options(
    command: Callable[..., Any], config: type, *, without: Container[str] = frozenset()
) -> Callable[..., Any]:
    """Return a command that takes, besides its own options, those that a dataclass declares (``metadata["help"]``).

    Those of ``without`` are left out. An option that is not given is None, so that the dataclass, or a file, says what
    it is then; the help shows its default there.
    """
    own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.kind is not p.VAR_KEYWORD]
    types = get_type_hints(config)
    declared = [_parameter(f, types[f.name]) for f in fields(config) if "help" in f.metadata and f.name not in without]
    arguments = [p for p in declared if p.name == "inputs"]
    options = [p for p in declared if p.name != "inputs"]

    def taking(**given: Any) -> Any:
        return command(**given)

    taking.__name__, taking.__doc__ = command.__name__, command.__doc__
    parameters = [p.replace(kind=p.KEYWORD_ONLY) for p in (*arguments, *options, *own)]
    taking.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    taking.__annotations__ = {
        **get_type_hints(command, include_extras=True),
        **{p.name: p.annotation for p in declared},
    }
    return taking


def _parameter(f: Field[Any], kind: Any) -> inspect.Parameter:
    """Return the parameter of one field."""
    text = f.metadata["help"]
    silent = any(f.default is value for value in (MISSING, None, False))  # 0 is a default worth showing
    if not silent and "default" not in text.lower():
        text = f"{text} Default: {f.default}."
    names = f.metadata.get("names", ())
    option: Any = (
        typer.Argument(help=text)
        if f.name == "inputs"
        else typer.Option(*names, help=text, rich_help_panel=panel(f.name))
    )
    annotation = Annotated[kind | None, option]
    return inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
