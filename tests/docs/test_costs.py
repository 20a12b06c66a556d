"""The cost model of docs/scaling.md: its bytes are those that runs count, for every method of the catalog."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from tests.helpers.scripts import load

from cofactor import run
from cofactor.data import synthetic
from cofactor.methods import catalog
from cofactor.methods.blocks import blocks
from cofactor.methods.sketched import Subsampling

C, K = 3, 4


costs = load("docs/costs.py")
NAMES = [name for kind in ("real", "gaps", "blocks", "boolean", "ratings") for name in catalog.names(kind)]


def clients(name: str, dtype: type) -> list:
    """Return data of C clients that suit a method."""
    Xs = [X.astype(dtype) for X in synthetic.blocks(C, 60, features=170, rank=K, seed=1).Xs]
    if name in catalog.names("blocks"):
        return blocks(np.vstack(Xs), C)
    if name in catalog.names("boolean"):
        return np.split(synthetic.tiles(C * 60, 170, K, width=(0.2, 0.4), noise=0.0).X.astype(dtype), C)
    if name in catalog.names("ratings"):
        return [sparse.csr_matrix(np.ceil(X * (X > 1))) for X in Xs]
    return Xs


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_formulas_give_the_bytes_that_runs_count(name: str, dtype: type) -> None:
    options = {"iterations": 4} if name in costs.BLOCKED else {}
    method = costs.made(name, C * 60, 170, K, **options)
    history = run(method, clients(name, dtype), rounds=method.rounds or 12).history
    letters = costs.sizes(name, C * 60, 170, K, C, b=np.dtype(dtype).itemsize)
    last = len(history) - 1 if name in costs.BLOCKED else -1
    begun = 2 if name in catalog.names("ratings") else 1  # round 0 of these asks for the mean only
    for line in history:
        expected = costs.cost(name, line.round, last, letters)
        start = costs.cost(name, line.round, last, {**letters, "b": 8})  # what the server sends before an update
        assert line.bytes_up == C * expected["up"], f"{name}, round {line.round}"
        assert line.bytes_down == C * (start if line.round < begun else expected)["down"], f"{name}, round {line.round}"


def test_every_method_has_operations_or_is_a_search() -> None:
    assert set(NAMES) == {name for line in costs.LINES for name in line.names}
    for name in NAMES:
        letters = costs.sizes(name, 10**4, 10**3, 10, 10)
        found = costs.cost(name, 3, 99, letters) if len(costs.lines(name)) > 1 else costs.cost(name, 0, 99, letters)
        assert found["flops"] > 0 or name in (*costs.SEARCHES, "boolean-oneshot")


def test_a_sketch_is_as_wide_as_the_model_says() -> None:
    letters = costs.sizes("dsanls", 6000, 5000, 10, 4)
    assert (letters["d"], letters["e"]) == (150, 180)
    method = catalog.make("dsanls", 10, shape=(6000, 5000))
    assert method.row_sketch == method.column_sketch == Subsampling(0.03)


def test_the_page_has_the_tables_of_the_model() -> None:
    page, put = costs.PAGE.read_text(), load("docs/tables.py").put
    assert put(page, costs.tables()) == page, "run: python docs/costs.py --write"
