"""Clients of little data in one process, stepped side by side: what is done for each alone is mostly its message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Protocol, TypeVar

from cofactor.engines.contract import Answer, check_message
from cofactor.local import arrays
from cofactor.local.threads import lent
from cofactor.method import Together
from cofactor.types import Array, Data, Local, Shared

LITTLE = 1 << 18
"""Numbers of a client, at most, that is stepped beside others: of more, the products take longer than all the rest."""


class Unit(Protocol):
    """A client and its state; of a batch of tiny ones, ``owner`` names the client of every row."""

    members: Array
    data: Data
    owner: Array | None
    local: Local | None

    @property
    def first(self) -> int:
        """Its number."""
        ...


U = TypeVar("U", bound=Unit)


def parted(units: list[U]) -> tuple[list[U], list[U]]:
    """Return the clients of little data in memory, and the others."""
    kinds: tuple[list[U], list[U]] = ([], [])
    for unit in units:
        kinds[unit.owner is not None or arrays.stored(unit.data) > LITTLE].append(unit)
    return kinds


def step(
    method: Together,
    units: Sequence[U],
    alone: Callable[[U], Answer],
    *,
    shared: Shared,
    t: int,
    schema: dict[str, tuple[int, ...]],
    pool: Executor | None,
) -> list[Answer]:
    """Step clients as one, or as one in each thread that was lent; answers come in their order.

    Where that fails, each of them is stepped ``alone``: the error is of the one whose fault it is.
    """

    def together(group: Sequence[U]) -> list[Answer]:
        states = [unit.local for unit in group if unit.local is not None]
        try:
            found = method.steps([unit.data for unit in group], shared, states, t)
        except Exception:
            return [alone(unit) for unit in group]
        for unit, (local, message) in zip(group, found, strict=True):
            unit.local = local
            check_message(message, schema, client=unit.first, t=t)
        return [Answer(unit.members, message) for unit, (_, message) in zip(group, found, strict=True)]

    width = -(-len(units) // lent())
    groups = [units[i : i + width] for i in range(0, len(units), width)]
    done = (pool.map if pool is not None and len(groups) > 1 else map)(together, groups)
    return [answer for answers in done for answer in answers]
