"""What the command line needs is what it says: without the optional packages it still fits and reports."""

import subprocess
import sys

import numpy as np

BLOCKED = """
import sys
for name in ("cryptography", "dp_accounting", "mpi4py", "anndata", "pyarrow", "zarr"):
    sys.modules[name] = None
from cofactor.cli import main
main()
"""


def without_extras(*words, cwd):
    command = [sys.executable, "-c", BLOCKED, *map(str, words)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)


def test_a_fit_needs_no_optional_package(tmp_path):
    rng = np.random.default_rng(0)
    for name in "abc":
        np.save(tmp_path / f"{name}.npy", rng.random((20, 6)))
    files = ("a.npy", "b.npy", "c.npy")
    done = without_extras("fit", *files, "-k", 2, "--rounds", 3, "--out", "run", "--quiet", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    private = ("--epsilon", 1, "--delta", 1e-3)
    signed = without_extras("fit", *files, "-k", 2, *private, "--out", "private", "--quiet", cwd=tmp_path)
    assert signed.returncode == 2
    assert "a signed ledger needs cryptography" in signed.stderr
    assert not (tmp_path / "private").exists()
    hidden = without_extras("fit", *files, "-k", 2, "--secure", "--out", "hidden", cwd=tmp_path)
    assert hidden.returncode == 2
    assert "pip install 'cofactor[secure]'" in hidden.stderr + hidden.stdout
