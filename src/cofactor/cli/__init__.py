"""The command line: ``cofactor demo`` and its siblings."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the ``cofactor`` command; one-line errors, exit code 2, no traceback for expected mistakes."""
    try:
        from cofactor.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in {"typer", "rich", "matplotlib"}:
            raise
        sys.exit(f"cofactor: the command line needs {error.name}; install it with: pip install 'cofactor[cli]'")
    from cofactor.types import CofactorError

    try:
        app()
    except CofactorError as error:
        print(f"cofactor: {error}", file=sys.stderr)
        sys.exit(2)
