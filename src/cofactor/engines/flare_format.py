"""Orders and replies as bytes: named arrays and plain values, no pickle, and nothing that is not on this page.

A frame is ``b"CFM1"``, a digest of all that follows (16 bytes), the length of the head (4 bytes), the head (JSON), and
the arrays one after the other. Reading checks sizes before it makes anything, so that hostile bytes cost no more than
their own length; whatever is wrong with them is one :class:`FormatError`.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cofactor.privacy.accountant import Cost, Mechanism, Unit
from cofactor.privacy.allowance import Release
from cofactor.privacy.secure_sum import messages as sums
from cofactor.types import ClientError, Message, Shared

MAGIC, DIGEST, HEAD = b"CFM1", 16, 4
LARGEST = 1 << 31
"""Bytes of a frame, unless a reader says less."""
LARGEST_HEAD, DEEPEST, MOST_AXES = 1 << 24, 12, 3
DTYPES = {"<f8", "<f4", "<f2", "<i8", "<i4", "<i2", "|i1", "<u8", "<u4", "<u2", "|u1", "|b1"}
"""Numbers and bits, little-endian; no objects, texts or structures."""


class FormatError(ClientError):
    """Bytes that are no frame; the text is fixed and tells nothing of what was in them."""


class _Record(NamedTuple):
    """How a known kind of value is taken apart, and made again from its fields (which are checked by its maker)."""

    kind: type
    fields: Callable[[Any], list[Any]]
    make: Callable[..., Any]


def _message(arrays: Any, weight: Any, cost: Any, dtypes: Any) -> Message:
    return Message(_named(arrays, _NUMBERS), _number(weight), _named(cost, Release), _named(dtypes, str))


def _shared(factor: Any, extra: Any, loss: Any, drift: Any) -> Shared:
    return Shared(_checked(factor, np.ndarray), _named(extra, _NUMBERS), {}, _number(loss), _number(drift))


def _checked(value: Any, kind: Any) -> Any:
    if not isinstance(value, kind):
        raise FormatError("expected another kind of field.")
    return value


def _named(value: Any, kind: Any) -> dict[str, Any]:
    return {_checked(name, str): _checked(entry, kind) for name, entry in _checked(value, dict).items()}


def _number(value: Any) -> float:
    if isinstance(value, bool):
        raise FormatError("expected a number.")
    return float(_checked(value, int | float | np.number))


_NUMBERS = (np.ndarray, np.number, np.bool_)


RECORDS = {
    "message": _Record(Message, lambda m: [dict(m.arrays), m.weight, dict(m.cost), _names(m.dtypes)], _message),
    "shared": _Record(Shared, lambda s: [s.factor, dict(s.extra), float(s.loss), float(s.drift)], _shared),
    "cost": _Record(
        Cost,
        lambda c: [str(c.mechanism), c.multiplier, str(c.unit), c.private, c.honest],
        lambda how, multiplier, unit, private, honest: Cost(
            Mechanism(_checked(how, str)),
            _number(multiplier),
            Unit(_checked(unit, str)),
            _checked(private, bool),
            _checked(honest, int),
        ),
    ),
    "release": _Record(
        Release,
        lambda r: [r.cost, r.clip, r.sigma],
        lambda cost, clip, sigma: Release(_checked(cost, Cost), _number(clip), _number(sigma)),
    ),
    "terms": _Record(
        sums.Terms,
        lambda t: [t.session, list(t.clients), t.size, t.neighbours, t.shares],
        lambda session, clients, size, neighbours, shares: sums.Terms(
            _checked(session, bytes),
            tuple(map(int, clients)),
            int(size),
            _checked(neighbours, int | None),
            _checked(shares, int),
        ),
    ),
}
_NAMES = {record.kind: name for name, record in RECORDS.items()}


def _names(dtypes: Any) -> dict[str, str]:
    return {name: np.dtype(dtype).str for name, dtype in dtypes.items()}


def pack(value: Any) -> bytes:
    """Return the frame of a value: None, truth, numbers, texts, bytes, arrays, lists, dicts, and known records.

    >>> unpack(pack({"t": 3, "factor": np.eye(2)}))["factor"].tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    buffers: list[bytes] = []
    head = json.dumps(_write(value, buffers), separators=(",", ":")).encode()
    body = b"".join([struct.pack("<I", len(head)), head, *buffers])
    return MAGIC + digest(body) + body


def digest(body: bytes | memoryview) -> bytes:
    """Return what must stand before a body; it finds damage, while TLS says who speaks."""
    return hashlib.blake2b(body, digest_size=DIGEST).digest()


def _write(value: Any, buffers: list[bytes]) -> Any:
    found: Any = None
    if value is None or isinstance(value, bool | str | int):
        found = value
    elif isinstance(value, float) and not isinstance(value, np.generic):
        found = value if math.isfinite(value) else {"f": repr(value)}
    elif type(value) in _NAMES:
        name = _NAMES[type(value)]
        found = {"r": name, "v": [_write(v, buffers) for v in RECORDS[name].fields(value)]}
    elif type(value) in sums.KINDS:
        found = {"s": _write(sums.encode(value), buffers)}
    elif isinstance(value, bytes):
        buffers.append(value)
        found = {"b": len(value)}
    elif isinstance(value, dict):
        found = {"d": [[_key(k), _write(v, buffers)] for k, v in value.items()]}
    elif isinstance(value, list | tuple):
        found = [_write(v, buffers) for v in value]
    else:
        found = _write_array(np.asarray(value), buffers)
    return found


def _write_array(array: Any, buffers: list[bytes]) -> Any:
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    if array.dtype.str not in DTYPES:
        raise FormatError("expected numbers to send, found something else.")
    buffers.append(array.tobytes())
    return {"a": array.dtype.str, "n": list(array.shape)}


def _key(key: Any) -> int | str:
    if isinstance(key, bool) or not isinstance(key, int | str):
        raise FormatError("expected texts or whole numbers as names, found something else.")
    return key


def unpack(data: bytes, *, largest: int = LARGEST) -> Any:
    """Return the value of a frame; :class:`FormatError` for anything else."""
    start = len(MAGIC) + DIGEST + HEAD
    if not isinstance(data, bytes) or not start <= len(data) <= largest or data[: len(MAGIC)] != MAGIC:
        raise FormatError("expected a frame of cofactor, found other bytes.")
    body = memoryview(data)[len(MAGIC) + DIGEST :]
    if digest(body) != data[len(MAGIC) : len(MAGIC) + DIGEST]:
        raise FormatError("expected a frame of cofactor, found a damaged one.")
    (size,) = struct.unpack("<I", body[:HEAD])
    if size > min(LARGEST_HEAD, len(body) - HEAD):
        raise FormatError("expected a frame of cofactor, found a head that does not fit.")
    try:
        head = json.loads(bytes(body[HEAD : HEAD + size]), parse_constant=_no_constant)
        reader = _Reader(body[HEAD + size :])
        value = reader.read(head, 0)
    except FormatError:
        raise
    except Exception as error:  # records refuse what they do not hold, in words that may quote it
        raise FormatError("expected a frame of cofactor, found one that says nothing known.") from error
    if reader.at != len(reader.data):
        raise FormatError("expected a frame of cofactor, found bytes that nobody named.")
    return value


def _no_constant(name: str) -> None:
    raise FormatError("expected numbers, found a word for none.")


class _Reader:
    """Values of a head, with their arrays taken from the bytes behind it in order."""

    def __init__(self, data: memoryview) -> None:
        self.data, self.at = data, 0

    def read(self, node: Any, depth: int) -> Any:
        """Return the value of one node."""
        if depth > DEEPEST:
            raise FormatError("expected a shallow frame, found a deep one.")
        if node is None or isinstance(node, bool | int | float | str):
            return node
        if isinstance(node, list):
            return [self.read(v, depth + 1) for v in node]
        return self._tagged(node, depth)

    def _tagged(self, node: dict[str, Any], depth: int) -> Any:
        match node:
            case {"a": str(dtype), "n": list(shape), **rest} if not rest:
                return self._array(dtype, shape)
            case {"b": int(size), **rest} if not rest:
                return bytes(self._take(size))
            case {"f": "nan" | "inf" | "-inf" as text, **rest} if not rest:
                return float(text)
            case {"d": list(items), **rest} if not rest:
                found = {_key(k): self.read(v, depth + 1) for k, v in items}
                if len(found) == len(items):
                    return found
            case {"r": str(name), "v": list(values), **rest} if not rest:
                return RECORDS[name].make(*(self.read(v, depth + 1) for v in values))
            case {"s": inner, **rest} if not rest:
                return sums.decode(_checked(self.read(inner, depth + 1), bytes))
        raise FormatError("expected a known node.")

    def _array(self, dtype: str, shape: list[Any]) -> Any:
        if dtype not in DTYPES or len(shape) > MOST_AXES:
            raise FormatError("expected an array of numbers.")
        if not all(type(n) is int and 0 <= n <= LARGEST for n in shape):
            raise FormatError("expected the shape of an array.")
        kind = np.dtype(dtype)
        found = np.frombuffer(self._take(math.prod(shape) * kind.itemsize), kind).reshape(shape)
        if kind.kind == "b" and found.view(np.uint8).max(initial=0) > 1:
            raise FormatError("expected bits.")
        return found.copy() if shape else found[()]

    def _take(self, size: int) -> memoryview:
        if not 0 <= size <= len(self.data) - self.at:
            raise FormatError("expected as many bytes as were named.")
        self.at += size
        return self.data[self.at - size : self.at]


def reply_to(run: str, seq: int, value: Any) -> bytes:
    """Client: return the frame of an answer."""
    return pack({"run": run, "seq": seq, "v": value})


def refusal(run: str, seq: int, code: str) -> bytes:
    """Client: return the frame of a refusal."""
    return pack({"run": run, "seq": seq, "no": code})


def order_of(data: bytes, run: str) -> tuple[int, str, Any, bytes]:
    """Client: return number, name and content of an order of this run, and what tells it from every other."""
    match unpack(data):
        case {"run": str(found), "seq": int(seq), "op": str(op), "v": value, **rest} if not rest and found == run:
            return seq, op, value, digest(data)
    raise FormatError("expected an order of this run.")


def same(a: Any, b: Any) -> bool:
    """Whether two orders are the same, told without looking into arrays."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[name], b[name]) for name in a)
    return a is b or (type(a) is type(b) and isinstance(a, int | str) and a == b)
