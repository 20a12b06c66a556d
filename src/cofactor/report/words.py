"""Numbers as people read them."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import Any

MISSING = "–"
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]")


def number(value: float | None, digits: int = 4) -> str:
    """Return a number with a few significant digits; a dash for None and NaN.

    >>> number(0.123456), number(12345.6), number(None)
    ('0.1235', '12,346', '–')
    """
    if value is None or math.isnan(value):
        return MISSING
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if 10 ** (digits - 1) <= abs(value) < 1e15:
        return f"{value:,.0f}"
    return short(f"{value:.{digits}g}")


def short(text: str) -> str:
    """Write exponents without leading zeros: ``1e-6``, not ``1e-06``."""
    return text.replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")


def tick(value: float, step: float) -> str:
    """Return the label of a tick: as many decimals as the step needs, thousands and millions by letter.

    >>> tick(1462.5, 2.5), tick(0.3, 0.05), tick(2.5e6, 5e5), tick(0.0, 1e-6)
    ('1,462.5', '0.30', '2.5M', '0')
    """
    if value == 0 or abs(step) < 1e-5:
        return short(f"{value:g}")
    units = [(u, c) for u, c in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if abs(value) >= max(u, 1e5) and step >= 0.1 * u]
    unit, letter = next(iter(units), (1.0, ""))
    digits = next(d for d in range(7) if abs(round(step / unit, d) - step / unit) < 1e-3 * step / unit)
    return f"{value / unit:,.{digits}f}{letter}"


def fixed(value: float | None, digits: int = 4) -> str:
    """Return a number with a fixed count of decimals, so that columns line up; a dash for None and NaN."""
    return number(value) if value is None or not abs(value) < 1e9 else f"{value:.{digits}f}"


def size(count: float) -> str:
    """Return a count of bytes in decimal units.

    >>> size(512), size(20000), size(1.25e6)
    ('512 B', '20 kB', '1.25 MB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.3g} TB"


def duration(seconds: float) -> str:
    """Return seconds in the unit that fits.

    >>> duration(0.012), duration(3.21), duration(95), duration(7300)
    ('12 ms', '3.2 s', '1 min 35 s', '2 h 1 min')
    """
    if not 0 <= seconds < 1e12:
        return MISSING
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def percent(share: float | None, sign: bool = False) -> str:
    """Return a share as a percentage."""
    if share is None or not abs(share) < 1e6:
        return MISSING
    return f"{100 * share:{'+' if sign else ''}.1f} %".replace("-", "−")


def moment(text: str) -> str:
    """Return a time in ISO format as date and minute; any other text as it is.

    >>> moment("2025-01-31T12:30:59+01:00"), moment("yesterday")
    ('2025-01-31 11:30 UTC', 'yesterday')
    """
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return text
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if time.tzinfo else f"{time:%Y-%m-%d %H:%M}"


def counted(n: int, noun: str) -> str:
    """Return a count with its noun: ``1 round``, ``2 rounds``."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def measure(name: str) -> str:
    """Return the name of a measure of rankings as it is written: ``NDCG@10``, ``precision@10``."""
    return name.replace("ndcg", "NDCG")


def clean(value: Any) -> Any:
    """Replace characters that would hide or reorder text; everything that is printed passes through here.

    Markup, a subclass of str, was made from cleaned texts and keeps its type.
    """
    return CONTROL.sub("\ufffd", value) if type(value) is str else value
