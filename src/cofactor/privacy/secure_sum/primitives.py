"""The cryptography of secure summation, all of it from the ``cryptography`` package (extra ``secure``).

X25519 agreement, HKDF-SHA256 derivation, ChaCha20 masks, ChaCha20-Poly1305 boxes, Ed25519 signatures. Every derived
key is bound to the session tag and its purpose, and is used once.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable

import numpy as np

from cofactor.privacy.errors import ForgedShareError, MissingExtraError, SignatureError
from cofactor.types import Array

try:
    from cryptography.exceptions import InvalidSignature, InvalidTag, UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
        load_ssh_private_key,
        load_ssh_public_key,
    )
except ImportError as error:
    raise MissingExtraError("cryptography", extra="secure", purpose="secure summation") from error

KEY_BYTES = 32
TAG_BYTES = 16
_NONCE = bytes(12)  # a key seals one box only, so its nonce may be constant
_ANY = bytes(KEY_BYTES)  # every private key agrees on zero with a point of small order


def new_identity() -> tuple[bytes, bytes]:
    """Return a long-term Ed25519 key pair of a client: (private, public)."""
    private = Ed25519PrivateKey.generate()
    return private.private_bytes_raw(), private.public_key().public_bytes_raw()


def private_text(private: bytes) -> bytes:
    """Return a long-term private key as OpenSSH writes it, without a password."""
    key = Ed25519PrivateKey.from_private_bytes(private)
    return key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())


def read_private_text(text: bytes) -> tuple[bytes, bytes]:
    """Return (private, public) of an OpenSSH key without a password; ValueError if it is no such Ed25519 key."""
    try:
        key = load_ssh_private_key(text, password=None)
    except (UnsupportedAlgorithm, TypeError) as error:  # a password, or another kind of key
        raise ValueError(str(error)) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError("another kind of key")
    return key.private_bytes_raw(), key.public_key().public_bytes_raw()


def public_text(public: bytes) -> str:
    """Return a long-term public key as OpenSSH writes it: ``ssh-ed25519 AAAA...``."""
    key = Ed25519PublicKey.from_public_bytes(public)
    return key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def read_public_text(text: str) -> bytes:
    """Return the key of ``ssh-ed25519 AAAA...``; ValueError if it is none."""
    try:
        key = load_ssh_public_key(text.encode())
    except UnsupportedAlgorithm as error:
        raise ValueError(str(error)) from None
    if not isinstance(key, Ed25519PublicKey):
        raise ValueError("another kind of key")
    return key.public_bytes_raw()


def new_exchange() -> tuple[bytes, bytes]:
    """Return an X25519 key pair of one round: (private, public)."""
    private = X25519PrivateKey.generate()
    return private.private_bytes_raw(), private.public_key().public_bytes_raw()


def public_of(private: bytes) -> bytes:
    """Return the public part of an X25519 key."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def sign(private: bytes, tag: bytes, *, client: int, words: tuple[bytes, ...]) -> bytes:
    """Sign what a client says in this session, in words of 32 bytes: its two round keys, or a hash of survivors."""
    return Ed25519PrivateKey.from_private_bytes(private).sign(_signed(tag, client, words))


def verify(public: bytes, tag: bytes, *, client: int, words: tuple[bytes, ...], signature: bytes) -> None:
    """Raise :class:`SignatureError` unless the client with this long-term key signed these words."""
    try:
        if any(len(word) != KEY_BYTES for word in words):
            raise InvalidSignature
        Ed25519PublicKey.from_public_bytes(public).verify(signature, _signed(tag, client, words))
    except (InvalidSignature, ValueError):
        what = "round keys" if len(words) > 1 else "survivors"
        raise SignatureError(f"the {what} of client {client} are not signed by its long-term key.") from None


def agree(private: bytes, publics: Iterable[bytes]) -> list[bytes]:
    """Return the X25519 secrets that a client shares with others; they must be passed on to :func:`derive`."""
    own = X25519PrivateKey.from_private_bytes(private)  # half the price of an agreement: once for all of them
    try:
        return [own.exchange(X25519PublicKey.from_public_bytes(public)) for public in publics]
    except ValueError:
        raise SignatureError("a round key is no valid X25519 key.") from None


def check_exchange(publics: Iterable[bytes]) -> None:
    """Raise :class:`SignatureError` for a round key of small order: what others share with it is known to all."""
    agree(_ANY, publics)


def derive(secret: bytes, tag: bytes, *, purpose: bytes, parties: tuple[int, int]) -> bytes:
    """Return a 32-byte key for one purpose between two parties: HKDF-SHA256 salted with the session tag."""
    info = b"cofactor secure sum 1 " + purpose + struct.pack(">2q", *parties)
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=tag, info=info).derive(secret)


def seal(key: bytes, data: bytes, *, context: bytes) -> bytes:
    """Encrypt and authenticate data together with its context (ChaCha20-Poly1305)."""
    return ChaCha20Poly1305(key).encrypt(_NONCE, data, context)


def unseal(key: bytes, box: bytes, *, context: bytes) -> bytes:
    """Return the data of a box; :class:`ForgedShareError` if box, key and context do not belong together."""
    try:
        return ChaCha20Poly1305(key).decrypt(_NONCE, box, context)
    except (InvalidTag, ValueError):
        raise ForgedShareError(
            "a share fails its authentication: it was changed, or meant for another address."
        ) from None


def mask(key: bytes, size: int) -> Array:
    """Return ``size`` pseudo-random 64-bit words: the ChaCha20 stream of the key."""
    return np.frombuffer(stream(key)(8 * size), dtype="<u8")


def stream(key: bytes) -> Callable[[int], bytes]:
    """Return what gives the next n bytes of the ChaCha20 stream of a key, which must have no other use."""
    encryptor = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()
    return lambda n: encryptor.update(bytes(n))


def _signed(tag: bytes, client: int, words: tuple[bytes, ...]) -> bytes:
    return b"cofactor signed 2" + tag + struct.pack(">2q", client, len(words)) + b"".join(words)
