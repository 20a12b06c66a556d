"""Private methods as a run would build them, and small data for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cofactor import run
from cofactor.methods import catalog
from cofactor.methods.build import Facts, build
from cofactor.methods.dp_nmf import dp_nmf
from cofactor.plan import Plan
from cofactor.privacy.allowance import Privacy
from cofactor.types import Message

HARDLY = 1e9
"""An epsilon at which noise is below 1e-4."""


def privacy(epsilon: float = 1.0, delta: float = 1e-6, unit: Any = "record", **more: Any) -> Privacy:
    """Return what is asked for; most tests need one of its fields."""
    return Privacy(epsilon, delta, unit, **more)


def built(
    method: Any, ask: Privacy, *, clients: int = 4, rounds: int | None = 3, secure: bool = False, **options: Any
) -> Any:
    """Return the private form of a method object, or of a name of the catalog at rank 3."""
    plan = Plan(rounds, privacy=ask, secure=secure)
    return build(method, 3, plan, Facts(clients), options)[0]


def moments(ask: Privacy, rank: int = 3) -> Any:
    """Return the default private method."""
    return catalog.make("dp-moments", rank, privacy=ask)


def every_form(epsilon: float, unit: str) -> dict[str, Any]:
    """Return every private form by name."""
    ask = privacy(epsilon, unit=unit, insecure_seed=7)
    found = {
        "moments": moments(ask),
        "narrow moments": replace(moments(ask), widest=5),
        "statistics": dp_nmf(3, privacy=ask, rounds=3, outliers=None),
        "statistics with outliers": dp_nmf(3, privacy=ask, rounds=3, outliers=0.5),
    }
    if unit == "client":
        found |= {name: built(name, ask) for name in ("fedavg", "fedprox", "fnmf-lap", "fedmavg", "syn-sd")}
    return found


def mixtures(rng: np.random.Generator) -> list[np.ndarray]:
    """Return four clients with rows of three components, without noise."""
    H = rng.gamma(0.5, size=(3, 12))
    return [rng.gamma(0.5, size=(n, 3)) @ H for n in (40, 30, 50, 25)]


def messages_of(method: Any, Xs: Sequence[np.ndarray], **how: Any) -> list[tuple[int, Message]]:
    """Run a method for as many rounds as it plans; return every message with its round."""
    seen: list[tuple[int, Message]] = []
    run(method, Xs, watch=lambda t, answers: seen.extend((t, answer.message) for answer in answers), **how)
    return seen
