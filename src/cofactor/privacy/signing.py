"""Keys that sign ledgers: Ed25519 of ``cryptography`` (extra ``secure``), in files that only their owners can read."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cofactor.privacy.errors import MissingExtraError

AFTER_A_LEAK = (
    "they can sign lines too: compare the last hash with one that was kept elsewhere, and begin the next run, or the "
    "next ledger, with a new key"
)


@dataclass(frozen=True)
class Key:
    """A private key, and what follows from it."""

    private: bytes = field(repr=False)

    @property
    def public(self) -> str:
        """The public key, in hexadecimal."""
        return _ed25519().Ed25519PrivateKey.from_private_bytes(self.private).public_key().public_bytes_raw().hex()

    @property
    def secret(self) -> bytes:
        """A secret that tells data apart (:func:`cofactor.privacy.account.tag`): of its own, so that it may be told."""
        return hmac.digest(self.private, b"cofactor ledger: data", hashlib.sha256)

    def sign(self, digest: str) -> str:
        """Return the signature of a digest, in hexadecimal."""
        return _ed25519().Ed25519PrivateKey.from_private_bytes(self.private).sign(_words(digest)).hex()


def signed(public: str, digest: str, signature: Any) -> bool:
    """Whether the owner of a public key has signed a digest."""
    ed25519 = _ed25519()
    from cryptography.exceptions import InvalidSignature

    try:
        key = ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
        key.verify(bytes.fromhex(signature), _words(digest))
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def make(path: Path) -> Key:
    """Make a key, ``NAME.key`` for its owner alone; one that is there is never written over."""
    _ed25519()
    from cofactor.privacy.secure_sum import keys

    return load(keys.make(path.parent, path.stem))


def load(path: Path) -> Key:
    """Read a key; one that others can read is no secret, and is refused."""
    _ed25519()
    from cofactor.privacy.secure_sum import keys

    return Key(keys.read_private(path, AFTER_A_LEAK).private)


def _words(digest: str) -> bytes:
    """What is signed: nothing that another protocol would take for its own."""
    return b"cofactor ledger 1 " + digest.encode()


def _ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise MissingExtraError("cryptography", extra="secure", purpose="a signed ledger") from error
    return ed25519
