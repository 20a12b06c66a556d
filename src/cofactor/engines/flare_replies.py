"""What a client may reply to every order: one check for each, before anything is done with the reply.

Whatever does not pass is that client's fault: it is named, its reply is not used, and the run goes on or ends as it
does without an answer of that client.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from cofactor.engines.flare_format import FormatError
from cofactor.privacy.allowance import Release
from cofactor.privacy.secure_sum.messages import Agreed, Masked, RoundKeys, Shares, Unmasking, decode
from cofactor.types import CofactorError, Message

Check = Callable[[int, Any, Any], bool]
"""(client, what the order says, what was replied) -> whether it may be looked at."""

TOKEN, KEY = 16, 32
"""Bytes of a name that is never used again, and of a public key."""
STATE = re.compile(r"(after|joined)-\d{1,9}", re.ASCII)
SQUARED = 1e150
"""Numbers up to so much have squares in double precision."""
WORDS = "f8"
"""How numbers travel under masks."""


def check(op: str, client: int, order: Any, reply: Any) -> None:
    """Raise :class:`FormatError` if this cannot be a client's reply to an order."""
    if op not in REPLIES or not REPLIES[op](client, order, reply):
        raise FormatError("expected the reply to this order.")


def _nothing(client: int, order: Any, reply: Any) -> bool:
    return reply is None


def _truth(client: int, order: Any, reply: Any) -> bool:
    return isinstance(reply, bool)


def _fields(client: int, order: Any, reply: Any) -> bool:
    return isinstance(reply, dict) and all(isinstance(name, str) for name in reply)


def _names(client: int, order: Any, reply: Any) -> bool:
    return reply is None or (isinstance(reply, list) and all(isinstance(name, str) for name in reply))


def _states(client: int, order: Any, reply: Any) -> bool:
    return isinstance(reply, list) and all(isinstance(name, str) and STATE.fullmatch(name) for name in reply)


def _stepped(client: int, order: Any, reply: Any) -> bool:
    """A message in the open, or what its work has made of it; and whether the state is kept."""
    match reply:
        case {"answer": answer, "kept": bool(), **rest} if not rest:
            work = order["work"]
            return _mergeable(answer) if work is None else WORKS[work[0]](client, work[1:], answer)
    return False


def _mergeable(answer: Any) -> bool:
    """A message whose numbers have squares: others would fail at the factor that larger ones make."""
    if not isinstance(answer, Message):
        return False
    sizes = [float(np.abs(a).max(initial=0.0)) for a in answer.arrays.values() if np.asarray(a).dtype.kind == "f"]
    return not any(size > SQUARED for size in (answer.weight, *sizes))


def _brought(client: int, arguments: Any, reply: Any) -> bool:
    """What a message under masks costs, and how its arrays travel."""
    [schema] = arguments
    match reply:
        case {**own} if set(own) == {client}:
            match own[client]:
                case [dict(costs), dict(dtypes)]:
                    paid = set(costs) <= set(schema) and all(isinstance(cost, Release) for cost in costs.values())
                    return paid and set(dtypes) == set(schema) and all(_is_words(dtype) for dtype in dtypes.values())
    return False


def _is_words(dtype: Any) -> bool:
    return isinstance(dtype, str) and dtype == WORDS


def _did(client: int, order: Any, reply: Any) -> bool:
    return WORKS[order[0]](client, order[1:], reply)


def _keys(client: int, arguments: Any, reply: Any) -> bool:
    return _own_bytes(client, reply) and len(reply[client]) == KEY


def _token(client: int, arguments: Any, reply: Any) -> bool:
    return isinstance(reply, bytes) and len(reply) == TOKEN


def _said(client: int, arguments: Any, reply: Any) -> bool:
    """A message of secure summation in its own name, or nothing where it was not asked."""
    terms = arguments[0]
    if isinstance(reply, dict) and not reply:
        return True
    if not _own_bytes(client, reply):
        return False
    try:
        found = decode(reply[client])
    except CofactorError:
        return False
    own = isinstance(found, RoundKeys | Shares | Masked | Agreed | Unmasking)
    return own and found.client == client and found.session == terms.tag


def _found(client: int, arguments: Any, reply: Any) -> bool:
    """Whether there is something to add up under masks in the end; not what."""
    return isinstance(reply, dict) and (not reply or (_own_bytes(client, reply) and not reply[client]))


def _own_bytes(client: int, reply: Any) -> bool:
    """Whether a client speaks for itself and for nobody else."""
    return isinstance(reply, dict) and set(reply) == {client} and isinstance(reply[client], bytes)


REPLIES: Mapping[str, Check] = {
    "hello": _fields,  # :class:`cofactor.federation.features.Said` reads them
    "question": _nothing,
    "settle": _nothing,
    "names": _names,
    "markers": _nothing,
    "join": _truth,
    "step": _stepped,
    "do": _did,
    "held": _states,
    "restore": _nothing,
    "finish": lambda client, order, reply: reply is None or _fields(client, order, reply),
}
"""All orders; what is said at the end depends on the kind of data, and is read by whoever knows that."""

WORKS: Mapping[str, Check] = {
    "new_keys": _keys,
    "token": _token,
    "answer": _said,
    "check_scale": _nothing,
    "bring": _brought,
    "bring_found": _found,
}
"""What the work of secure summation returns, by its name."""
