"""The messages of secure summation: plain integers and bytes, with a length-prefixed wire format and no pickle.

A message is one tag byte and its fields in order: integers as 8 bytes, bytes and tuples with an 8-byte length.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property, partial
from typing import Any

from cofactor.privacy.errors import ParameterError, TruncatedError, UnknownClientError
from cofactor.privacy.secure_sum.neighbours import check_enough, circle, threshold

Reader = Callable[[memoryview, int], tuple[Any, int]]
"""(bytes, position) -> (value, next position)."""


@dataclass(frozen=True)
class Terms:
    """What all agree on before a round: a session name that is never used again, the clients, the vector size.

    ``threshold`` clients must answer. Everybody masks with everybody, or, if it is given, with so many ``neighbours``,
    of whom ``shares`` must put theirs together to rebuild a secret: fewer learn nothing of it.
    """

    session: bytes
    clients: tuple[int, ...]
    size: int
    neighbours: int | None = None
    shares: int = 0

    def __post_init__(self) -> None:
        check_enough(len(self.clients))
        if list(self.clients) != sorted(set(self.clients)) or self.clients[0] < 0:
            raise ParameterError("client numbers must be different, not negative and in ascending order.")
        if self.size < 1:
            raise ParameterError(f"the vector must have at least one value. Found {self.size}.")
        if self.neighbours is None:
            object.__setattr__(self, "shares", self.threshold)
            return
        if self.neighbours % 2 or not 0 < self.neighbours < len(self.clients) - 1:
            raise ParameterError(
                f"an even number of neighbours below {len(self.clients) - 1} was expected. Found {self.neighbours}."
            )
        if not 1 < self.shares <= self.neighbours:
            raise ParameterError(f"between 2 and {self.neighbours} shares were expected. Found {self.shares}.")

    @cached_property
    def threshold(self) -> int:
        """The number of clients that must answer."""
        return threshold(len(self.clients))

    @cached_property
    def tag(self) -> bytes:
        """A hash of all terms; carried by every message, so none fits into another session."""
        sizes = len(self.session), len(self.clients), self.size, self.neighbours or 0, self.shares
        body = struct.pack(f">{len(self.clients)}Q", *self.clients)
        return hashlib.sha256(b"cofactor secure sum 3" + struct.pack(">5Q", *sizes) + body + self.session).digest()

    def check(self, client: int) -> None:
        """Refuse a client that takes no part."""
        if client not in self._places:
            raise UnknownClientError(f"client {client} is no participant of this round.")

    def holders(self, client: int) -> tuple[int, ...]:
        """Return who holds a share of a client's secrets, in ascending order: its neighbours and itself.

        A share is the value of a polynomial at 1, 2, ... in this order.
        """
        self.check(client)
        if self.neighbours is None:
            return self.clients
        count, place, half = len(self.clients), self._places[client], self.neighbours // 2
        return tuple(sorted(self._circle[(place + step) % count] for step in range(-half, half + 1)))

    @cached_property
    def _circle(self) -> tuple[int, ...]:
        return self.clients if self.neighbours is None else circle(self.tag, self.clients)

    @cached_property
    def _places(self) -> dict[int, int]:
        return {client: place for place, client in enumerate(self._circle)}


@dataclass(frozen=True)
class RoundKeys:
    """Client to all: fresh public keys (X25519) for sealing and for masking, signed by its long-term key (Ed25519)."""

    session: bytes
    client: int
    seal_key: bytes
    mask_key: bytes
    signature: bytes


@dataclass(frozen=True)
class Roster:
    """Server to client: the keys of its neighbours who advertised, and its own."""

    session: bytes
    keys: tuple[RoundKeys, ...]


@dataclass(frozen=True)
class SealedShare:
    """One client to another, through the server: shares of two secrets that only the recipient can open."""

    session: bytes
    sender: int
    recipient: int
    box: bytes


@dataclass(frozen=True)
class Shares:
    """Client to server: one sealed share per peer, and the hash of its mask seed."""

    session: bytes
    client: int
    seed_hash: bytes
    shares: tuple[SealedShare, ...]


@dataclass(frozen=True)
class Inbox:
    """Server to client: the sealed shares addressed to it."""

    session: bytes
    recipient: int
    shares: tuple[SealedShare, ...]


@dataclass(frozen=True)
class Masked:
    """Client to server: its masked vector, little-endian 64-bit words."""

    session: bytes
    client: int
    words: bytes


@dataclass(frozen=True)
class Survivors:
    """Server to clients: whose masked vectors arrived."""

    session: bytes
    clients: tuple[int, ...]


@dataclass(frozen=True)
class Agreed:
    """Client to server: its signature (Ed25519) under the survivors that it was told of."""

    session: bytes
    client: int
    signature: bytes


@dataclass(frozen=True)
class Agreement:
    """Server to client: the signatures of those who hold shares with it, under one list of survivors."""

    session: bytes
    signed: tuple[Agreed, ...]


@dataclass(frozen=True)
class Reveal:
    """A share of one secret of ``owner``."""

    owner: int
    share: bytes


@dataclass(frozen=True)
class Unmasking:
    """Client to server: shares of the seeds of survivors and of the masking keys of those who dropped out.

    ``spare`` is the seed of noise that is not needed, where nobody dropped out; otherwise it is empty.
    """

    session: bytes
    client: int
    seeds: tuple[Reveal, ...]
    keys: tuple[Reveal, ...]
    spare: bytes


KINDS: tuple[type, ...] = (
    RoundKeys,
    Roster,
    SealedShare,
    Shares,
    Inbox,
    Masked,
    Survivors,
    Agreed,
    Agreement,
    Reveal,
    Unmasking,
)
_CODE = {kind: i for i, kind in enumerate(KINDS)}


def encode(message: Any) -> bytes:
    """Return the bytes of a message."""
    parts = [bytes([_CODE[type(message)]])]
    parts += [_pack(getattr(message, f.name)) for f in fields(message)]
    return b"".join(parts)


def decode(data: bytes) -> Any:
    """Return the message; :class:`TruncatedError` for anything that is not exactly one message."""
    message, end = _message(memoryview(data), 0)
    if end != len(data):
        raise TruncatedError(f"a message of {end} bytes was expected. Found {len(data)}.")
    return message


def _pack(value: Any) -> bytes:
    if isinstance(value, int):
        return struct.pack(">q", value)
    if isinstance(value, bytes):
        return struct.pack(">Q", len(value)) + value
    items = [_pack(v) if isinstance(v, int) else encode(v) for v in value]
    return struct.pack(">Q", len(items)) + b"".join(items)


def _message(data: memoryview, at: int, kind: type | None = None) -> tuple[Any, int]:
    code = bytes(_take(data, at, 1))[0]
    # items of a tuple have one kind and no tuples of their own, so hostile bytes cannot nest deeper
    if code >= len(KINDS) or kind not in (None, KINDS[code]):
        raise TruncatedError(f"a message of kind {kind.__name__ if kind else 'any'} was expected. Found tag {code}.")
    values, at = [], at + 1
    for field in fields(KINDS[code]):
        value, at = _READERS[str(field.type)](data, at)
        values.append(value)
    return KINDS[code](*values), at


def _int(data: memoryview, at: int) -> tuple[int, int]:
    return struct.unpack(">q", _take(data, at, 8))[0], at + 8


def _bytes(data: memoryview, at: int) -> tuple[bytes, int]:
    (length,) = struct.unpack(">Q", _take(data, at, 8))
    return bytes(_take(data, at + 8, length)), at + 8 + length


def _tuple(item: Reader) -> Reader:
    def read(data: memoryview, at: int) -> tuple[Any, int]:
        (count,) = struct.unpack(">Q", _take(data, at, 8))
        values, at = [], at + 8
        for _ in range(count):
            value, at = item(data, at)
            values.append(value)
        return tuple(values), at

    return read


def _take(data: memoryview, at: int, length: int) -> memoryview:
    if at + length > len(data):
        raise TruncatedError(f"a message of at least {at + length} bytes was expected. Found {len(data)}.")
    return data[at : at + length]


_READERS: dict[str, Reader] = {
    "int": _int,
    "bytes": _bytes,
    "tuple[int, ...]": _tuple(_int),
    "tuple[RoundKeys, ...]": _tuple(partial(_message, kind=RoundKeys)),
    "tuple[SealedShare, ...]": _tuple(partial(_message, kind=SealedShare)),
    "tuple[Reveal, ...]": _tuple(partial(_message, kind=Reveal)),
    "tuple[Agreed, ...]": _tuple(partial(_message, kind=Agreed)),
}
