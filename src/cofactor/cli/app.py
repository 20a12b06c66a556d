"""The verbs of the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="cofactor",
    help="Factorize together what cannot be pooled.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def root() -> None:
    """Factorize together what cannot be pooled."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Seed of the run.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print the table as JSON instead.")] = False,
) -> None:
    """Five clients with skewed digits learn one factor; compare with pooling and with the published methods.

    Example: cofactor demo --out demo
    """
    from cofactor.cli.demo import run_demo

    run_demo(out, seed=seed, as_json=json)


@app.command()
def methods(json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List the methods by name, with what each one sends.

    Example: cofactor methods
    """
    from cofactor.cli.methods import show_methods

    show_methods(as_json=json)
