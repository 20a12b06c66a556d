"""The server of secure summation: collects, forwards, and unmasks the sum of those who answered.

It sees public keys, sealed boxes, masked vectors and shares of one secret per client; of the values only the sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cofactor.privacy.errors import (
    DuplicateError,
    ForgedShareError,
    MisaddressedError,
    OrderError,
    ReplayError,
    ShapeError,
    ThresholdError,
    TruncatedError,
    UnknownClientError,
)
from cofactor.privacy.grid import from_grid
from cofactor.privacy.secure_sum import keys, shamir
from cofactor.privacy.secure_sum.messages import (
    Inbox,
    Masked,
    Reveal,
    Roster,
    RoundKeys,
    Shares,
    Survivors,
    Terms,
    Unmasking,
)
from cofactor.privacy.secure_sum.rules import Phase, check_keys, check_share, pair_key, seed_hash
from cofactor.types import Array

_EXPECTED: dict[Phase, type] = {
    Phase.ADVERTISE: RoundKeys,
    Phase.SHARE: Shares,
    Phase.MASK: Masked,
    Phase.UNMASK: Unmasking,
}


class Server:
    """One round: ``receive`` each answer of a phase, ``close`` it for what to send next, ``result`` at the end.

    A refused message leaves the server as it was; :class:`ThresholdError` on close leaves the phase open.
    """

    def __init__(self, terms: Terms, *, registry: Mapping[int, bytes]) -> None:
        self.terms, self.phase = terms, Phase.ADVERTISE
        self._tag, self._registry = terms.tag, dict(registry)
        self._keys: dict[int, RoundKeys] = {}
        self._shares: dict[int, Shares] = {}
        self._masked: set[int] = set()
        self._sum = np.zeros(terms.size, dtype=np.uint64)
        self._answers: dict[int, Unmasking] = {}

    @property
    def survivors(self) -> tuple[int, ...]:
        """The clients whose values are in the sum."""
        return tuple(sorted(self._masked))

    def receive(self, message: RoundKeys | Shares | Masked | Unmasking) -> None:
        """Take one client's answer in the current phase."""
        if _EXPECTED.get(self.phase) is not type(message):
            raise OrderError(f"the server is in phase {self.phase}. Found {type(message).__name__}.")
        if message.session != self._tag:
            raise ReplayError(f"the message of client {message.client} belongs to another session.")
        if message.client not in self._invited():
            raise UnknownClientError(f"client {message.client} takes no part in phase {self.phase}.")
        if message.client in self._answered():
            raise DuplicateError(f"client {message.client} has answered in phase {self.phase}.")
        _RECEIVERS[self.phase](self, message)

    def close(self) -> dict[int, Roster | Inbox | Survivors]:
        """End the phase and return the next message to each client that is still there; {} after the last phase."""
        if self.phase is Phase.DONE:
            raise OrderError("the round is over.")
        answered = self._answered()
        if len(answered) < self.terms.threshold:
            raise ThresholdError(
                f"phase {self.phase}: answers of at least {self.terms.threshold} clients were expected. "
                f"Found {len(answered)}; the sum stays hidden."
            )
        if self.phase is Phase.UNMASK:
            self._sum = self._unmasked()
            self.phase = Phase.DONE
            return {}
        outgoing = {client: self._next(client) for client in sorted(answered)}
        self.phase = {Phase.ADVERTISE: Phase.SHARE, Phase.SHARE: Phase.MASK, Phase.MASK: Phase.UNMASK}[self.phase]
        return outgoing

    def result(self) -> Array:
        """Return the sum over the survivors (float64)."""
        if self.phase is not Phase.DONE:
            raise OrderError(f"the sum is known after unmasking. The server is in phase {self.phase}.")
        return from_grid(self._sum.view(np.int64))

    def _answered(self) -> set[int]:
        done: dict[Phase, Any] = {
            Phase.ADVERTISE: self._keys,
            Phase.SHARE: self._shares,
            Phase.MASK: self._masked,
            Phase.UNMASK: self._answers,
        }
        return set(done[self.phase])

    def _invited(self) -> set[int]:
        before: dict[Phase, Any] = {
            Phase.ADVERTISE: self.terms.clients,
            Phase.SHARE: self._keys,
            Phase.MASK: self._shares,
            Phase.UNMASK: self._masked,
        }
        return set(before[self.phase])

    def _next(self, client: int) -> Roster | Inbox | Survivors:
        if self.phase is Phase.ADVERTISE:
            return Roster(self._tag, tuple(self._keys[c] for c in sorted(self._keys)))
        if self.phase is Phase.SHARE:
            boxes = (s for c in sorted(self._shares) for s in self._shares[c].shares if s.recipient == client)
            return Inbox(self._tag, client, tuple(boxes))
        return Survivors(self._tag, self.survivors)

    def _receive_keys(self, message: RoundKeys) -> None:
        check_keys(message, self.terms, self._registry)
        self._keys[message.client] = message

    def _receive_shares(self, message: Shares) -> None:
        wanted = sorted(set(self._keys) - {message.client})
        if len(message.seed_hash) != keys.KEY_BYTES:
            raise TruncatedError(f"a seed hash of {keys.KEY_BYTES} bytes was expected. Found {len(message.seed_hash)}.")
        if len(message.shares) != len(wanted):
            raise ShapeError(f"{len(wanted)} shares were expected. Found {len(message.shares)}.")
        for sealed, peer in zip(sorted(message.shares, key=lambda s: s.recipient), wanted):
            check_share(sealed, self._tag, recipient=peer)
            if sealed.sender != message.client:
                raise MisaddressedError(f"client {message.client} sent a share in the name of {sealed.sender}.")
        self._shares[message.client] = message

    def _receive_masked(self, message: Masked) -> None:
        if len(message.words) != 8 * self.terms.size:
            raise ShapeError(f"{8 * self.terms.size} bytes were expected. Found {len(message.words)}.")
        # sums modulo 2^64 need no memory of the single vectors: whoever is in the sum is a survivor
        self._sum += np.frombuffer(message.words, dtype="<u8")
        self._masked.add(message.client)

    def _receive_unmasking(self, message: Unmasking) -> None:
        wanted = list(self.survivors), sorted(set(self._shares) - self._masked)
        if ([r.owner for r in message.seeds], [r.owner for r in message.keys]) != wanted:
            raise ShapeError(f"client {message.client}: seeds of {wanted[0]} and keys of {wanted[1]} were expected.")
        for reveal in message.seeds + message.keys:
            shamir.parse(reveal.share)
        self._answers[message.client] = message

    def _unmasked(self) -> Array:
        total = self._sum.copy()
        chosen = sorted(self._answers)[: self.terms.threshold]
        lagrange = shamir.weights([self.terms.point(c) for c in chosen])
        for i, owner in enumerate(self.survivors):
            seed = self._rebuild(owner, {c: self._answers[c].seeds[i] for c in chosen}, lagrange)
            if seed is None or seed_hash(self._tag, seed) != self._shares[owner].seed_hash:
                raise ForgedShareError(f"the shares of the seed of client {owner} do not give the announced seed.")
            total -= keys.mask(keys.derive(seed, self._tag, purpose=b"seed", parties=(owner, owner)), total.size)
        for i, owner in enumerate(sorted(set(self._shares) - self._masked)):
            secret = self._rebuild(owner, {c: self._answers[c].keys[i] for c in chosen}, lagrange)
            if secret is None or keys.public_of(secret) != self._keys[owner].mask_key:
                raise ForgedShareError(f"the shares of the mask key of client {owner} do not give its announced key.")
            total += self._stray(owner, secret)
        return total

    def _rebuild(self, owner: int, reveals: dict[int, Reveal], lagrange: dict[int, int]) -> bytes | None:
        shares = {self.terms.point(c): r.share for c, r in reveals.items()}
        return shamir.join(shares, keys.KEY_BYTES, weights=lagrange)

    def _stray(self, owner: int, secret: bytes) -> Array:
        """Return what cancels the masks that survivors share with a client that dropped out."""
        total = np.zeros(self.terms.size, dtype=np.uint64)
        for client in self.survivors:
            stream = keys.mask(pair_key(self._tag, secret, owner, self._keys[client]), total.size)
            total += (
                stream if owner < client else -stream
            )  # survivor u added -stream for u > owner, +stream for u < owner
        return total


_RECEIVERS: dict[Phase, Any] = {
    Phase.ADVERTISE: Server._receive_keys,
    Phase.SHARE: Server._receive_shares,
    Phase.MASK: Server._receive_masked,
    Phase.UNMASK: Server._receive_unmasking,
}
