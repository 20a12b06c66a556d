"""The steps before a fit, in a job: settled once over all clients, written down, and repeated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cofactor import kinds
from cofactor.data.preparation import Asked, Preparation, hint
from cofactor.engines.contract import Answer
from cofactor.engines.totals import Question, Sums, totals
from cofactor.jobs import weighing
from cofactor.jobs.config import Config
from cofactor.jobs.place import Place
from cofactor.jobs.reading import Inputs
from cofactor.types import Array, CofactorError, Data

NAMES, WIDTH = "input_names", "input_width"
"""Arrays of a file: names and number of the features that came in, where preparation leaves others."""


@dataclass(frozen=True)
class Prepared:
    """What the steps have learned, as arrays to be written, and all that left the clients for it, by round.

    Rounds before the first one of the fit are negative. ``hint`` is what is unusual about the numbers.
    """

    arrays: Mapping[str, Array] = field(default_factory=dict)
    asked: Sequence[tuple[int, Sequence[Answer]]] = ()
    hint: str = ""


def prepare(config: Config, inputs: Inputs, place: Place, known: Mapping[str, Array]) -> tuple[Inputs, Prepared]:
    """Carry out the steps of a configuration; ``known`` is what they have learned in a run that is resumed."""
    steps = config.preparation
    said = "" if config.privacy is not None or place.remote else _hint(config, inputs, steps)
    if not steps.steps:
        return weighed(config, inputs), Prepared(hint=said)
    data: list[Data] = inputs.data
    if not place.remote:
        with place.guard("the inputs"):
            told: Any = {"clients": inputs.labels(), "features": inputs.feature_names}
            data = kinds.check(steps.takes, data, private=config.privacy is not None, **told)
    width = int(data[0].shape[1])
    names = inputs.feature_names or [f"feature{i}" for i in range(width)]
    asked: list[tuple[int, Sequence[Answer]]] = []

    def ask(question: Question, Xs: Sequence[Data], n_features: int) -> Sums:
        t = len(asked) - steps.questions
        return totals(
            question,
            Xs,
            n_features,
            engine=place.engine,
            secure=config.secure,
            watch=lambda _, answers: asked.append((t, answers)),
        )

    if known:
        made = Preparation.from_arrays(known)
        ready = [made(X) for X in data]
    else:
        made, ready = steps.settle(data, width, ask)
    arrays = learned(made, names, width)
    left = None if inputs.known is None else [made.places(index) for index in inputs.known]
    changed = replace(inputs, data=ready, feature_names=made.names(names), known=left)
    return weighed(config, changed), Prepared(arrays, asked, said)


def weighed(config: Config, inputs: Inputs) -> Inputs:
    """Return the clients with every row at its weight."""
    if not inputs.weights:
        return inputs
    if inputs.known is not None:
        raise CofactorError("--row-weights: expected the same features at every client; use --features intersection.")
    scales = weighing.scales(inputs.weights, config)
    return replace(inputs, data=weighing.scaled(inputs.data, scales), scales=scales)


def learned(made: Preparation, names: Sequence[str] | None, width: int) -> dict[str, Array]:
    """Return what steps have learned, with the features that came in, as arrays; nothing where there are none."""
    known = made.arrays()
    found = names or [f"feature{i}" for i in range(width)]
    return {**known, NAMES: np.array(found), WIDTH: np.array(width)} if known else {}


def _hint(config: Config, inputs: Inputs, steps: Preparation) -> str:
    """Look at rows of this process for numbers that are not what the steps expect; pictures may be whole numbers."""
    if config.kind != "real" or inputs.feature_names is None or config.image or not inputs.data:
        return ""
    return hint(inputs.data, inputs.names, steps, config.method)


def schemas(found: Mapping[str, Array]) -> dict[int, dict[str, tuple[int, ...]]]:
    """Return what clients may send in the rounds before a fit, from what its steps have learned."""
    made = Preparation.from_arrays(found)
    width: Any = int(found[WIDTH]) if WIDTH in found else 0
    out, t = {}, -made.questions
    for step in made.steps:
        if step.asks:
            out[t] = Asked(step).schema(width)
            t += 1
        width = width if step.keeps is None else int(step.keeps.sum())
    return out
