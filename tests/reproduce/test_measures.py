"""What cells of the papers measure: the same numbers as a run gives, and what is claimed to be spent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cofactor.engines.loop import run
from cofactor.methods.build import Facts, build
from cofactor.plan import Plan
from cofactor.reproduce.experiment import find
from cofactor_papers import dsanls, felb


def cell(experiment: str, method: str, **smaller: Any) -> dict[str, Any]:
    first = next(c for c in find(experiment).cells("quick") if c["method"] == method)
    return {**first, **smaller}


@pytest.mark.parametrize("method", ["dsanls", "dsanls-g", "hals", "exact"])
def test_errors_over_time_fall_and_are_known_at_every_point(method: str) -> None:
    found = dsanls.over_time(cell("dsanls-fig2", method, shape=[90, 80], rank=5, iterations=20, goal=0.9))
    assert found["iteration"][-1] == 20
    assert len(found["iteration"]) == len(found["seconds"]) == len(found["error"])
    assert found["seconds"] == sorted(found["seconds"])
    assert found["last"] == found["error"][-1] < found["error"][0]
    assert found["to_goal"] in found["seconds"]


def test_a_method_by_its_defaults_is_the_run_of_it() -> None:
    """Steps are pure: tries change no number, and the error is that of the loss which a run reports."""
    small = cell("dsanls-fig2", "exact", shape=[90, 80], rank=5, iterations=12, goal=0.0)
    X = dsanls.matrix(small)
    method, plan = build("exact", 5, Plan(12, stop=0.0), Facts(1, 80, 90))
    losses = [line.loss for line in run(method, [X], plan).history]
    expected = np.sqrt(2 * np.array(losses)) / np.linalg.norm(X.astype(np.float64))
    found = dsanls.over_time(small)
    assert found["iteration"] == [2, 3, 4, 5, 6, 7, 8, 9, 10]
    np.testing.assert_allclose(found["error"], expected[1:10], rtol=1e-5)
    assert found["to_goal"] == dsanls.NEVER


def test_bits_of_a_private_factor_cost_the_epsilon_of_the_axis() -> None:
    found = felb.privacy(cell("felb-fig5", "dp-moments", epsilon=1000.0))
    assert found["total"] == 1000.0
    assert found["over"] < 0.1
    assert felb.privacy(cell("felb-fig5", "felb", epsilon=2.0, rounds=3))["total"] == 6.0
