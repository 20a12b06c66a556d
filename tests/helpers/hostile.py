"""Frames that somebody has tampered with."""

from __future__ import annotations

import copy

import numpy as np

from cofactor.types import Message, Shared

WILD = [None, True, -1, 0, 2**70, 1e308, float("nan"), "", "step", b"", b"\x80\x04", [], {}, [[[]]], np.zeros(0)]
WILD += [
    np.full((3, 20), np.nan),
    np.zeros((3, 20), "<f4"),
    np.zeros((20, 3)),
    np.array(5),
    Message({}),
    Shared(np.eye(3)),
]


def verb_of(order):
    """Return the name of an order, that of its work where it has one."""
    value = order["v"]
    if order["op"] == "do":
        return value[0]
    return value["work"][0] if order["op"] == "step" and value["work"] else order["op"]


def damaged(frame, draw):
    """Return bytes that were cut, lengthened, or changed somewhere."""
    data = bytearray(frame)
    match draw.randrange(4):
        case 0:
            return bytes(data[: draw.randrange(len(data))])
        case 1:
            return bytes(data) + draw.randbytes(draw.randrange(1, 50))
        case 2:
            for _ in range(draw.randrange(1, 8)):
                data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
            return bytes(data)
        case _:
            return draw.randbytes(draw.randrange(200))


def mutated(value, draw):
    """Return the value with one part of it replaced by something else: a frame that is whole, and wrong."""
    value = copy.deepcopy(value)
    if isinstance(value, dict) and value and draw.random() < 0.8:
        key = draw.choice(list(value))
        match draw.randrange(6):
            case 0:
                del value[key]
            case 1:
                value[draw.choice(["x", "rows", "t", 7])] = draw.choice(WILD)
            case _:
                value[key] = mutated(value[key], draw)
        return value
    if isinstance(value, Shared) and draw.random() < 0.7:
        wild = np.full_like(value.factor, draw.choice([np.nan, np.inf]))
        return value._replace(factor=wild, extra={"x": draw.choice([np.nan, "x"])})
    if isinstance(value, Message) and draw.random() < 0.7:
        arrays = mutated(dict(value.arrays), draw)
        return value._replace(arrays=arrays if isinstance(arrays, dict) else {})
    return draw.choice(WILD)
