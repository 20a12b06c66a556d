"""Commands and scripts on several MPI processes of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
SCRIPTS = ROOT / "tests" / "engines" / "mpi"


def words(count: int, *command: Any) -> list[str]:
    """Return the command line that starts a command on ``count`` processes."""
    return [str(BIN / "mpiexec"), "-n", str(count), *map(str, command)]


def launch(count: int, *command: Any, cwd: Path, check: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command on ``count`` processes of one thread each; a hang is a failure."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    done = subprocess.run(
        words(count, *command), cwd=cwd, env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == check, done.stdout + done.stderr
    return done


def script(count: int, name: str, *arguments: Any, cwd: Path, check: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a script of tests/engines/mpi."""
    return launch(count, sys.executable, SCRIPTS / name, *arguments, cwd=cwd, check=check)
