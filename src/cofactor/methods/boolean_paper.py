"""The paper FELB as it is printed, for comparison: noisy uploads without a guarantee, and codes left stale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cofactor.boolean.elbmf import binary
from cofactor.boolean.paper_noise import PaperMechanism
from cofactor.method import SERVER, Method, rng
from cofactor.methods.wrapped import Wrapped
from cofactor.types import Array, Data, Local, Message, Shared


@dataclass(frozen=True)
class PaperNoise(Wrapped):
    """A Boolean method whose uploaded factors carry the paper's noise. NOT a privacy guarantee.

    See :mod:`cofactor.boolean.paper_noise` for what is wrong with it. Only arrays named ``factor`` are changed.
    """

    noise: PaperMechanism

    def step(self, data: Data, shared: Shared, local: Local, t: int, rng: np.random.Generator) -> tuple[Local, Message]:
        """Step the method, then add noise to the factor that it sends."""
        local, message = self.method.step(data, shared, local, t, rng)
        if "factor" not in message.arrays:
            return local, message
        # where sums are enough, clients send their factor times the weight
        scale = message.weight if self.traits.additive else 1.0
        H = message.arrays["factor"]
        noisy = (self.noise(H / H.dtype.type(scale) if scale != 1 else H, rng) * scale).astype(H.dtype)
        return local, Message({**message.arrays, "factor": noisy}, message.weight)


def stale(method: Method, Xs: Sequence[Data], *, rounds: int, seed: int = 0) -> tuple[Array, list[Array]]:
    """Run a method and return its factor with the codes as the rounds left them (the paper's protocol).

    The codes belong to the clients' own factors, not to the merged one: never report their error as the result.
    """
    shared = method.start(Xs[0].shape[1], rng(seed, SERVER, -1))
    held: list[Local] = []
    for t in range(min(rounds, method.rounds or rounds)):
        if t in method.traits.stages:
            held = [method.join(X, shared.broadcast(), t, rng(seed, j, -1)) for j, X in enumerate(Xs)]
        replies = [method.step(X, shared.broadcast(), held[j], t, rng(seed, j, t)) for j, X in enumerate(Xs)]
        held = [local for local, _ in replies]
        shared = method.aggregate(shared, [message for _, message in replies], t)
    return method.factor(shared), [binary(local.memory.get("own_codes", local.codes)) for local in held]
