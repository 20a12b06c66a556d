"""The messages of methods of one upload, kept where they were merged: so that a client can be forgotten, or come late.

Whoever merges has seen them anyway. Of private runs and of sums (additive methods) nothing is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cofactor.engines.contract import Answer
from cofactor.files import undamaged
from cofactor.jobs.client_folder import write
from cofactor.method import Method
from cofactor.types import CofactorError, Message

FILE = "uploads.npz"


def keeps(method: Method) -> bool:
    """Whether the messages of a method can be merged again: one upload, of which the server sees each."""
    traits = method.traits
    return method.rounds == 1 and not traits.additive and traits.allowance is None


def save(folder: Path, names: Sequence[str], answers: Sequence[Answer]) -> None:
    """Write the message of every client."""
    arrays: dict[str, Any] = {"clients": np.array([names[answer.client] for answer in answers])}
    for i, answer in enumerate(answers):
        arrays[f"{i}/weight"] = np.float64(answer.message.weight)
        arrays |= {f"{i}/arrays/{name}": np.asarray(a) for name, a in answer.message.arrays.items()}
    write(folder / FILE, lambda file: np.savez(file, **arrays))


def load(folder: Path) -> dict[str, Message]:
    """Return the message of every client by its name."""
    file = folder / FILE
    if not file.exists():
        raise CofactorError(f"{file}: expected the messages that the run has merged, found none; start a new run.")
    with undamaged(file), np.load(file, allow_pickle=False) as kept:
        names = [str(name) for name in kept["clients"]]
        return {name: _message(kept, f"{i}/") for i, name in enumerate(names)}


def _message(kept: Mapping[str, np.ndarray], begin: str) -> Message:
    own = [name for name in kept if name.startswith(f"{begin}arrays/")]
    return Message(
        {name.removeprefix(f"{begin}arrays/"): kept[name][()] for name in own}, float(kept[f"{begin}weight"])
    )
