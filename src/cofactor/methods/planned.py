"""A method under a plan: what contradicts what, how many rounds there are, and in which form it takes part in them."""

from __future__ import annotations

import math

from cofactor.method import Method
from cofactor.plan import BY_SHARE, MOST, ROUNDS, ByShare, Plan
from cofactor.privacy.errors import PrivacyError
from cofactor.types import CofactorError

TWICE = "privacy was asked for twice: this method has a budget of its own. Leave one of them out."
NOT_PRIVATE = (
    "privacy is refused: in an asynchronous stream a client sends as many updates as its speed allows, so no plan of "
    "rounds can pay for them beforehand. Run the method in rounds."
)
NO_BUFFER = (
    "secure aggregation of asynchronous updates is refused: the server merges every update as it arrives, without a "
    "buffer of several to add up, so it would see each one. Run the method in rounds."
)


def limit(method: Method, plan: Plan) -> int:
    """Return the most rounds that a method runs under a plan."""
    own = method.rounds
    if own is not None:
        return min(own, plan.rounds or own)
    return plan.rounds or usual(plan, paid=method.traits.allowance is not None, slow=method.traits.slow)


def usual(plan: Plan, *, paid: bool, slow: int = 1) -> int:
    """Return how many rounds there are unless a number is asked for; in ``paid`` ones everything has its price.

    Where some clients answer there are more rounds anyway, and with them more of the steps that ``slow`` ones need.
    """
    ends = plan.rule.tol > 0 and plan.privacy is None and not paid
    return math.ceil(max(MOST / plan.share, MOST * slow) if ends else ROUNDS / plan.share)


def form(method: Method, plan: Plan) -> Method:
    """Return the form of a method that a plan needs: another one, where clients are absent from rounds."""
    if plan.participation == 1 and plan.stream is None:
        return method
    absent = method.partial()
    if isinstance(plan.participation, ByShare) and absent.traits.running:
        return method  # every round estimates the sum over all clients; weighted changes would not add up to it
    return absent


def check(method: Method, plan: Plan) -> None:
    """Refuse a method that a plan contradicts."""
    allowance = method.traits.allowance
    if allowance is not None:
        if plan.privacy not in (None, allowance.privacy):
            raise PrivacyError(TWICE)
        if isinstance(plan.participation, ByShare):
            raise PrivacyError(BY_SHARE)
    if isinstance(plan.participation, ByShare) and not method.traits.additive:
        raise CofactorError("participation: a draw by share needs a method whose messages are summed; found another.")
    if method.traits.complete and method.rounds is not None and limit(method, plan) < method.rounds:
        raise CofactorError(
            f"rounds: this method needs all of its {method.rounds} rounds. Found {plan.rounds}; make it with fewer "
            "iterations instead."
        )
    if plan.stream is not None:
        _check_stream(method, plan)


def _check_stream(method: Method, plan: Plan) -> None:
    """Refuse a method whose clients cannot answer one by one."""
    if method.traits.allowance is not None:
        raise PrivacyError(NOT_PRIVATE)
    if plan.secure:
        raise PrivacyError(NO_BUFFER)
    if method.rounds is not None or len(method.traits.stages) > 1:
        raise CofactorError("a stream needs a method without one-upload rounds. Found one; start it at random.")
    if method.traits.complete:
        raise CofactorError("a stream needs a method whose clients do not wait for each other. Found one of rounds.")
