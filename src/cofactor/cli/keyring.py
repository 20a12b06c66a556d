"""``cofactor keys``: the long-term keys of clients, for sums under masks."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from cofactor.cli.console import Console
from cofactor.cli.options import Json

keys = typer.Typer(help="Keys of clients, exchanged before they add up under masks.", no_args_is_help=True)


@keys.command()
def make(
    names: Annotated[list[str], typer.Argument(help="The name of the client, as in the run (the name of its file).")],
    out: Annotated[Path, typer.Option(help="The folder of key files.")] = Path("keys"),
) -> None:
    """Make the keys of a client: NAME.key stays here, NAME.pub is for all other clients.

    Example: cofactor keys make berlin
    """
    from cofactor.privacy.secure_sum import keys as files

    console = Console(soft_wrap=True, highlight=False)
    for name in names:
        path = files.make(out, name)
        public = path.with_suffix(files.PUBLIC)
        console.print(f"{name}: {files.fingerprint(files.read_private(path).public)}")
        console.print(f"  {path}  never leaves this machine; nobody else may read it")
        console.print(f"  {public}  give it to all other clients, by another way than the server")
    console.print("Put the .pub files of all clients into the same folder, and compare fingerprints by telephone.")


@keys.command()
def show(
    folder: Annotated[Path, typer.Argument(help="The folder of key files.")] = Path("keys"), json: Json = False
) -> None:
    """Show whose keys are in a folder, with the fingerprints to compare, and check the private ones.

    Example: cofactor keys show keys
    """
    from cofactor.privacy.secure_sum import keys as files

    found = files.inspect(folder)
    if json:
        print(jsonlib.dumps([line._asdict() for line in found], indent=1))
        return
    table = Table(box=SIMPLE_HEAD)
    for column in ("client", "fingerprint", "private key"):
        table.add_column(column, no_wrap=column == "fingerprint")
    for line in found:
        table.add_row(line.client, line.fingerprint, "here" if line.private else "-")
    Console(width=max(Console().width, 100)).print(table)
