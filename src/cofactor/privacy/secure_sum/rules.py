"""What client and server both check and derive in secure summation."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from enum import StrEnum

import numpy as np

from cofactor.privacy.errors import (
    DuplicateError,
    MisaddressedError,
    ReplayError,
    ThresholdError,
    TruncatedError,
    UnknownClientError,
)
from cofactor.privacy.secure_sum import primitives, shamir
from cofactor.privacy.secure_sum.messages import Agreed, RoundKeys, SealedShare, Terms
from cofactor.types import Array

BOX_BYTES = 2 * shamir.SHARE_BYTES + primitives.TAG_BYTES


class Phase(StrEnum):
    """What is due next."""

    ADVERTISE = "advertise"
    SHARE = "share"
    MASK = "mask"
    AGREE = "agree"
    UNMASK = "unmask"
    DONE = "done"


def check_roster(
    listed: tuple[RoundKeys, ...], terms: Terms, registry: Mapping[int, bytes], *, client: int
) -> dict[int, RoundKeys]:
    """Return the keys of a client's neighbours; refuses too few, doubled, strange, replayed or unsigned ones."""
    found: dict[int, RoundKeys] = {}
    near = set(terms.holders(client))
    for item in listed:
        check_keys(item, terms, registry)
        if item.client in found:
            raise DuplicateError(f"the keys of client {item.client} are listed twice.")
        if item.client not in near:
            raise UnknownClientError(f"client {item.client} is no neighbour of client {client}.")
        found[item.client] = item
    if len(found) < terms.shares:
        raise ThresholdError(f"keys of at least {terms.shares} clients were expected. Found {len(found)}.")
    publics = [k for item in found.values() for k in (item.seal_key, item.mask_key)]
    if len(set(publics)) != len(publics):
        raise DuplicateError("two round keys are the same.")
    return dict(sorted(found.items()))


def check_keys(item: RoundKeys, terms: Terms, registry: Mapping[int, bytes]) -> None:
    """Refuse round keys of another session, of no participant, or without its signature."""
    if item.session != terms.tag:
        raise ReplayError(f"the keys of client {item.client} belong to another session.")
    terms.check(item.client)
    if item.client not in registry:
        raise UnknownClientError(f"no long-term key is registered for client {item.client}.")
    pair = (item.seal_key, item.mask_key)
    primitives.verify(registry[item.client], terms.tag, client=item.client, words=pair, signature=item.signature)


def check_agreed(item: Agreed, terms: Terms, registry: Mapping[int, bytes], survivors: Sequence[int]) -> None:
    """Refuse the signature of another session, of no survivor, or under other survivors."""
    if item.session != terms.tag:
        raise ReplayError(f"the signature of client {item.client} belongs to another session.")
    if item.client not in survivors or item.client not in registry:
        raise UnknownClientError(f"client {item.client} is no survivor with a long-term key.")
    words = (listed(survivors),)
    primitives.verify(registry[item.client], terms.tag, client=item.client, words=words, signature=item.signature)


def listed(survivors: Sequence[int]) -> bytes:
    """Return the hash of a list of survivors that is signed."""
    return hashlib.sha256(b"cofactor survivors 1" + struct.pack(f">{len(survivors)}q", *sorted(survivors))).digest()


def check_share(sealed: SealedShare, tag: bytes, *, recipient: int) -> None:
    """Refuse a sealed share of another session, to another address, or of the wrong length."""
    if sealed.session != tag:
        raise ReplayError(f"the share of client {sealed.sender} belongs to another session.")
    if sealed.recipient != recipient:
        raise MisaddressedError(f"a share for client {recipient} was expected. Found one for {sealed.recipient}.")
    if len(sealed.box) != BOX_BYTES:
        raise TruncatedError(f"a sealed share of {BOX_BYTES} bytes was expected. Found {len(sealed.box)}.")


def pair_masks(terms: Terms, secret: bytes, client: int, peers: Sequence[RoundKeys]) -> Array:
    """Return what a client adds for the masks that it shares with others: ``sum_{u < v} PRG(s_uv) - sum_{v < u} ...``.

    From the secret of one and the public keys of the others, modulo 2^64.
    """
    total = np.zeros(terms.size, dtype=np.uint64)
    for peer, shared in zip(peers, primitives.agree(secret, [p.mask_key for p in peers]), strict=True):
        pair = (min(client, peer.client), max(client, peer.client))
        stream = primitives.mask(primitives.derive(shared, terms.tag, purpose=b"pair", parties=pair), terms.size)
        np.add(total, stream, out=total) if client < peer.client else np.subtract(total, stream, out=total)
    return total


def seed_mask(terms: Terms, seed: bytes, client: int) -> Array:
    """Return the mask that a client has for itself: ``PRG(b_u)``."""
    key = primitives.derive(seed, terms.tag, purpose=b"seed", parties=(client, client))
    return primitives.mask(key, terms.size)


def seed_hash(tag: bytes, seed: bytes) -> bytes:
    """Return the commitment to a seed that lets the server notice wrong shares of it."""
    return hashlib.sha256(b"cofactor seed 1" + tag + seed).digest()


def address(tag: bytes, sender: int, recipient: int) -> bytes:
    """Return (session, from, to): the associated data of a sealed share."""
    return tag + struct.pack(">2q", sender, recipient)
