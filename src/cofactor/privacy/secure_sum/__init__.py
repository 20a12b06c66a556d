"""Secure summation: the server learns the sum of the clients' vectors and nothing else about them.

Double masking after Bonawitz et al. 2017. It holds against an honest-but-curious server together with fewer than t
clients; the sum itself is disclosed. The protocol is unaudited.
"""

from __future__ import annotations

from cofactor.privacy.secure_sum.client import Client
from cofactor.privacy.secure_sum.inline import SecureSum, secure_sum
from cofactor.privacy.secure_sum.keys import new_identity
from cofactor.privacy.secure_sum.messages import Terms, decode, encode
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
    "unpack",
]
