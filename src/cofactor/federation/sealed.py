"""Invites under a passphrase: who finds the file without the word cannot join with it."""

from __future__ import annotations

import base64
import json
import secrets
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from cofactor.types import CofactorError

SALT, NONCE = 16, 12


def seal(value: Any, passphrase: str) -> dict[str, str]:
    """Return a value that can be read with the passphrase only (scrypt, AES-GCM)."""
    salt, nonce = secrets.token_bytes(SALT), secrets.token_bytes(NONCE)
    data = AESGCM(_key(passphrase, salt)).encrypt(nonce, json.dumps(value).encode(), b"cofactor invite")
    return {"sealed": base64.b64encode(salt + nonce + data).decode()}


def opened(value: Any, passphrase: str | None, where: str) -> Any:
    """Return what was sealed; anything else is as it is."""
    if not (isinstance(value, dict) and isinstance(value.get("sealed"), str)):
        return value
    if not passphrase:
        raise CofactorError(f"{where}: expected the passphrase of this invite (--passphrase), found none.")
    try:
        data = base64.b64decode(value["sealed"], validate=True)
        salt, nonce, rest = data[:SALT], data[SALT : SALT + NONCE], data[SALT + NONCE :]
        return json.loads(AESGCM(_key(passphrase, salt)).decrypt(nonce, rest, b"cofactor invite"))
    except (InvalidTag, ValueError):
        raise CofactorError(
            f"{where}: expected the passphrase that the coordinator has set, found another one (or a damaged file). "
            "Nothing was used up: try again."
        ) from None


def _key(passphrase: str, salt: bytes) -> bytes:
    return Scrypt(salt=salt, length=32, n=1 << 15, r=8, p=1).derive(passphrase.encode())
