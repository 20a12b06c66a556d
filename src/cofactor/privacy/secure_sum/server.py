"""The server of secure summation: collects, forwards, and unmasks the sum of those who answered.

It sees public keys, sealed boxes, masked vectors and shares of one secret per client; of the values only the sum.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from itertools import combinations, islice
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
from cofactor.privacy.secure_sum import primitives, shamir
from cofactor.privacy.secure_sum.messages import (
    Agreed,
    Agreement,
    Inbox,
    Masked,
    Roster,
    RoundKeys,
    SealedShare,
    Shares,
    Survivors,
    Terms,
    Unmasking,
)
from cofactor.privacy.secure_sum.rules import (
    Phase,
    check_agreed,
    check_keys,
    check_share,
    pair_masks,
    seed_hash,
    seed_mask,
)
from cofactor.types import Array

_EXPECTED: dict[Phase, type] = {
    Phase.ADVERTISE: RoundKeys,
    Phase.SHARE: Shares,
    Phase.MASK: Masked,
    Phase.AGREE: Agreed,
    Phase.UNMASK: Unmasking,
}
TRIES = 500
"""So many choices of shares are tried to rebuild a secret that some client lies about."""
_AFTER = {Phase.ADVERTISE: Phase.SHARE, Phase.SHARE: Phase.MASK, Phase.MASK: Phase.AGREE, Phase.AGREE: Phase.UNMASK}


class Server:
    """One round: ``receive`` each answer of a phase, ``close`` it for what to send next, ``result`` at the end.

    A refused message leaves the server as it was; :class:`ThresholdError` on close leaves the phase open.
    """

    def __init__(self, terms: Terms, *, registry: Mapping[int, bytes]) -> None:
        self.terms, self.phase = terms, Phase.ADVERTISE
        self._tag, self._registry = terms.tag, dict(registry)
        self._keys: dict[int, RoundKeys] = {}
        self._hashes: dict[int, bytes] = {}  # of the seeds of those who shared
        self._boxes: dict[int, list[SealedShare]] = {c: [] for c in terms.clients}  # by recipient
        self._masked: set[int] = set()
        self._sum = np.zeros(terms.size, dtype=np.uint64)
        self._agreed: dict[int, Agreed] = {}
        self._answers: dict[int, Unmasking] = {}
        self._wrong = Counter[int]()  # shares that do not belong to the others, by who told them

    @property
    def survivors(self) -> tuple[int, ...]:
        """The clients whose values are in the sum."""
        return tuple(sorted(self._masked))

    @property
    def spares(self) -> dict[int, bytes]:
        """The seeds of noise that is not needed, of those who revealed one."""
        return {client: message.spare for client, message in sorted(self._answers.items()) if message.spare}

    @property
    def forgers(self) -> tuple[int, ...]:
        """Who told wrong shares of several secrets; of a single one, its owner may have dealt a wrong share."""
        return tuple(sorted(client for client, count in self._wrong.items() if count > 1))

    def receive(self, message: RoundKeys | Shares | Masked | Agreed | Unmasking) -> None:
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

    def close(self) -> dict[int, Roster | Inbox | Survivors | Agreement]:
        """End the phase and return the next message to each client that is still there; {} after the last phase."""
        if self.phase is Phase.DONE:
            raise OrderError("the round is over.")
        answered = self._answered()
        self._check_enough(answered)
        if self.phase is Phase.UNMASK:
            self._sum = self._unmasked()
            self.phase = Phase.DONE
            return {}
        outgoing = {client: self._next(client) for client in sorted(answered)}
        self.phase = _AFTER[self.phase]
        return outgoing

    def _check_enough(self, answered: Collection[int]) -> None:
        """Refuse to go on with too few clients, or with too few neighbours of one to rebuild its secrets."""
        if len(answered) < self.terms.threshold:
            raise ThresholdError(
                f"phase {self.phase}: answers of at least {self.terms.threshold} clients were expected. "
                f"Found {len(answered)}; the sum stays hidden."
            )
        if self.terms.neighbours is None:
            return
        for client in self._hashes if self._hashes else answered:
            found = sum(holder in answered for holder in self.terms.holders(client))
            if found < self.terms.shares:
                raise ThresholdError(
                    f"phase {self.phase}: answers of at least {self.terms.shares} of the neighbours of client {client} "
                    f"were expected. Found {found}; the sum stays hidden."
                )

    def result(self) -> Array:
        """Return the sum over the survivors (float64)."""
        if self.phase is not Phase.DONE:
            raise OrderError(f"the sum is known after unmasking. The server is in phase {self.phase}.")
        return from_grid(self._sum.view(np.int64))

    def _answered(self) -> Collection[int]:
        done: dict[Phase, Collection[int]] = {
            Phase.ADVERTISE: self._keys,
            Phase.SHARE: self._hashes,
            Phase.MASK: self._masked,
            Phase.AGREE: self._agreed,
            Phase.UNMASK: self._answers,
        }
        return done[self.phase]

    def _invited(self) -> Collection[int]:
        before: dict[Phase, Collection[int]] = {
            Phase.ADVERTISE: self.terms.clients,
            Phase.SHARE: self._keys,
            Phase.MASK: self._hashes,
            Phase.AGREE: self._masked,
            Phase.UNMASK: self._agreed,
        }
        return before[self.phase]

    def _next(self, client: int) -> Roster | Inbox | Survivors | Agreement:
        if self.phase is Phase.ADVERTISE:
            return Roster(self._tag, tuple(self._keys[c] for c in self.terms.holders(client) if c in self._keys))
        if self.phase is Phase.SHARE:
            return Inbox(self._tag, client, tuple(sorted(self._boxes[client], key=lambda box: box.sender)))
        if self.phase is Phase.MASK:
            return Survivors(self._tag, self.survivors)
        signed = [self._agreed[c] for c in self.terms.holders(client) if c in self._agreed]
        return Agreement(self._tag, tuple(signed[: self.terms.shares]))  # more would be checked for nothing

    def _receive_keys(self, message: RoundKeys) -> None:
        check_keys(message, self.terms, self._registry)
        # its neighbours would refuse these, and the blame would be theirs; keys of others it cannot know yet
        primitives.check_exchange((message.seal_key, message.mask_key))
        if message.seal_key == message.mask_key:
            raise DuplicateError(f"client {message.client}: its two round keys are the same.")
        self._keys[message.client] = message

    def _receive_shares(self, message: Shares) -> None:
        wanted = [c for c in self.terms.holders(message.client) if c in self._keys and c != message.client]
        if len(message.seed_hash) != primitives.KEY_BYTES:
            found = len(message.seed_hash)
            raise TruncatedError(f"a seed hash of {primitives.KEY_BYTES} bytes was expected. Found {found}.")
        if len(message.shares) != len(wanted):
            raise ShapeError(f"{len(wanted)} shares were expected. Found {len(message.shares)}.")
        for sealed, peer in zip(sorted(message.shares, key=lambda s: s.recipient), wanted):
            check_share(sealed, self._tag, recipient=peer)
            if sealed.sender != message.client:
                raise MisaddressedError(f"client {message.client} sent a share in the name of {sealed.sender}.")
        self._hashes[message.client] = message.seed_hash
        for sealed in message.shares:
            self._boxes[sealed.recipient].append(sealed)

    def _receive_masked(self, message: Masked) -> None:
        if len(message.words) != 8 * self.terms.size:
            raise ShapeError(f"{8 * self.terms.size} bytes were expected. Found {len(message.words)}.")
        # sums modulo 2^64 need no memory of the single vectors: whoever is in the sum is a survivor
        self._sum += np.frombuffer(message.words, dtype="<u8")
        self._masked.add(message.client)

    def _receive_agreed(self, message: Agreed) -> None:
        check_agreed(message, self.terms, self._registry, self.survivors)
        self._agreed[message.client] = message

    def _receive_unmasking(self, message: Unmasking) -> None:
        held = [c for c in self.terms.holders(message.client) if c in self._hashes]
        wanted = [c for c in held if c in self._masked], [c for c in held if c not in self._masked]
        if ([r.owner for r in message.seeds], [r.owner for r in message.keys]) != wanted:
            raise ShapeError(f"client {message.client}: seeds of {wanted[0]} and keys of {wanted[1]} were expected.")
        if len(message.spare) not in (0, primitives.KEY_BYTES):
            raise TruncatedError(
                f"client {message.client}: a seed of {primitives.KEY_BYTES} bytes, or none, was expected."
            )
        for reveal in message.seeds + message.keys:
            shamir.parse(reveal.share)
        self._answers[message.client] = message

    def _unmasked(self) -> Array:
        """Take off the own masks of the survivors, and what they share with those who dropped out."""
        total, wrong = self._sum.copy(), Counter[int]()
        told = {
            c: ({r.owner: r.share for r in m.keys}, {r.owner: r.share for r in m.seeds})
            for c, m in self._answers.items()
        }
        for owner in self._hashes:
            alive = owner in self._masked
            shares = {c: pair[alive] for c, pair in told.items()}
            secret = self._rebuild(owner, shares, wrong)
            if alive:
                if secret is None:
                    raise ForgedShareError(f"the shares of the seed of client {owner} do not give the announced seed.")
                total -= seed_mask(self.terms, secret, owner)
            else:
                if secret is None:
                    raise ForgedShareError(
                        f"the shares of the mask key of client {owner} do not give its announced key."
                    )
                # what the owner would have added for these masks is what its neighbours have subtracted
                peers = [self._keys[c] for c in self.terms.holders(owner) if c in self._masked]
                total += pair_masks(self.terms, secret, owner, peers)
        self._wrong = wrong
        return total

    def _is_secret(self, owner: int, found: bytes) -> bool:
        """Whether this is the seed that a survivor has announced, or the mask key of one who dropped out."""
        if owner in self._masked:
            return seed_hash(self._tag, found) == self._hashes[owner]
        return primitives.public_of(found) == self._keys[owner].mask_key

    def _rebuild(self, owner: int, told: Mapping[int, Mapping[int, bytes]], wrong: Counter[int]) -> bytes | None:
        """Return the announced secret from the first so many shares that give it; count those that do not fit."""
        holders = dict(enumerate(self.terms.holders(owner), start=1))
        shares = {point: told[c][owner] for point, c in holders.items() if c in told}

        def join(points: tuple[int, ...]) -> bytes | None:
            return shamir.join({x: shares[x] for x in points}, primitives.KEY_BYTES, weights=shamir.weights(points))

        for chosen in islice(_choices(tuple(shares), self.terms.shares), TRIES):
            secret = join(chosen)
            if secret is not None and self._is_secret(owner, secret):
                break
        else:
            return None
        if chosen != tuple(shares)[: self.terms.shares]:
            rest = [point for point in shares if point not in chosen]
            wrong.update(holders[point] for point in rest if join((*chosen[1:], point)) != secret)
        return secret


def _choices(points: tuple[int, ...], count: int) -> Iterator[tuple[int, ...]]:
    """Return choices of so many points: the first ones, then without one of them, without two, and so on."""
    for gone in range(len(points) - count + 1):
        for out in combinations(points[: count + gone - 1], gone):
            yield tuple(point for point in points if point not in out)[:count]


_RECEIVERS: dict[Phase, Any] = {
    Phase.ADVERTISE: Server._receive_keys,
    Phase.SHARE: Server._receive_shares,
    Phase.MASK: Server._receive_masked,
    Phase.AGREE: Server._receive_agreed,
    Phase.UNMASK: Server._receive_unmasking,
}
