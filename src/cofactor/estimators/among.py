"""Estimators in several processes: each has clients of its own, and all are to fit the same."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from cofactor.engines.team import Team, kept
from cofactor.plan import Plan

ALONE = Team()
"""This process, where no engine says that there are others."""


def starting(team: Team) -> AbstractContextManager[None]:
    """End the start of a fit everywhere where it ends here: others would wait for this process."""
    return nullcontext() if team.count == 1 else team.guard("the start of the fit")


def unheard(team: Team, *, private: bool) -> AbstractContextManager[None]:
    """Tell other processes nothing of what was found in private data."""
    return kept("of a process", private=True) if private and team.count > 1 else nullcontext()


def told(team: Team, where: str, mine: Any) -> list[Any]:
    """Return what every process says, in their order."""
    return [mine] if team.count == 1 else team.exchange(where, mine)


def of_one_seed(plan: Plan, team: Team) -> Plan:
    """Return the plan with the seed of process 0: each draws one of its own where ``random_state`` is None."""
    return plan if team.count == 1 else replace(plan, seed=told(team, "the seed", plan.seed)[0])


def everyone(names: Sequence[Any], team: Team, *, grouped: bool) -> list[Any]:
    """Return the names of the clients of all processes: those of groups, or numbers through all of them."""
    every = [name for part in told(team, "the clients", list(names)) for name in part]
    return every if grouped or team.count == 1 else list(range(len(every)))
