"""In what words clients of a federation refuse, and how a job ends that cannot go on."""

from __future__ import annotations

from collections.abc import Sequence

from cofactor.types import ClientError

REFUSALS = {
    "format": "what arrived was no order",
    "order": "the order was not the next one, or not what the run allows",
    "method": "its policy does not allow this method",
    "rows": "it has fewer rows than its policy asks for",
    "epsilon": "its policy does not allow so large an epsilon for one run",
    "delta": "its policy does not allow so large a delta for one run",
    "limits": "its policy asks for noise, or for rows that noise keeps to itself: it needs a largest epsilon, too",
    "total": "its policy does not allow more: what all runs together have cost is too much",
    "private": "its policy allows private runs only",
    "secure": "its policy asks for secure summation",
    "keys": "its policy asks for keys that clients have exchanged beforehand, and not all are there",
    "curious": "its policy asks for noise that stays whole with more curious clients",
    "rank": "its policy does not allow so many components",
    "rounds": "its policy does not allow so many rounds, or so large a number in an option of the method",
    "size": "its policy does not allow messages as large as those of this run",
    "ledger": "its ledger over runs cannot be charged; its own log says why",
    "approval": "a person there has not approved the run yet",
    "denied": "a person there has denied the run",
    "terms": "it knows this run by other terms, and a name stands for one run only",
    "disk": "it cannot write what a run needs, since its disk is full",
    "data": "its data cannot be used for this run; its own log says why",
    "changed": "its data are not those that the run began with",
    "states": "it does not hold the states of that round",
    "held": "another job of this run is at work there, and a private run has one at a time; it can be resumed",
    "released": "it has released that round already, and never releases one twice",
    "forged": "keys or shares that it was sent in a secure sum are not what their client signed or sealed",
    "failed": "it failed; its own log says why",
    "version": "it runs another version of cofactor than the coordinator; all need the same (`cofactor --version`)",
    "reply": "its reply was not what the method sends",
}
"""All that a client ever says instead of an answer: fixed texts, nothing of its data, files or errors."""

PAUSED = "the run was asked to pause; it can be resumed."


class Refused(ClientError):
    """A client refuses, for one of the known reasons."""

    def __init__(self, code: str, client: str = "") -> None:
        super().__init__(f"client {client}: {REFUSALS[code]}." if client else REFUSALS[code])
        self.code, self.client = code, client


class Short(ClientError):
    """Too few clients answered to go on; the run can be resumed when they are back."""


class LeftOut(ClientError):
    """Clients were given up whose part stays in the sums of the others: these begin anew without them."""

    def __init__(self, clients: Sequence[str]) -> None:
        super().__init__(f"{', '.join(clients)}: given up; the others begin anew.")
        self.clients = list(clients)


class Unfit(LeftOut):
    """Clients have come late whose data do not fit the run: the others go on without them."""
