"""Merging what clients sent: a message may be as its method declares it, and nothing can be made of it all the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from cofactor.engines.contract import Answer, Session, is_finite
from cofactor.engines.team import text_of
from cofactor.local.placed import Placed
from cofactor.method import Method
from cofactor.types import ClientError, CofactorError, Message, Shared


def merged(
    session: Session, shared: Shared, answers: list[Answer], messages: list[Message], t: int
) -> tuple[Shared, list[Answer]]:
    """Return the state after round t, and whose messages are in it; name the clients without whom there is one.

    Where the engine lets the others go on, they do.
    """
    method = session.method
    try:
        return state_after(method, shared, messages, t), answers
    except Exception as error:
        wrong = spoilers(method, shared, messages, t)
        if not wrong:
            raise
        clients = np.concatenate([answers[i].clients for i in wrong]).tolist()
        if not all([session.blame(client) for client in clients]):
            raise unmerged(clients, t, error) from error
    left = [i for i in range(len(answers)) if i not in wrong]
    session.used([answers[i].client for i in left], t)
    return state_after(method, shared, [messages[i] for i in left], t), [answers[i] for i in left]


def unmerged(clients: Sequence[int], t: int, error: Exception) -> ClientError:
    """Return the error that names whose messages nothing can be made of."""
    return ClientError(
        f"client {', '.join(map(str, clients))}, round {t}: expected a message that can be merged, found one that "
        f"cannot: {text_of(error)}"
    )


def state_after(method: Method, shared: Shared, messages: list[Message], t: int) -> Shared:
    """Let the method merge messages; refuse a state that clients could not go on from: they would be blamed for it."""
    new = method.aggregate(shared, messages, t)
    held = [new.factor, *new.extra.values()]
    if not all(isinstance(a, Placed) or is_finite(np.asarray(a)) for a in held):
        raise CofactorError("the state after it has NaN or infinite numbers.")
    return new


def spoilers(method: Method, shared: Shared, messages: list[Message], t: int) -> list[int]:
    """Return the places of messages of which nothing can be made while something can be made of the others.

    First those that cannot be merged alone; if these are none, or all, those without which the others can.
    """

    def works(places: Iterable[int]) -> bool:
        some = [messages[i] for i in places]
        try:
            return bool(some) and bool(state_after(method, shared, some, t))
        except Exception:  # whatever hostile numbers lead to
            return False

    everybody = set(range(len(messages)))
    alone = [i for i in sorted(everybody) if not works([i])]
    if alone and works(sorted(everybody - set(alone))):
        return alone
    return [i for i in sorted(everybody) if works(sorted(everybody - {i}))]
