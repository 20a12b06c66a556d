"""Which private form a method has, and in what words it is refused one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from cofactor.boolean.space import Boolean
from cofactor.combine.boolean import Ballot, ProximalMean
from cofactor.method import Method
from cofactor.methods.averaged import Averaged
from cofactor.methods.boolean_sweeps import Swept
from cofactor.methods.client_level import ClientLevel
from cofactor.methods.dp_nmf import dp_nmf
from cofactor.methods.fedmavg import FedMAvg
from cofactor.methods.moments import moments
from cofactor.methods.one_shot import OneShot
from cofactor.methods.sketched import Sketched
from cofactor.methods.summed import Summed
from cofactor.methods.syn import Exchanged
from cofactor.privacy.accountant import Unit
from cofactor.privacy.errors import PrivacyError
from cofactor.privacy.plan import Plan, Privacy, Private

RECORD = (
    "unit='record' is refused: this method sends what a local solver found, and no bound is known for how much one "
    "record moves that. Ask for unit='client', or use 'dp-moments' or 'dp-nmf', which send sums over records."
)
START = (
    "privacy is refused: the start of this method reads private data and releases what it saw without noise. "
    "Use start='random' or a public factor."
)
SKETCH = (
    "privacy is refused: a sketch that all parties know is no protection. Its columns are rows or features in plain "
    "sight, and all of the data are recovered after ceil(n/d) rounds. Use 'dp-moments' or 'dp-nmf'."
)
NONE = (
    "privacy is refused: this method has no private form. Use 'dp-moments' or 'dp-nmf', or, with unit='client', a "
    "method that averages factors ('fedavg', 'fedmavg', 'felb', ...) or counts votes ('asso', ...), without sweeps."
)

BOUND = 1.0
"""Default Frobenius clip of a client's update of H, whose rows have norm 1; .3 and 2 were worse at 100 clients."""


def privately(method: Method, privacy: Privacy, *, rounds: int, parts: int = 1) -> Method:
    """Return the private form of a method for a plan of ``rounds`` rounds, or raise :class:`PrivacyError`.

    Exact statistics become :class:`~cofactor.methods.moments.Moments`, for records and for clients. Methods that send
    factors become :class:`~cofactor.methods.client_level.ClientLevel`. ``parts`` is the threshold of secure summation.
    """
    if isinstance(method, Private):
        return method
    if isinstance(method, Swept) and method.sweeps == 0:
        rounds, method = method.first, method.method
    if isinstance(method, Exchanged | Sketched):
        raise PrivacyError(SKETCH)
    if isinstance(method, Summed) and not isinstance(method.space, Boolean):
        if method.warm is not None:
            raise PrivacyError(START)
        return moments(method.rank, privacy=privacy, parts=parts)
    if not _sends_factors(method):
        raise PrivacyError(NONE)
    if privacy.unit is Unit.RECORD:
        raise PrivacyError(RECORD)
    return _client_level(method, privacy, rounds=rounds, parts=parts)


def _sends_factors(method: Method) -> bool:
    if isinstance(method, OneShot):
        return isinstance(method.aggregator, Ballot)
    return isinstance(method, Averaged | FedMAvg)


def _client_level(method: Any, privacy: Privacy, *, rounds: int, parts: int) -> ClientLevel:
    rounds = min(rounds, method.rounds or rounds)
    plan = Plan(privacy, ({"factor": 1.0},) * rounds, parts)
    if isinstance(method, OneShot):
        assert isinstance(method.aggregator, Ballot)
        bits = replace(method, aggregator=Ballot(method.aggregator.rule))  # noisy bits can be counted, not matched
        return ClientLevel(bits, plan=plan, bits=True)
    if isinstance(method, Averaged):
        method = replace(method, common_start=True)  # from a start of its own a client's update is all of its factor
        if isinstance(method.aggregator, ProximalMean):
            method = replace(method, aggregator=replace(method.aggregator, align=None), align=None)
    return ClientLevel(method, plan=plan, bound=privacy.clip or BOUND)


PRIVATE: dict[str, Callable[..., Method]] = {"dp-moments": moments, "dp-nmf": dp_nmf}
"""Makers of the methods that are private by construction, the default first; they take ``privacy``."""
