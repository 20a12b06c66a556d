"""The command line: ``cofactor fit`` and its siblings."""

from __future__ import annotations

import io
import sys
import warnings

CLI_PACKAGES = {"typer", "rich", "matplotlib", "jinja2"}


def main() -> None:
    """Run the ``cofactor`` command; expected mistakes are one line and exit code 2, ``--debug`` shows all."""
    try:
        from cofactor.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in CLI_PACKAGES:
            raise
        sys.exit(f"cofactor: the command line needs {error.name}; install it with: pip install 'cofactor[cli]'")
    from cofactor.types import CofactorError

    if isinstance(sys.stdout, io.TextIOWrapper):  # names hold what the locale may have no letters for
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with warnings.catch_warnings():
            if "--debug" not in sys.argv:
                warnings.showwarning = _note
            app()
    except (CofactorError, OSError) as error:
        if "--debug" in sys.argv:
            raise
        _say(f"cofactor: {_words(error)}")
        sys.exit(2)
    except KeyboardInterrupt:
        _say("cofactor: interrupted; the same command starts again.")  # while it was loading
        sys.exit(130)


def _words(error: Exception) -> str:
    """Return what an error says; of those of the system the file and the reason, without their number."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror is not None:
        return f"{error.filename}: {error.strerror}."
    return str(error)


def _note(message: Warning | str, *_: object, **__: object) -> None:
    """Say what a warning says, without the line of code that it came from."""
    if {"-q", "--quiet"}.isdisjoint(sys.argv):
        _say(f"cofactor: note: {message}")


def _say(text: str) -> None:
    """Print to standard error, once if several processes run this command together."""
    from cofactor.cli.console import plain, speaks

    if speaks():
        print(plain(text), file=sys.stderr)
