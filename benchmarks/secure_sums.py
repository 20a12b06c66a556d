"""What secure summation costs: CPU time of a client, and of the server, in one round.

python benchmarks/secure_sums.py                   # 5, 20, 100, 200 and 1000 clients, 20 000 numbers each
python benchmarks/secure_sums.py 200 --absent 20   # with clients that drop out before they send their numbers
"""

from __future__ import annotations

import argparse
import secrets
import time
from typing import Any, NamedTuple

import numpy as np

from cofactor.privacy.secure_sum.neighbours import bound
from cofactor.privacy.secure_sum.protocol import Members, add_up, terms_of
from cofactor.privacy.secure_sum.rules import Phase
from cofactor.types import Message

CLIENTS = (5, 20, 100, 200, 1000)


class Cost(NamedTuple):
    """CPU milliseconds of one client and of the server in a round, and the bytes that a client sends."""

    client: float
    server: float
    sent: float


def measure(clients: int, size: int, absent: int = 0) -> Cost:
    """Carry one round in this process; all clients share one core, so that times are CPU times."""
    values, schema = np.random.default_rng(0).normal(size=size), {"values": (size,)}
    members = Members(range(clients))
    members.bring(dict.fromkeys(range(clients), Message({"values": values})), schema)
    terms = terms_of(secrets.token_bytes(16), tuple(range(clients)), size + 1)
    spent = 0.0

    def ask(phase: Phase, inbox: dict[int, Any]) -> dict[int, bytes]:
        nonlocal spent
        here = {c: message for c, message in inbox.items() if phase is not Phase.MASK or c >= absent}
        begun = time.process_time()
        heard = members.answer(terms, members.publics, here)
        spent += time.process_time() - begun
        return heard

    begun = time.process_time()
    found = add_up(terms, members.publics, ask)
    whole = time.process_time() - begun
    assert len(found.survivors) == clients - absent
    np.testing.assert_allclose(found.total[1:], len(found.survivors) * values, atol=1e-4)
    return Cost(1e3 * spent / clients, 1e3 * (whole - spent), found.sent / clients)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clients", nargs="*", type=int, default=CLIENTS)
    parser.add_argument("--size", type=int, default=20_000, help="numbers that each client adds")
    parser.add_argument("--absent", type=int, default=0, help="clients that drop out before they send their numbers")
    given = parser.parse_args()
    measure(3, 10)  # imports and caches
    print("| clients | neighbours | may collude | ms a client | ms of the server, over clients | kB a client |")
    print("|---|---|---|---|---|---|")
    for clients in given.clients:
        cost, known = measure(clients, given.size, given.absent), bound(clients)
        print(
            f"| {clients} | {known.neighbours} | {known.colluders} | {cost.client:.1f} | "
            f"{cost.server / clients:.1f} | {cost.sent / 1e3:.0f} |"
        )


if __name__ == "__main__":
    main()
