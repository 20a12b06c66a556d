"""What clients find in the end, added up under masks: the server knows how good a run is, and of no client how good."""

from __future__ import annotations

from typing import Any

import numpy as np

from cofactor.engines.host import Host
from cofactor.privacy.errors import ShapeError
from cofactor.types import Array, Message

MOST = 32
"""Numbers that a client may say in the end: every message has room for so many, and they are as long."""
BASE, DIGITS = 2.0**24, (2, 1, 0, -1)
"""Under masks numbers travel as multiples of 2^-24, up to 2^38 over the number of clients; errors of some runs are
larger, or finer. So each travels as digits to this base: from 2^-48 to 2^72, for thousands of clients."""
SCHEMA = {"found": (2 + len(DIGITS) * MOST,)}
"""How many clients there are, how many numbers all have said together, and the digits."""


def bring_found(host: Host) -> dict[int, bytes]:
    """Host: be ready to add up what the clients here have found, once; say who they are.

    A second sum, over others, would tell by its difference what one client has found.
    """
    found = {j: told(own) for j, own in host.kept.pop("found", {}).items() if own is not None}
    host.kept["members"].bring(found, SCHEMA)
    return dict.fromkeys(found, b"")


def told(found: Any) -> Message:
    """Return the message of one client, whose numbers (flat) add up over clients."""
    numbers = np.asarray(found, dtype=np.float64)
    if numbers.ndim != 1 or len(numbers) > MOST or not np.isfinite(numbers).all():
        raise ShapeError(f"at most {MOST} finite numbers were expected in the end. Found others.")
    digits, left = np.zeros((len(DIGITS), MOST)), numbers
    for i, power in enumerate(DIGITS):
        digits[i, : len(numbers)] = np.trunc(left / BASE**power) if power > DIGITS[-1] else left / BASE**power
        left = left - digits[i, : len(numbers)] * BASE**power
    return Message({"found": np.concatenate([[1.0, float(len(numbers))], digits.ravel()])})


def total(sums: Message) -> Array:
    """Return the numbers of all clients added up."""
    clients, said, *digits = sums.arrays["found"]
    numbers = np.array([BASE**power for power in DIGITS]) @ np.reshape(digits, (len(DIGITS), MOST))
    return numbers[: round(said / max(clients, 1.0))]
