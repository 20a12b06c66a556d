"""Values that change with the round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


class Schedule:
    """A value by round; anything else is a constant (see :func:`at`)."""

    def __call__(self, t: int) -> Any:
        """Return the value in round t."""
        raise TypeError(f"{type(self).__name__} is not a schedule: it does not say its value in round {t}")


@dataclass(frozen=True)
class Switch(Schedule):
    """``first`` in the rounds before ``at``, ``then`` from there on."""

    first: Any
    then: Any
    at: int = 1

    def __call__(self, t: int) -> Any:
        """Return ``first`` while t < at."""
        return self.first if t < self.at else self.then


def at(value: Any | Callable[[int], Any], t: int) -> Any:
    """Return the value of a schedule in round t, or the constant itself.

    >>> at(0.5, 3), at(Switch("lap", "rho"), 0), at(Switch("lap", "rho"), 1)
    (0.5, 'lap', 'rho')
    """
    return value(t) if isinstance(value, Schedule) else value
