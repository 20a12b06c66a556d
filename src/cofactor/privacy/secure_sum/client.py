"""A client of secure summation (Bonawitz et al. 2017, "Practical secure aggregation", protocol of figure 4).

Client u with fresh secrets (mask key s_u, seed b_u) sends, modulo 2^64,
``y_u = x_u + PRG(b_u) + sum_{u < v} PRG(s_uv) - sum_{v < u} PRG(s_uv)``, over its neighbours v. Each check comes
before the first change of state, so a refused message leaves the client as it was.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

import numpy as np

from cofactor.privacy.errors import (
    DuplicateError,
    MisaddressedError,
    OrderError,
    ReplayError,
    RevealError,
    ShapeError,
    ThresholdError,
    UnknownClientError,
)
from cofactor.privacy.grid import to_grid
from cofactor.privacy.secure_sum import primitives, shamir
from cofactor.privacy.secure_sum.messages import (
    Agreed,
    Agreement,
    Inbox,
    Masked,
    Reveal,
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
    address,
    check_agreed,
    check_roster,
    check_share,
    listed,
    pair_masks,
    seed_hash,
    seed_mask,
)
from cofactor.types import Array

_EXPECTED: dict[Phase, type] = {
    Phase.ADVERTISE: type(None),
    Phase.SHARE: Roster,
    Phase.MASK: Inbox,
    Phase.AGREE: Survivors,
    Phase.UNMASK: Agreement,
}


class Client:
    """One client in one round: ``advertise -> share -> mask -> agree -> unmask``, each once and in this order.

    ``identity`` is the client's long-term private key, ``registry`` the long-term public keys of all clients. Before it
    reveals anything it has seen that as many others as rebuild a secret were told of the same survivors: with fewer
    than ``2 t - c`` colluders no two lists of survivors find so many. ``spare`` is the seed of noise in its values that
    is not needed where nobody drops out; then, and only then, it is revealed.
    """

    def __init__(
        self, terms: Terms, client: int, *, identity: bytes, registry: Mapping[int, bytes], spare: bytes = b""
    ) -> None:
        terms.check(client)
        self._spare, self._survivors = spare, tuple[int, ...]()
        self.terms, self.client, self.phase = terms, client, Phase.ADVERTISE
        self._tag, self._identity, self._registry = terms.tag, identity, dict(registry)
        self._seal_secret, self._seal_public = primitives.new_exchange()
        self._mask_secret, self._mask_public = primitives.new_exchange()
        self._seed = secrets.token_bytes(primitives.KEY_BYTES)
        self._roster: dict[int, RoundKeys] = {}
        self._agreed: dict[int, bytes] = {}  # peer -> what both of us know, for sealed shares
        self._held: dict[int, tuple[bytes, bytes]] = {}  # owner -> shares of its mask key and of its seed

    def answer(self, message: Any, values: Array) -> Any:
        """Return the answer that is due next; ``message`` is the server's last one, None at first."""
        if self.phase is Phase.ADVERTISE:
            return self.advertise()
        if self.phase is Phase.SHARE:
            return self.share(message)
        if self.phase is Phase.MASK:
            return self.mask(message, values)
        return self.agree(message) if self.phase is Phase.AGREE else self.unmask(message)

    def advertise(self) -> RoundKeys:
        """Return the signed public keys of this round."""
        self._expect(Phase.ADVERTISE)
        public = (self._seal_public, self._mask_public)
        signature = primitives.sign(self._identity, self._tag, client=self.client, words=public)
        self.phase = Phase.SHARE
        return RoundKeys(self._tag, self.client, *public, signature)

    def share(self, roster: Roster) -> Shares:
        """Check the keys of the neighbours; return shares of both secrets, sealed for each of them."""
        self._expect(Phase.SHARE, roster)
        peers = check_roster(roster.keys, self.terms, self._registry, client=self.client)
        mine = peers.pop(self.client, None)
        if mine is None or (mine.seal_key, mine.mask_key) != (self._seal_public, self._mask_public):
            raise UnknownClientError(f"the roster does not list client {self.client} with its own keys.")
        agreed = dict(zip(peers, primitives.agree(self._seal_secret, [p.seal_key for p in peers.values()])))
        pairs = self._split()
        sealed = tuple(self._seal(v, agreed[v], pairs[v]) for v in peers)
        self._roster, self._agreed, self._held = peers, agreed, {self.client: pairs[self.client]}
        self.phase = Phase.MASK
        return Shares(self._tag, self.client, seed_hash(self._tag, self._seed), sealed)

    def mask(self, inbox: Inbox, values: Array) -> Masked:
        """Open the shares of the peers; return the values under all masks."""
        self._expect(Phase.MASK, inbox)
        held = self._open(inbox)
        words = self._fixed(values)
        words += seed_mask(self.terms, self._seed, self.client)
        words += pair_masks(self.terms, self._mask_secret, self.client, [self._roster[peer] for peer in held])
        self._held |= held
        self.phase = Phase.AGREE
        return Masked(self._tag, self.client, words.astype("<u8", copy=False).tobytes())

    def agree(self, survivors: Survivors) -> Agreed:
        """Check the survivors, and sign them: they are the only ones under which this client will reveal anything."""
        self._expect(Phase.AGREE, survivors)
        alive = set(survivors.clients)
        if len(alive) != len(survivors.clients):
            raise DuplicateError("a survivor is listed twice.")
        near = alive.intersection(self.terms.holders(self.client))
        if not (near <= set(self._held) and alive <= set(self.terms.clients)) or self.client not in alive:
            raise UnknownClientError("survivors must be clients that shared their keys, this one among them.")
        for found, least in ((alive, self.terms.threshold), (near, self.terms.shares)):
            if len(found) < least:
                raise ThresholdError(f"at least {least} survivors were expected. Found {len(found)}.")
        signature = primitives.sign(self._identity, self._tag, client=self.client, words=(listed(survivors.clients),))
        self._survivors, self.phase = survivors.clients, Phase.UNMASK
        return Agreed(self._tag, self.client, signature)

    def unmask(self, agreement: Agreement) -> Unmasking:
        """Return a share of the seed of each survivor and of the mask key of each other client, never both of one."""
        if self.phase is Phase.DONE:
            raise RevealError("this client has answered; a second answer could reveal both secrets of a peer.")
        self._expect(Phase.UNMASK, agreement)
        near = {item.client for item in agreement.signed} & set(self.terms.holders(self.client))
        if len(near) != len(agreement.signed) or len(near) < self.terms.shares:
            raise ThresholdError(f"{self.terms.shares} signatures of neighbours were expected. Found {len(near)}.")
        for item in agreement.signed:
            check_agreed(item, self.terms, self._registry, self._survivors)
        alive = set(self._survivors)
        seeds = tuple(Reveal(v, pair[1]) for v, pair in sorted(self._held.items()) if v in alive)
        gone = tuple(Reveal(v, pair[0]) for v, pair in sorted(self._held.items()) if v not in alive)
        self.phase = Phase.DONE
        spare = self._spare if alive == set(self.terms.clients) else b""
        return Unmasking(self._tag, self.client, seeds, gone, spare)

    def _expect(self, phase: Phase, message: Roster | Inbox | Survivors | Agreement | None = None) -> None:
        if self.phase is not phase or type(message) is not _EXPECTED[phase]:
            found = phase if message is None else type(message).__name__
            raise OrderError(f"client {self.client} is to {self.phase} next. Found {found}.")
        if message is not None and message.session != self._tag:
            raise ReplayError(f"client {self.client}: the message belongs to another session.")

    def _split(self) -> dict[int, tuple[bytes, bytes]]:
        """Return for every holder its shares of the mask key and of the seed."""
        holders, least = self.terms.holders(self.client), self.terms.shares
        both = [shamir.split(secret, least, points=len(holders)) for secret in (self._mask_secret, self._seed)]
        return dict(zip(holders, zip(*both, strict=True), strict=True))

    def _seal(self, peer: int, agreed: bytes, pair: tuple[bytes, bytes]) -> SealedShare:
        key = primitives.derive(agreed, self._tag, purpose=b"box", parties=(self.client, peer))
        box = primitives.seal(key, b"".join(pair), context=address(self._tag, self.client, peer))
        return SealedShare(self._tag, self.client, peer, box)

    def _open(self, inbox: Inbox) -> dict[int, tuple[bytes, bytes]]:
        if inbox.recipient != self.client:
            raise MisaddressedError(f"client {self.client} got the shares of client {inbox.recipient}.")
        held: dict[int, tuple[bytes, bytes]] = {}
        for sealed in inbox.shares:
            check_share(sealed, self._tag, recipient=self.client)
            if sealed.sender in held:
                raise DuplicateError(f"client {sealed.sender} sent two shares to client {self.client}.")
            if sealed.sender not in self._roster or sealed.sender == self.client:
                raise UnknownClientError(f"client {sealed.sender} did not advertise keys in this round.")
            way = (sealed.sender, self.client)
            key = primitives.derive(self._agreed[sealed.sender], self._tag, purpose=b"box", parties=way)
            data = primitives.unseal(key, sealed.box, context=address(self._tag, *way))
            pair = (data[: shamir.SHARE_BYTES], data[shamir.SHARE_BYTES :])
            for part in pair:
                shamir.parse(part)
            held[sealed.sender] = pair
        if len(held) + 1 < self.terms.shares:
            raise ThresholdError(f"shares of {self.terms.shares} clients were expected. Found {len(held) + 1}.")
        return held

    def _fixed(self, values: Array) -> Array:
        x = np.asarray(values)
        if x.shape != (self.terms.size,):
            raise ShapeError(f"a vector of {self.terms.size} values was expected. Found shape {x.shape}.")
        return to_grid(x, parts=len(self.terms.clients)).view(np.uint64)
