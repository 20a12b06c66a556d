"""The whole protocol in one process: for simulations, tests, and as the example of how to carry the messages."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from cofactor.privacy.mechanisms import DiscreteGaussian
from cofactor.privacy.secure_sum.client import Client
from cofactor.privacy.secure_sum.keys import new_identity
from cofactor.privacy.secure_sum.messages import Terms, decode, encode
from cofactor.privacy.secure_sum.rules import Phase
from cofactor.privacy.secure_sum.server import Server
from cofactor.types import Array


class SecureSum(NamedTuple):
    """The sum over the survivors, and who they are."""

    total: Array
    survivors: tuple[int, ...]


def secure_sum(
    arrays: Mapping[int, Array],
    dropouts: Mapping[int, Phase] | None = None,
    *,
    noise: DiscreteGaussian | None = None,
) -> SecureSum:
    """Sum one array per client under masks; ``dropouts`` says in which phase a client stops answering.

    With ``noise`` (``parts`` equal to the threshold) each client adds its part before masking.
    """
    gone = dict(dropouts or {})
    first = np.asarray(next(iter(arrays.values())))
    terms = Terms(secrets.token_bytes(16), tuple(sorted(arrays)), first.size)
    pairs = {c: new_identity() for c in terms.clients}
    registry = {c: public for c, (_, public) in pairs.items()}
    server = Server(terms, registry=registry)
    clients = {c: Client(terms, c, identity=pairs[c][0], registry=registry) for c in terms.clients}
    inbox: dict[int, Any] = dict.fromkeys(terms.clients)
    for phase in (Phase.ADVERTISE, Phase.SHARE, Phase.MASK, Phase.UNMASK):
        for c, message in inbox.items():
            if gone.get(c) == phase:
                continue
            answer = clients[c].answer(message, np.asarray(arrays[c]).ravel(), noise)
            server.receive(decode(encode(answer)))
        inbox = dict(server.close())
    return SecureSum(server.result().reshape(first.shape), server.survivors)
