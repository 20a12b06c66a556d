"""A method around another one: everything is as the inner method says, but for what a subclass changes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NoReturn, Self

import numpy as np

from cofactor.method import Traits
from cofactor.methods.refusals import no_private
from cofactor.privacy.errors import PrivacyError
from cofactor.types import Array, Data, Local, Message, Shared


@dataclass(frozen=True)
class Wrapped:
    """The base of methods that change the messages of ``method``, each client for itself."""

    method: Any

    @property
    def rank(self) -> int:
        """As the method says."""
        return self.method.rank

    @property
    def rounds(self) -> int | None:
        """As the method says."""
        return self.method.rounds

    @cached_property
    def traits(self) -> Traits:
        """As the method says, but every client changes its own message."""
        return replace(self.method.traits, rowwise=None, together=None)

    def partial(self) -> Self:
        """Wrap the method's form for absent clients."""
        return replace(self, method=self.method.partial())

    def private(self, privacy: Any, *, rounds: int, parts: Any) -> NoReturn:
        """Refuse: messages that were changed already have no bound that is known."""
        raise PrivacyError(no_private(self.traits.kind))

    def schema(self, n_features: int, t: int) -> dict[str, tuple[int, ...]]:
        """As the method says."""
        return self.method.schema(n_features, t)

    def start(self, n_features: int, rng: np.random.Generator, factor: Array | None = None) -> Shared:
        """As the method does."""
        return self.method.start(n_features, rng, factor)

    def join(self, data: Data, shared: Shared, t: int, rng: np.random.Generator) -> Local:
        """As the method does."""
        return self.method.join(data, shared, t, rng)

    def step(self, data: Data, shared: Shared, local: Local, t: int, rng: np.random.Generator) -> tuple[Local, Message]:
        """As the method does."""
        return self.method.step(data, shared, local, t, rng)

    def aggregate(self, shared: Shared, messages: list[Message], t: int) -> Shared:
        """As the method does."""
        return self.method.aggregate(shared, messages, t)

    def remark(self, shared: Shared) -> str:
        """As the method does, which is a private one."""
        return self.method.remark(shared)

    def factor(self, shared: Shared) -> Array:
        """As the method does."""
        return self.method.factor(shared)

    def refit(self, data: Data, factor: Array) -> Array:
        """As the method does."""
        return self.method.refit(data, factor)
