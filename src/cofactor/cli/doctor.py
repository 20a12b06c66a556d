"""``cofactor doctor``: is this installation in order?"""

from __future__ import annotations

import json
import os
import platform
from importlib import metadata, util

import numpy as np
from threadpoolctl import threadpool_info

from cofactor.cli.console import Console
from cofactor.estimators.nmf import FederatedNMF

OPTIONAL = {
    "typer": "cli",
    "matplotlib": "cli",
    "jinja2": "cli",
    "anndata": "bio",
    "pyarrow": "io",
    "zarr": "io",
    "cryptography": "secure",
}


def examine(*, as_json: bool = False) -> int:
    """Print the findings; return 0 if a small run gives the right answer, otherwise 1."""
    findings = {
        "cofactor": metadata.version("cofactor"),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "blas": sorted({f"{i['internal_api']} {i.get('version')}" for i in threadpool_info()}),
        "packages": {name: metadata.version(name) for name in ("numpy", "scipy", "scikit-learn", "numba", "POT")},
        "optional": {name: util.find_spec(name) is not None for name in OPTIONAL},
        "small run": _small_run(),
    }
    if as_json:
        print(json.dumps(findings, indent=1))
    else:
        _show(findings)
    return 0 if findings["small run"] == "ok" else 1


def _small_run() -> str:
    """Recover a planted factor of rank 3 from three clients."""
    rng = np.random.default_rng(0)
    H = rng.uniform(size=(3, 12)) * (rng.uniform(size=(3, 12)) < 0.5)
    Xs = [rng.uniform(size=(n, 3)) @ H for n in (20, 30, 25)]
    error = FederatedNMF(3, random_state=0, tol=0, rounds=100).fit(Xs).reconstruction_err_
    return "ok" if error < 0.01 else f"relative error {error:.3g} where 0 was expected"


def _show(findings: dict) -> None:
    console = Console()
    for name, value in findings.items():
        if name == "optional":
            for package, there in value.items():
                hint = "found" if there else f"missing: pip install 'cofactor[{OPTIONAL[package]}]'"
                console.print(f"  {package:14s} {hint}", style="" if there else "yellow", highlight=False)
        elif isinstance(value, dict):
            for package, version in value.items():
                console.print(f"  {package:14s} {version}", highlight=False)
        else:
            console.print(f"{name:16s} {', '.join(value) if isinstance(value, list) else value}", highlight=False)
