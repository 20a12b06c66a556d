"""The command line, run in this process or killed on the way."""

from __future__ import annotations

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cofactor.cli import main

FILES = ("a.npy", "b.npy", "c.npy")
BUDGET = ("--epsilon", 1, "--delta", 1e-6)
"""Three clients and what their private run may cost, for tests of privacy."""


class Done(NamedTuple):
    """What a command printed."""

    stdout: str
    stderr: str


def cofactor(*words: Any, cwd: Path, check: int = 0) -> Done:
    """Run the command in this process: starting an interpreter for each would take most of the time."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(cwd)
        patch.setattr(sys, "argv", ["cofactor", *map(str, words)])
        with pytest.raises(SystemExit) as exit:
            main()
    assert (exit.value.code or 0) == check, err.getvalue()
    return Done(out.getvalue(), err.getvalue())


def refused(*words: Any, cwd: Path) -> str:
    """Run a command that must end in one line, exit code 2 and no run folder; return the line."""
    error = cofactor(*words, cwd=cwd, check=2).stderr
    assert error.count("\n") == 1, error
    assert error.startswith("cofactor: ")
    assert not (cwd / "run").exists()
    return error
