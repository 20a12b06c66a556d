"""What a command says that was interrupted, so that nobody wonders what is left of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

from cofactor.cli.console import speaks

INTERRUPTED = 130
"""What a command that was interrupted returns, as shells do."""
AGAIN = "the same command starts again."


class Verbs(TyperGroup):
    """Verbs, of which one that is interrupted ends with a line: its own, or how it starts again."""

    def invoke(self, ctx: Any) -> Any:
        """Run the verb."""
        with telling(f"; {AGAIN}"):
            return super().invoke(ctx)


@contextmanager
def telling(said: str) -> Iterator[None]:
    """Say what is left of work that is interrupted."""
    try:
        yield
    except KeyboardInterrupt:
        leave(said)


def leave(said: str) -> None:
    """Say it, once if several processes run this command together, and end the command."""
    if speaks():
        print(f"cofactor: interrupted{said}", file=sys.stderr)
    raise typer.Exit(INTERRUPTED) from None
