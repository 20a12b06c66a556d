"""The law of private runs: neighbours differ in nothing that others see but in released values.

Released values are replaced by numbers that no data decide; all else that leaves a run must then be the same, letter by
letter: files outside of the clients' own folders, the report, what is printed and warned of, rounds, sizes, refusals.
"""

from __future__ import annotations

import json
import re
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from tests.helpers.command import cofactor

from cofactor import FederatedNMF, Privacy
from cofactor.privacy.allowance import Allowance, Release
from cofactor.types import Array, Message

CHANCE = re.compile(
    r"""\b[0-9a-f]{16,}|"seconds":\ *[0-9.e-]+|seconds\ [0-9.]+|[0-9.]+\ ?m?s\b|\d{4}-\d\d-\d\d[T\ ][0-9:.+]+"""
    r"""|\d{4}-\d\d-\d\d\ [0-9:]+|[A-Za-z0-9+/]{40,}=*|left\ \S+""",
    re.VERBOSE,
)
"""Times, keys, hashes and signatures."""


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every release be numbers of its round alone."""

    def release(self: Allowance, t: int, values: dict[str, Any], bounds: dict[str, float], rng: Any) -> Message:
        costs, draw = self.costs(t), np.random.default_rng(t)
        paid = {name: Release(costs[name], bounds[name], self.sigma(t, name, bounds[name])) for name in values}
        return Message({name: 10 * draw.random(np.shape(a)) for name, a in values.items()}, 1.0, paid)

    monkeypatch.setattr(Allowance, "release", release)


def rows() -> Array:
    return np.random.default_rng(0).random((8, 6))


NEIGHBOURS: dict[str, Callable[[Array], Array]] = {
    "a row less": lambda X: X[:-1],
    "as many rows as features": lambda X: X[:6],
    "none left": lambda X: X[:0],
    "a row of zeros": lambda X: np.vstack([X, np.zeros((1, 6))]),
    "out of range": lambda X: np.vstack([X, np.full((1, 6), 1e300)]),
    "hardly there": lambda X: np.vstack([X, np.full((1, 6), 5e-324)]),
    "a sum beyond all numbers": lambda X: np.vstack([X, np.full((1, 6), np.finfo(np.float64).max)]),
    "of all sizes": lambda X: np.vstack([X, [[1e300, 5e-324, 0.0, 1.0, -0.0, 3.0]]]),
}


def write(path: Path, X: Array) -> None:
    if path.suffix == ".csv":
        path.write_text("\n".join(["a,b,c,d,e,f", *(",".join(map(repr, row)) for row in X.tolist())]) + "\n")
    elif path.name.endswith(".named.npz"):
        np.savez(path, X=X, genes=np.array(list("abcdef")))
    elif path.suffix == ".npz":
        sparse.save_npz(path, sparse.csr_matrix(X))
    else:
        np.save(path, X)


def seen(tmp_path: Path, X: Array, suffix: str, words: tuple[Any, ...]) -> dict[str, str]:
    """Return all that others see of a run: what the command says, and every file that is not a client's own."""
    home = tmp_path / "home"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    files = [f"{name}{suffix}" for name in "xyz"]
    for file, data in zip(files, (X, rows(), rows()), strict=True):
        write(home / file, data)
    said = cofactor("fit", *files, "-k", 2, *words, cwd=home)
    found = {"printed": said.stdout, "told": said.stderr}
    for path in sorted((home / "run").rglob("*")):
        name = str(path.relative_to(home / "run"))
        if path.suffix == ".npz":
            with np.load(path) as arrays:
                found[name] = str({key: (arrays[key].dtype, arrays[key].tolist()) for key in arrays.files})
        elif path.is_file() and not name.startswith("clients"):
            found[name] = path.read_text()
    return {name: CHANCE.sub("", text) for name, text in found.items() if name != "checkpoint.npz"}


RUNS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "moments": (".npy", ("--epsilon", 1, "--delta", 1e-6)),
    "text, prepared": (".csv", ("--epsilon", 1, "--delta", 1e-6, "--prepare", "library,log1p")),
    "named": (".named.npz", ("--epsilon", 1, "--delta", 1e-6)),
    "client": (".npz", ("--method", "fedavg", "--rounds", 2, "--epsilon", 8, "--delta", 1e-2, "--unit", "client")),
}


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize("kind", RUNS)
def test_neighbours_differ_in_nothing_but_what_is_released(tmp_path: Path, kind: str) -> None:
    whole = seen(tmp_path, rows(), *RUNS[kind])
    assert {"run.toml", "manifest.json", "history.jsonl", "ledger.jsonl", "report.html", "factor.npz"} <= set(whole)
    for name in ("a row less", "as many rows as features", "none left", "out of range"):
        other = seen(tmp_path, NEIGHBOURS[name](rows()), *RUNS[kind])
        assert [file for file in {**whole, **other} if whole.get(file) != other.get(file)] == [], name


def repeated(X: Array) -> Any:
    """CSR whose cells are stored in two halves each."""
    n, m = X.shape
    stored = np.repeat(X / 2, 2, axis=1).ravel(), np.tile(np.repeat(np.arange(m), 2), n), np.arange(n + 1) * 2 * m
    return sparse.csr_matrix(stored, shape=X.shape)


def annotated(X: Array) -> Any:
    """AnnData with a layer that stores zeros, and a category that only one row has."""
    names, cells = [f"r{i}" for i in range(len(X))], sparse.csr_matrix(np.ones_like(X))
    cells.data = X.ravel().copy()
    obs = pd.DataFrame({"of": pd.Categorical(["rare" if i == 8 else "usual" for i in range(len(X))])}, index=names)
    held = anndata.AnnData(np.ones_like(X), obs=obs, var=pd.DataFrame(index=list("abcdef")))
    held.layers["counts"] = cells
    return held


FORMS: dict[str, tuple[Callable[[Array], Any], dict[str, Any]]] = {
    "array": (np.asarray, {}),
    "columns first": (np.asfortranarray, {}),
    "coordinates": (sparse.coo_matrix, {}),
    "repeated": (repeated, {}),
    "a dictionary": (sparse.dok_matrix, {}),
    "lists": (sparse.lil_matrix, {}),
    "objects": (lambda X: X.astype(object), {}),
    "AnnData": (annotated, {"layer": "counts"}),
    "frame": (lambda X: pd.DataFrame(X, columns=list("abcdef")), {"prepare": "library,log1p"}),
    "sparse, prepared": (sparse.csr_matrix, {"prepare": "library,log1p"}),
    "dp-nmf": (np.asarray, {"method": "dp-nmf", "rounds": 2}),
    "dp-range": (sparse.csr_matrix, {"method": "dp-range"}),
}


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize("arithmetic", ["warn", "raise"])
@pytest.mark.parametrize("name", FORMS)
def test_fits_of_neighbours_say_the_same(name: str, arithmetic: Any) -> None:
    """A row out of range made arithmetic warn where clients found codes and errors, where they prepared their rows, and
    where errors became one; where numpy is told to raise, one of all sizes ended the fit. And codes and errors were on
    the page that a notebook shows of every model."""
    form, more = FORMS[name]

    def told(X: Array) -> list[Any]:
        held = [form(X), form(rows())]
        with warnings.catch_warnings(record=True) as warned, np.errstate(all=arithmetic):
            warnings.simplefilter("always")
            model = FederatedNMF(2, privacy=Privacy(1.0, 1e-6), random_state=0, **more).fit(held)
        model.history_ = [line._replace(seconds=0.0) for line in model.history_]
        lines, page = json.dumps(model.history_), re.sub(r"sk-[a-z-]*id-\d+", "", model._repr_html_())
        return [sorted(str(w.message) for w in warned), lines, model.components_.tolist(), model.ended_, page]

    whole = told(rows())
    for neighbour, change in NEIGHBOURS.items():
        assert told(change(rows())) == whole, neighbour
