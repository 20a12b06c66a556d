"""One round of sums outside a factorization: a question to every client, of which only the sum is kept.

Preparation and markers ask such questions; whatever carries a run carries these, under masks where sums are secure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from cofactor.engines.contract import Engine, Watch
from cofactor.engines.loop import run
from cofactor.method import Method, Traits, total
from cofactor.methods.refusals import no_private
from cofactor.plan import Plan
from cofactor.privacy.errors import PrivacyError
from cofactor.types import Array, Data, Local, Message, Shared

Sums = Mapping[str, Array]
"""Named arrays that add up over clients."""


class Question(Protocol):
    """What a client is asked: arrays that add up over clients, of sizes that its rows do not change."""

    def schema(self, n_features: int) -> dict[str, tuple[int, ...]]:
        """Name and shape of every array."""
        ...

    def answer(self, data: Data) -> dict[str, Array]:
        """Client: the arrays of its own rows."""
        ...


@dataclass(frozen=True)
class Totals:
    """A question as a method of one additive round; its factor is all answers added up, laid out in one row."""

    question: Question
    features: int
    rank = rounds = 1

    @property
    def traits(self) -> Traits:
        """Sums are enough, of all clients."""
        return Traits(additive=True, complete=True)

    def partial(self) -> Method:
        """Return itself: it is asked of all clients."""
        return self

    def private(self, privacy: Any, *, rounds: int, parts: Any) -> Method:
        """Refuse: nothing of a budget is set aside for it."""
        raise PrivacyError(no_private("real"))

    def schema(self, n_features: int, t: int) -> dict[str, tuple[int, ...]]:
        """As the question says."""
        return self.question.schema(n_features)

    def start(self, n_features: int, rng: np.random.Generator, factor: Array | None = None) -> Shared:
        """Nothing is known yet."""
        return Shared(np.zeros((1, 0)))

    def join(self, data: Data, shared: Shared, t: int, rng: np.random.Generator) -> Local:
        """Nothing is remembered."""
        return self._nothing(data)

    def step(self, data: Data, shared: Shared, local: Local, t: int, rng: np.random.Generator) -> tuple[Local, Message]:
        """Answer in double precision."""
        found = self.question.answer(data)
        return local, Message({name: np.asarray(a, dtype=np.float64) for name, a in found.items()})

    def aggregate(self, shared: Shared, messages: list[Message], t: int) -> Shared:
        """Add up."""
        sums = total(messages).arrays
        return Shared(np.concatenate([np.ravel(sums[name]) for name in self.schema(self.features, t)])[None, :])

    def factor(self, shared: Shared) -> Array:
        """The sums in one row."""
        return shared.factor

    def refit(self, data: Data, factor: Array) -> Array:
        """There are no codes."""
        return self._nothing(data).codes

    @staticmethod
    def _nothing(data: Data) -> Local:
        return Local(np.zeros((data.shape[0], 0)))


def totals(
    question: Question,
    Xs: Sequence[Data],
    n_features: int,
    *,
    engine: Engine | None = None,
    secure: bool = False,
    watch: Watch | None = None,
) -> dict[str, Array]:
    """Ask every client, and return the answers added up: ``{name: sum over clients}``.

    >>> class Rows:
    ...     def schema(self, n_features):
    ...         return {"rows": ()}
    ...     def answer(self, data):
    ...         return {"rows": np.float64(len(data))}
    >>> float(totals(Rows(), [np.ones((3, 2)), np.ones((4, 2))], 2)["rows"])
    7.0
    """
    asked = Totals(question, n_features)
    found = run(asked, Xs, Plan(rounds=1, secure=secure), engine=engine, watch=watch).factor[0]
    shapes = question.schema(n_features)
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes.values()])
    parts = np.split(found, ends[:-1])
    return {name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}
