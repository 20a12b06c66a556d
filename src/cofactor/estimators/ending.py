"""What a fit says in the end: why it ended before it was done, who never answered, what is empty or unsure."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cofactor.engines.history import Round
from cofactor.engines.outcome import Run
from cofactor.engines.over import SURE
from cofactor.kinds.kind import Kind, Score
from cofactor.kinds.measure import Verdict
from cofactor.types import Array, DataError, DisclosureWarning, Shared

ADVICE = {
    "rounds": "{rounds} rounds were not enough to reach tol={tol}; raise `rounds` or `tol`.",
    "iterations": "the iterations of the method's own plan ({rounds} rounds) were not enough to reach tol={tol}; raise "
    "`rounds`, which are its iterations, or `tol`.",
    "few": "{rounds} rounds were not enough to judge whether tol={tol} is reached; raise `rounds`, or set tol=0.",
    "precision": "tol={tol} cannot be reached in {dtype}, which shows no smaller change than {eps:.1g}; raise `tol`, "
    "or give the data in float64.",
}

HIDING = 0.999
"""The part of a factor's squares in one feature from which on it hides the others."""


def warn(outcome: Run, tol: float, category: type[Warning]) -> None:
    """Warn where a fit has ended before it was done, and say what to do."""
    if outcome.ended in ADVICE:
        H = outcome.factor
        eps = 2.0 ** -(23 if H.dtype.itemsize == 4 else 52)
        told = {"rounds": len(outcome.history), "tol": tol, "dtype": H.dtype, "eps": eps}
        warnings.warn(ADVICE[outcome.ended].format(**told), category, stacklevel=5)


def tell(line: Round, shared: Shared) -> None:
    """Print a line for a round."""
    loss = "" if np.isnan(line.loss) else f", loss {line.loss:.6g}"
    print(f"round {line.round + 1}{loss}", flush=True)


def name(outcome: Run, clients: Sequence[Any], kind: Kind) -> None:
    """Warn of clients that had no part, by their names, and of components that are made of nothing, or of one row."""
    mind(outcome.remark)
    for text in no_part(outcome, clients):
        warnings.warn(text, stacklevel=5)
    if 0 < len(outcome.empty) < len(outcome.factor):  # all of them: see nothing
        those = ", ".join(map(str, outcome.empty))
        text = f"nothing is made of components {those}: data or penalties leave fewer than {len(outcome.factor)}."
        warnings.warn(text + _hiding(outcome.factor), stacklevel=5)
    if outcome.single and outcome.ledger is None:  # noise hides rows
        warnings.warn(kind.alone(outcome.single), DisclosureWarning, stacklevel=5)


def mind(remark: str) -> None:
    """Warn of what a private fit has to say of itself, before or after it; nothing is no remark."""
    if remark:
        warnings.warn(f"Mind that {remark}", stacklevel=5)


def no_part(outcome: Run, clients: Sequence[Any]) -> list[str]:
    """Say which clients had no part in a fit: those that nobody asked are told apart from those that did not answer."""
    silent = [str(clients[j]) for j in outcome.absent if j not in outcome.undrawn]
    undrawn = [str(clients[j]) for j in outcome.undrawn]
    texts = [f"clients that never answered, or were given up: {', '.join(silent)}."] if silent else []
    if undrawn:
        texts.append(
            f"clients that were drawn for none of the {len(outcome.history)} rounds, so that the factor knows nothing "
            f"of them: {', '.join(undrawn)}; raise `rounds` or `participation`."
        )
    return texts


def lacking(found: Verdict, tallies: Sequence[Array]) -> None:
    """Refuse data without an observed cell; warn of what they lack."""
    if found.silent and len(found.silent) == len(tallies):
        raise DataError(
            "expected cells that were observed, found none: every cell of every client is NaN, or weighs 0."
        )
    for text in found.lacks:
        warnings.warn(text, stacklevel=5)


def nothing(outcome: Run, score: Score, penalties: Mapping[str, Any]) -> None:
    """Warn where nothing is made of any component: of penalties that leave nothing, or data of zeros, which they fit.

    What data hold is no word for a private fit.
    """
    zeros = score.error == 0 and not outcome.factor.any()  # of which a cluster is made
    if len(outcome.empty) < len(outcome.factor) and not zeros:
        return
    given = [name for name, weight in penalties.items() if not isinstance(weight, str) and weight > 0]
    if score.error == 0:
        text = "the data hold nothing but zeros: nothing is made of any component. Were they read from the right place?"
    elif given:
        text = (
            f"the penalty leaves nothing: no component has codes, and nothing is explained; lower {', '.join(given)}."
        )
    else:
        text = "nothing is made of any component: no codes were found for them, and nothing is explained."
    warnings.warn(text, stacklevel=5)


def doubt(outcome: Run, features: Sequence[Any] | None) -> None:
    """Warn of components that restarts as good as this fit did not find, by number and largest features."""
    those = outcome.unsure
    if those and outcome.stability is not None:
        told = (f"{i} ({_top(outcome.factor[i], features)}; {outcome.stability[i]:.2f})" for i in those)
        text = (
            f"components may come out otherwise from another start: {', '.join(told)}. Other restarts that explain the "
            f"clients' summaries as well have none with a cosine of {SURE} to them; another rank may settle it."
        )
        warnings.warn(text, stacklevel=5)


def _hiding(H: Array) -> str:
    """Name a feature so much larger than the others that components differ in little else; "" where there is none."""
    squares = (H.astype(np.float64) ** 2)[H.any(axis=1)]
    largest = int(np.argmax(squares.sum(axis=0)))
    if not squares.any() or squares[:, largest].sum() < HIDING * squares.sum():
        return ""
    return (
        f" Feature {largest} is so much larger than the others that it hides them: bring features to one scale first."
    )


def _top(row: Array, features: Sequence[Any] | None) -> str:
    """Name the largest features of a component."""
    names = [f"feature {j}" if features is None else str(features[j]) for j in np.argsort(-row, kind="stable")[:3]]
    return ", ".join(names)
