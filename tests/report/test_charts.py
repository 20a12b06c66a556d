"""Axes, marks and numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cofactor.local.arrays import block_means
from cofactor.report import pictures
from cofactor.report.charts import Axis, Series, chart, span


@pytest.mark.parametrize("scale", [1e-9, 1e-3, 1.0, 1e4, 1e12])
@pytest.mark.parametrize("width", [1e-3, 1.0, 7.3])
def test_ticks_are_few_distinct_and_inside(scale: float, width: float) -> None:
    ticks = Axis(scale, scale * (1 + width)).ticks()
    assert 2 <= len(ticks) <= 7
    assert all(0 <= t.at <= 100 for t in ticks)
    assert len({t.label for t in ticks}) == len(ticks)


def test_whole_axes_have_whole_ticks() -> None:
    assert [t.label for t in Axis(-0.5, 2.5, whole=True, label=str).ticks(8)] == ["0.0", "1.0", "2.0"]


def test_log_axes_have_powers() -> None:
    assert [t.label for t in Axis(0.5, 2e4, log=True).ticks()] == ["1", "10", "100", "1,000", "10,000"]


@pytest.mark.parametrize("values", [[0.0], [5.0], [-2.0], [0.0, 0.0], [1e-300], [1e300, -1e300]])
def test_a_range_is_never_empty(values: list[float]) -> None:
    for zero in (False, True):
        low, high = span([abs(v) for v in values], zero)
        assert low < high
    low, high = span(values)
    assert low < high


def test_missing_values_leave_gaps() -> None:
    drawn = chart("", [0, 1, 2, 3], [Series("s", [1.0, None, math.nan, 2.0])], titles=("x", "y"))
    assert drawn is not None
    line = next(m for m in drawn.marks if m.kind == "line")
    assert line.path.count("M") == 2
    assert "L" not in line.path


def test_nothing_to_draw() -> None:
    assert chart("", [0], [Series("s", [None])], titles=("x", "y")) is None
    assert chart("", [], [], titles=("x", "y")) is None


def test_one_round_is_a_dot() -> None:
    drawn = chart("", [0], [Series("s", [3.0])], titles=("x", "y"))
    assert drawn is not None
    assert [m.kind for m in drawn.marks] == ["line", "dots"]


def test_many_points_are_thinned_and_the_last_is_kept() -> None:
    x = list(range(5000))
    drawn = chart("", x, [Series("s", [float(v) for v in x])], titles=("x", "y"))
    assert drawn is not None
    path = drawn.marks[0].path
    assert path.count("L") < 400
    assert path.split("L")[-1].startswith("1000 ")


def test_big_pictures_shrink_by_block_means() -> None:
    image = np.zeros((130, 70))
    image[:3, :3] = 9.0
    small = block_means(image, pictures.SIDE)
    assert small.shape == (44, 24)
    assert small[0, 0] == 9.0
    assert small[1:].max() == small[:, 1:].max() == 0.0
