"""The growth of a round on logarithmic axes, one small picture for each side, with the line that was fitted."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

COLUMNS = 3
FITTED = 3
"""Points at the end that the line goes through: what comes before is mostly overhead."""
POINTS, LINE = "#00796b", "#9e9e9e"


def _points(line: dict[str, Any]) -> tuple[list[float], list[float]]:
    """Return sides and seconds."""
    return [float(side) for side in line["seconds"]], list(line["seconds"].values())


def _fitted(line: dict[str, Any]) -> tuple[float, float]:
    """Return slope and offset, in logarithms, of the line through the last points."""
    x, y = (np.log(side[-FITTED:]) for side in _points(line))
    slope, offset = np.polyfit(x, y, 1)
    return float(slope), float(offset)


def slope(line: dict[str, Any]) -> float:
    """Return the exponent of growth."""
    return _fitted(line)[0]


def _short(x: float) -> str:
    """A side in few letters."""
    if x < 1:
        return f"{x:g}".removeprefix("0")
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if x >= unit and x % (unit / 100) == 0:
            return f"{x / unit:g}{letter}"
    return f"{x:g}"


def _time(seconds: float) -> str:
    """Seconds in few letters."""
    for unit, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= unit * 0.999:
            return f"{seconds / unit:g} {name}"
    return f"{seconds:g} s"


def draw(grown: dict[str, dict[str, Any]], to: Path) -> None:
    """Write the picture."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "growth"  # the same picture has the same names inside
    from matplotlib import pyplot as plt

    rows, columns = -(-len(grown) // COLUMNS), min(COLUMNS, len(grown))
    figure, axes = plt.subplots(rows, columns, figsize=(3.1 * columns, 2.7 * rows), layout="constrained", squeeze=False)
    for axis in axes.flat[len(grown) :]:
        axis.set_axis_off()
    for axis, (name, line) in zip(axes.flat, grown.items(), strict=False):
        _one(axis, name, line)
    for axis in axes[:, 0]:
        axis.set_ylabel("a round")
    figure.savefig(to, metadata={"Date": None})
    plt.close(figure)


def _one(axis: Any, name: str, line: dict[str, Any]) -> None:
    """Draw one side: all sides that were measured are named, and times at ones, twos and fives."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    x, y = _points(line)
    power, offset = _fitted(line)
    axis.loglog(x, np.exp(offset) * np.power(x, power), "--", color=LINE, linewidth=1.2)
    axis.loglog(x, y, "o-", color=POINTS, markersize=5)
    axis.set_title(f"{name}: exponent {power:.2f}", fontsize=10)
    axis.xaxis.set_major_locator(FixedLocator(x))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda v, _: _short(v)))
    low, high = min(y) / 1.3, max(y) * 1.3
    axis.set_ylim(low, high)
    axis.yaxis.set_major_locator(FixedLocator(_ticks(low, high)))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda v, _: _time(v)))
    for side in (axis.xaxis, axis.yaxis):
        side.set_minor_locator(NullLocator())
    axis.tick_params(labelsize=8)
    axis.grid(alpha=0.3)
    for edge in ("top", "right"):
        axis.spines[edge].set_visible(False)


def _ticks(low: float, high: float) -> list[float]:
    """Return round numbers between two, some five of them."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for parts in ((1, 1.5, 2, 3, 4, 5, 7), (1, 2, 5), (1,)):
        found = [round(part * 10.0**d, 12) for d in decades for part in parts if low <= part * 10.0**d <= high]
        if len(found) <= 6:
            return found
    return found[:: -(-len(found) // 5)]
