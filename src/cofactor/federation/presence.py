"""One name is one client: a folder that was copied to a second place is noticed before the two evict each other.

While `cofactor join` runs it says now and then, at the door where clients become members, from which place; it signs
that with the key of its certificate. A place is a hash of the machine and the folder: nothing else is told of them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import platform
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from cofactor.federation import kits
from cofactor.types import CofactorError

EVERY, GONE = 20.0, 60.0
"""Seconds between two signs of life, and after the last one of a place until another one is let in."""
MACHINE = Path("/etc/machine-id")
Ask = Callable[[dict[str, str]], int]
"""Carries what a client says to the door; returns the status that comes back. OSError where nobody answers."""


def place(home: Path) -> str:
    """Return what tells this machine and folder from every other, and says nothing else of them."""
    number = MACHINE.read_text(encoding="utf-8") if MACHINE.exists() else ""
    return hashlib.sha256(json.dumps([number, platform.node(), str(home.resolve())]).encode()).hexdigest()


def sign(home: Path, client: str, *, here: bool = True) -> dict[str, str]:
    """Client: return what it says at the door: that it is here, or that it goes."""
    key = kits.read_key(home / "startup" / "client.key")
    public = kits.der_of(key.public_key())
    told = {"client": client, "place": place(home), "state": "here" if here else "gone"}
    signature = key.sign(_words(told), padding.PKCS1v15(), hashes.SHA256())
    return {**told, "public": base64.b64encode(public).decode(), "signature": base64.b64encode(signature).decode()}


def _words(told: dict[str, str]) -> bytes:
    return json.dumps([told["client"], told["place"], told["state"]]).encode()


class _Seen(NamedTuple):
    key: str
    place: str
    at: float


class Places:
    """Server: from where every client spoke last."""

    def __init__(self) -> None:
        self.seen: dict[str, _Seen] = {}

    def hear(self, asked: dict[str, Any], enrolled: dict[str, str]) -> tuple[int, dict[str, str]]:
        """Note a sign of life of a client that has a certificate; refuse one of the same key from another place."""
        match asked:
            case {"client": str(client), "place": str(where), "state": "here" | "gone" as state, **rest}:
                key = _signer(asked, rest)
                if key is not None and enrolled.get(client) == key:
                    return self._note(client, _Seen(key, where, time.monotonic()), here=state == "here")
        return 403, {"error": "expected a sign of life of a client of this federation"}

    def _note(self, client: str, now: _Seen, *, here: bool) -> tuple[int, dict[str, str]]:
        last = self.seen.get(client)
        if last is not None and last.key == now.key and last.place != now.place and now.at - last.at < GONE:
            return 409, {"error": "this client takes part from another place"}
        if here:
            self.seen[client] = now
        else:
            self.seen.pop(client, None)
        return 200, {}


def _signer(told: dict[str, Any], rest: dict[str, Any]) -> str | None:
    """Return the hash of the public key that has signed this."""
    try:
        public, signature = (base64.b64decode(rest[name], validate=True) for name in ("public", "signature"))
        found = serialization.load_der_public_key(public)
        if not isinstance(found, rsa.RSAPublicKey):
            return None
        found.verify(signature, _words(told), padding.PKCS1v15(), hashes.SHA256())
    except (InvalidSignature, ValueError, TypeError, KeyError):
        return None
    return hashlib.sha256(public).hexdigest()


@contextmanager
def shown(home: Path, client: str, ask: Ask) -> Iterator[None]:
    """Client: be here for a while; refuse to begin while a copy of this folder is, elsewhere. A closed door is none."""
    if _status(ask, sign(home, client)) == 409:
        raise CofactorError(
            f"{home}: expected to be the only folder of client {client}, but a copy of it takes part from another "
            "machine or folder; the two would evict each other. Stop that one first (this one can begin then, or "
            f"{GONE:.0f} s after that one was lost), or ask the coordinator for an invite of another name."
        )
    over = threading.Event()

    def tell() -> None:
        while not over.wait(EVERY):
            _status(ask, sign(home, client))

    threading.Thread(target=tell, daemon=True).start()
    try:
        yield
    finally:
        over.set()
        _status(ask, sign(home, client, here=False))


def _status(ask: Ask, told: dict[str, str]) -> int:
    with suppress(OSError):
        return ask(told)
    return 0
