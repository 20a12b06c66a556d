"""First one method, then another: starts, seeds and finishing sweeps are rounds of their own methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NoReturn, Self

import numpy as np

from cofactor.method import Traits
from cofactor.methods.refusals import START, no_private
from cofactor.privacy.errors import PrivacyError
from cofactor.types import Array, CofactorError, Data, Local, Message, Shared

KEPT = ("stability",)
"""What the server knows of the components, one number each, and keeps in the next stage."""


@dataclass(frozen=True)
class Staged:
    """``length`` rounds of ``first``, whose last factor is where ``then`` starts; clients join each of the two.

    The loss of the first stage does not compare with that of the second: ``traits.stages`` says where it begins.
    ``kept`` names what the first stage tells of the components and the second does not know.
    """

    first: Any
    length: int
    then: Any
    kept: tuple[str, ...] = KEPT

    def __post_init__(self) -> None:
        """Refuse a first stage without a round: nothing would be handed over."""
        if self.length < 1:
            raise CofactorError(f"length: expected at least one round of the first method. Found {self.length}.")

    @property
    def rank(self) -> int:
        """As the second method says: the first may bring more."""
        return self.then.rank

    @cached_property
    def rounds(self) -> int | None:
        """The rounds of both, if the second has a plan of its own."""
        return None if self.then.rounds is None else self.length + self.then.rounds

    @cached_property
    def traits(self) -> Traits:
        """What holds in both stages; rows may be stacked where the second stage begins, or from the start."""
        a, b = self.first.traits, self.then.traits
        rowwise = None if b.rowwise is None else 0 if a.rowwise == b.rowwise == 0 else self.length + b.rowwise
        together = None if b.together is None else self.length + b.together
        begins = (*(t for t in a.stages if t < self.length), *(self.length + t for t in b.stages))
        both: dict[str, Any] = {"additive": a.additive and b.additive, "complete": a.complete or b.complete}
        both |= {
            "rowwise": rowwise,
            "together": together,
            "stages": begins,
            "unseeded": min(a.unseeded, self.length),
            "in_memory": min(a.in_memory, self.length),
        }
        return replace(b, kind=a.kind, own=a.own, streams=False, **both)

    def partial(self) -> Self:
        """Both in their forms for absent clients; what the first knew of a few clients' components is not kept."""
        return replace(self, first=self.first.partial(), then=self.then.partial(), kept=())

    def private(self, privacy: Any, *, rounds: int, parts: Any) -> NoReturn:
        """Refuse: the first stage releases what it saw without noise."""
        raise PrivacyError(START if self.traits.kind == "real" else no_private(self.traits.kind))

    def _at(self, t: int) -> tuple[Any, int]:
        """Return the method of round t and its own number of that round."""
        return (self.first, t) if t < self.length else (self.then, t - self.length)

    def schema(self, n_features: int, t: int) -> dict[str, tuple[int, ...]]:
        """As the method of the round says."""
        method, own = self._at(t)
        return method.schema(n_features, own)

    def start(self, n_features: int, rng: np.random.Generator, factor: Array | None = None) -> Shared:
        """Start as the first method does."""
        return self.first.start(n_features, rng, factor)

    def join(self, data: Data, shared: Shared, t: int, rng: np.random.Generator) -> Local:
        """Join the method of the round."""
        method, own = self._at(t)
        return method.join(data, shared, own, rng)

    def step(self, data: Data, shared: Shared, local: Local, t: int, rng: np.random.Generator) -> tuple[Local, Message]:
        """Step the method of the round."""
        method, own = self._at(t)
        return method.step(data, shared, local, own, rng)

    def steps(
        self, data: Sequence[Data], shared: Shared, locals: Sequence[Local], t: int
    ) -> list[tuple[Local, Message]]:
        """Step clients side by side, as the second method does."""
        return self.then.steps(data, shared, locals, t - self.length)

    def aggregate(self, shared: Shared, messages: list[Message], t: int) -> Shared:
        """Aggregate as the method of the round does; after the last round of the first, hand its factor over."""
        method, own = self._at(t)
        new = method.aggregate(shared, messages, own)
        if t + 1 == self.length:
            opened = self.then.start(new.factor.shape[1], np.random.default_rng(t), new.factor)
            shared, new = new, opened._replace(loss=new.loss, drift=new.drift)
        told = {name: shared.memory[name] for name in self.kept if name in shared.memory}
        return new._replace(memory={**told, **new.memory}) if told else new

    def factor(self, shared: Shared) -> Array:
        """Return the second method's factor; a run that ended before has that of the first in its form."""
        return self.then.factor(shared)

    def refit(self, data: Data, factor: Array) -> Array:
        """Codes for the final factor."""
        return self.then.refit(data, factor)
