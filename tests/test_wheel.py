"""The wheel holds the package and nothing else, and runs where nothing but it and its dependencies is installed."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
MINUTES = 15
"""For each command: it waits for a package registry."""


def do(*command: str | Path, folder: Path) -> str:
    """Run a command in a folder, knowing nothing of this environment; return what it printed."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "COFACTOR_DATA")
    env = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=env | {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "MPLBACKEND": "Agg", "NO_COLOR": "1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=60 * MINUTES,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def sources() -> set[str]:
    """Return every file of the package, by its path in a wheel."""
    files = (path for path in (ROOT / "src").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(ROOT / "src").as_posix() for path in files}


def test_a_wheel_runs_in_an_empty_environment(tmp_path: Path) -> None:
    do(sys.executable, "-m", "build", "--outdir", tmp_path / "dist", ROOT, folder=tmp_path)  # the wheel from the sdist
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    (archive,) = (tmp_path / "dist").glob("*.tar.gz")

    with zipfile.ZipFile(wheel) as file:
        held = {name for name in file.namelist() if ".dist-info/" not in name}
        metadata = {name.partition("/")[2] for name in file.namelist() if ".dist-info/" in name}
    assert held == sources()
    assert {"cofactor/py.typed", "cofactor/__main__.py", "cofactor/report/templates/report.html.j2"} <= held
    assert {"METADATA", "entry_points.txt", "licenses/LICENSE"} <= metadata
    with tarfile.open(archive) as file:
        inside = {name.partition("/")[2] for name in file.getnames()}
    assert {
        "README.md",
        "LICENSE",
        "CITATION.cff",
        "SECURITY.md",
        "Makefile",
        "tools/layers.py",
        "docs/index.md",
    } <= inside
    assert "tests/test_wheel.py" in inside
    assert not {name for name in inside if name.startswith((".venv", ".git/"))}

    bin_folder = tmp_path / "empty" / "bin"
    do(sys.executable, "-m", "venv", tmp_path / "empty", folder=tmp_path)
    do(bin_folder / "python", "-m", "pip", "install", "--quiet", f"cofactor[cli] @ {wheel.as_uri()}", folder=tmp_path)
    where = do(bin_folder / "python", "-c", "import cofactor; print(cofactor.__file__)", folder=tmp_path)
    assert Path(where.strip()).is_relative_to(tmp_path / "empty")

    assert "exact" in do(bin_folder / "python", "-m", "cofactor", "methods", folder=tmp_path)
    assert "ratio to pooled" in do(bin_folder / "cofactor", "demo", "--out", tmp_path / "demo", folder=tmp_path)
    assert (tmp_path / "demo" / "components.png").stat().st_size > 0
    for name, seed in (("ann", 0), ("bob", 1)):
        np.save(tmp_path / f"{name}.npy", np.random.default_rng(seed).gamma(0.5, size=(30, 8)))
    do(bin_folder / "cofactor", "fit", "ann.npy", "bob.npy", "-k", "2", "--out", "run", "--quiet", folder=tmp_path)
    assert "</html>" in (tmp_path / "run" / "report.html").read_text()
