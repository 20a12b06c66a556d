"""Charts as data: positions in percent of the plot, which the template draws as SVG that stretches with the page.

Labels are HTML at their own size and lines keep their width, so a chart reads the same on a phone and on paper.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cofactor.report import words

Numbers = Sequence[float | None]
STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
DOTS, POINTS, BARS = 40, 400, 120


class Tick(NamedTuple):
    """A labelled place on an axis, 0 to 100."""

    at: float
    label: str


class Mark(NamedTuple):
    """One SVG path: its class (line, dots, bars, band, rule), its tone (a, b, c) and its outline."""

    kind: str
    tone: str
    path: str


class Key(NamedTuple):
    """One entry of the legend."""

    kind: str
    tone: str
    name: str


class Series(NamedTuple):
    """What is drawn: values by position; ``spread`` makes a band around a line, not below 0 where values are not."""

    name: str
    y: Numbers
    tone: str = "a"
    kind: str = "line"
    spread: Numbers | None = None


@dataclass(frozen=True)
class Axis:
    """A range of values and how to label it."""

    low: float
    high: float
    log: bool = False
    whole: bool = False
    label: Callable[[float], str] | None = None

    def at(self, value: float) -> float:
        """Return where a value stands, 0 to 100."""
        low, high, value = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        return 100 * (value - low) / (high - low)

    def ticks(self, count: int = 5) -> list[Tick]:
        """Return round values inside the range."""
        values, step = (self._powers(), None) if self.log else self._steps(count)
        return [Tick(round(self.at(v), 2), self._text(v, step or v)) for v in values]

    def _text(self, value: float, step: float) -> str:
        return self.label(value) if self.label else words.tick(value, step)

    def _steps(self, count: int) -> tuple[list[float], float]:
        raw = (self.high - self.low) / count
        unit = 10 ** math.floor(math.log10(raw))
        step = next(s * unit for s in STEPS if s * unit >= raw * 0.999)
        if self.whole:
            step = max(1.0, math.ceil(step))
        first = math.ceil(self.low / step - 1e-9)
        return [i * step for i in range(first, math.floor(self.high / step + 1e-9) + 1)], step

    def _powers(self) -> list[float]:
        exponents = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        digits = (1,) if math.log10(self.high / self.low) > 3 else (1, 2, 5)
        return [d * 10.0**e for e in exponents for d in digits if self.low <= d * 10.0**e <= self.high]


@dataclass(frozen=True)
class Chart:
    """What the template draws; ``text`` says in words what it shows."""

    text: str
    x_title: str
    y_title: str
    x: list[Tick]
    y: list[Tick]
    marks: list[Mark]
    legend: list[Key]


def finite(values: Numbers) -> list[float]:
    """Return the values that can be drawn: numbers, and not absurd ones."""
    return [v for v in values if v is not None and abs(v) < 1e300]


def span(values: Sequence[float], zero: bool = False) -> tuple[float, float]:
    """Return a range with a margin around the values, from 0 where ``zero``."""
    low, high = min(values), max(values)
    if zero:
        return 0.0, max(high, 0.0) * 1.05 or 1.0
    margin = max(0.07 * (high - low), 1e-4 * abs(high)) if high > low else 0.1 * abs(high) or 1.0
    return low - margin if low < 0 or low > margin else 0.0, high + margin


def chart(
    text: str,
    x: Sequence[float],
    series: Sequence[Series],
    *,
    titles: tuple[str, str],
    label: Callable[[float], str] | None = None,
    zero: bool = False,
    log: bool = False,
    rule: float | None = None,
) -> Chart | None:
    """Draw series over whole numbers x; None where there is nothing to draw. ``rule`` is a vertical mark."""
    values = _extent(series)
    if not values or not x:
        return None
    log = log and min(values) > 0 and max(values) > 20 * min(values)
    low, high = (min(values) / 1.3, max(values) * 1.3) if log else span(values, zero)
    y_axis = Axis(low, high, log=log, label=label)
    x_axis = Axis(min(x) - 0.5, max(x) + 0.5, whole=True, label=lambda v: f"{v:.0f}")
    marks = [m for s in series for m in _marks(s, x, x_axis, y_axis)]
    if rule is not None:
        marks.insert(0, Mark("rule", "a", f"M{_x(x_axis, rule)} 0V1000"))
    legend = [Key(s.kind, s.tone, s.name) for s in series if len(series) > 1 and finite(s.y)]
    y_title = f"{titles[1]} (log scale)" if log else titles[1]
    return Chart(text, titles[0], y_title, x_axis.ticks(8), y_axis.ticks(), marks, legend)


def _extent(series: Sequence[Series]) -> list[float]:
    """Return every height that is drawn."""
    values = [v for s in series for v in finite(s.y)]
    for s in series:
        for y, d in zip(s.y, s.spread or []):
            values += finite([_below(y, d), y + d]) if y is not None and d is not None else []
    return values


def _marks(s: Series, x: Sequence[float], x_axis: Axis, y_axis: Axis) -> list[Mark]:
    if s.kind == "bars":
        return [Mark("bars", s.tone, _bars(s.y, x, x_axis, y_axis))]
    step = math.ceil(len(x) / POINTS)
    keep = [i for i in range(len(x)) if (len(x) - 1 - i) % step == 0]
    points = [(_x(x_axis, x[i]), _y(y_axis, s.y[i])) for i in keep]
    marks = [Mark("band", s.tone, _band(s, x, x_axis, y_axis))] if s.spread else []
    marks += [Mark("line", s.tone, _line(points))] if s.kind == "line" else []
    if s.kind == "dots" or len(x) <= DOTS:
        marks.append(Mark("dots", s.tone, "".join(f"M{a} {b}h0" for a, b in points if b is not None)))
    return [m for m in marks if m.path]


def _line(points: Sequence[tuple[int, int | None]]) -> str:
    """Connect neighbours; a gap where a value is missing."""
    path, pen = [], "M"
    for a, b in points:
        path.append("" if b is None else f"{pen}{a} {b}")
        pen = "M" if b is None else "L"
    return "".join(path)


def _band(s: Series, x: Sequence[float], x_axis: Axis, y_axis: Axis) -> str:
    rows = [(a, y, d) for a, y, d in zip(x, s.y, s.spread or []) if len(finite([y, d])) == 2]
    upper = [f"{_x(x_axis, a)} {_y(y_axis, y + d)}" for a, y, d in rows]  # type: ignore[operator]
    lower = [f"{_x(x_axis, a)} {_y(y_axis, _below(y, d))}" for a, y, d in reversed(rows)]  # type: ignore[arg-type]
    return f"M{'L'.join(upper + lower)}Z" if rows else ""


def _below(y: float, d: float) -> float:
    """Return the lower edge of a band: errors, however they spread, are not below 0."""
    return max(y - d, 0.0) if y >= 0 else y - d


def _bars(y: Numbers, x: Sequence[float], x_axis: Axis, y_axis: Axis) -> str:
    """Draw bars from the bottom of the plot, with a gap of a third."""
    half = min(330 / (x_axis.high - x_axis.low), 40)
    tops = [(_x(x_axis, a), _y(y_axis, b)) for a, b in zip(x, y)]
    return "".join(f"M{a - half:.0f} 1000V{b}h{2 * half:.0f}V1000z" for a, b in tops if b is not None)


def _x(axis: Axis, value: float) -> int:
    return round(10 * axis.at(value))


def _y(axis: Axis, value: float | None) -> int | None:
    if value is None or not finite([value]):
        return None
    return round(1000 - 10 * axis.at(max(value, axis.low)))
