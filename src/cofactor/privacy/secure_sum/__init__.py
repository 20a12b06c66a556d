"""Secure summation: the server learns the sum of the clients' vectors and nothing else about them.

Double masking after Bonawitz et al. 2017. It holds against an honest-but-curious server together with fewer than t
clients; the sum itself is disclosed. The protocol is unaudited.

Names are loaded when they are first used: only some of them need the package ``cryptography`` (extra ``secure``).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cofactor.privacy.secure_sum.client import Client
    from cofactor.privacy.secure_sum.inline import SecureSum, secure_sum
    from cofactor.privacy.secure_sum.keys import new_identity
    from cofactor.privacy.secure_sum.messages import Terms, decode, encode, threshold
    from cofactor.privacy.secure_sum.packing import pack, unpack
    from cofactor.privacy.secure_sum.rules import Phase
    from cofactor.privacy.secure_sum.server import Server

__all__ = [
    "Client",
    "Phase",
    "SecureSum",
    "Server",
    "Terms",
    "decode",
    "encode",
    "new_identity",
    "pack",
    "secure_sum",
    "threshold",
    "unpack",
]

_HOME = {
    "Client": "client",
    "Phase": "rules",
    "SecureSum": "inline",
    "Server": "server",
    "Terms": "messages",
    "decode": "messages",
    "encode": "messages",
    "new_identity": "keys",
    "pack": "packing",
    "secure_sum": "inline",
    "threshold": "messages",
    "unpack": "packing",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
