"""Values of the options of methods, checked where a method is named: what each takes stands in its signature."""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Real
from typing import Any

from cofactor.plan import is_whole
from cofactor.types import CofactorError

ONE = frozenset(["restarts", "starts", "iterations", "local_rank", "width"])
"""Options that are counts of at least 1; other counts may be 0."""


def check_value(method: str, option: str, kind: str, value: Any) -> None:
    """Refuse a value that an option cannot have, by its annotation ``kind``; what is computed by round passes.

    >>> check_value("exact", "codes_penalty", "tuple[float, float]", 2)
    Traceback (most recent call last):
    cofactor.types.CofactorError: option codes_penalty of 'exact': expected two numbers >= 0, as [0.1, 0], found 2.
    """
    kind, _, or_none = kind.partition(" | ")
    if kind not in KNOWN or callable(value) or (or_none and value is None):
        return
    test, words = KNOWN[kind]
    if kind == "int" and option in ONE:
        test, words = lambda v: is_whole(v) and v >= 1, "a whole number >= 1"
    if option == "share":
        test, words = lambda v: _number(v) and 0 < v <= 1, "a number in (0, 1]"
    if not test(value):
        none = ", or none" if or_none else ""
        raise CofactorError(f"option {option} of {method!r}: expected {words}{none}, found {value!r}.")


def _number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and not math.isnan(value)


def _many(value: Any) -> bool:
    return isinstance(value, list | tuple)


KNOWN: dict[str, tuple[Callable[[Any], bool], str]] = {
    "int": (lambda v: is_whole(v) and v >= 0, "a whole number >= 0"),
    "float": (_number, "a number"),
    "bool": (lambda v: isinstance(v, bool), "true or false"),
    "str": (lambda v: isinstance(v, str), "a word"),
    "tuple[float, float]": (
        lambda v: _many(v) and len(v) == 2 and all(_number(a) and a >= 0 for a in v),
        "two numbers >= 0, as [0.1, 0]",
    ),
    "tuple[int, ...]": (lambda v: _many(v) and all(map(is_whole, v)), "a list of whole numbers"),
}
"""What the annotations of options take, and in words."""
