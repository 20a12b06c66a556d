"""Every byte that private methods send is declared, paid for, on the grid, and the same for any number of rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cofactor import run
from cofactor.engines.inline import Inline
from cofactor.engines.secure import Secure
from cofactor.methods import catalog
from cofactor.privacy import transcript
from cofactor.privacy.plan import Privacy
from cofactor.types import Message

RECORD, CLIENT = Privacy(1, 1e-6), Privacy(4, 1e-3, "client")
NAMES = {
    "dp-moments": (RECORD, {}),
    "dp-nmf": (RECORD, {}),
    "exact": (CLIENT, {}),
    "dp-nmf by client": (CLIENT, {}),
    "fnmf-lap": (CLIENT, {"sweeps": 2}),
    "fedavg": (CLIENT, {"sweeps": 2}),
    "fedprox": (CLIENT, {"sweeps": 2}),
    "fedmavg": (CLIENT, {}),
    "syn-sd": (CLIENT, {}),
    "felb": (CLIENT, {"rounds": 3, "sweeps": 0}),
    "falb": (CLIENT, {"rounds": 3, "sweeps": 0}),
    "asso": (CLIENT, {"sweeps": 0}),
    "grecond": (CLIENT, {"sweeps": 0}),
}
M = 10


def data(name: str, rows: list[int]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    bits = name in catalog.names("boolean")
    return [(rng.random((n, M)) < 0.4).astype(np.uint8) if bits else rng.random((n, M)) for n in rows]


def make(name: str, *, secure: bool = False):
    privacy, options = NAMES[name]
    setting = {"participants": 3, "rounds": 3, "privacy": privacy, "secure": secure}
    return catalog.make_for(name.split(" by ", maxsplit=1)[0], 3, options, **setting)


def recorded(method, Xs, engine=None) -> list[tuple[int, Message]]:
    """Run and keep every message."""
    found: list[tuple[int, Message]] = []
    run(method, Xs, rounds=method.rounds, engine=engine, watch=lambda t, rs: found.extend((t, r.message) for r in rs))
    return found


def as_bytes(messages) -> list[int]:
    return [sum(len(np.asarray(a).tobytes()) for a in m.arrays.values()) for _, m in messages]


@pytest.mark.parametrize("name", NAMES)
def test_every_message_is_as_declared(name: str) -> None:
    method = make(name)
    seen = recorded(method, data(name, [9, 30, 14]))
    assert {t for t, _ in seen} == set(range(method.rounds))
    for t, message in seen:
        assert transcript.faults(message, method.schema(M, t), method.plan.costs(t)) == []


@pytest.mark.parametrize("name", NAMES)
def test_no_size_depends_on_the_rows(name: str) -> None:
    few, many = (as_bytes(recorded(make(name), data(name, rows))) for rows in ([9, 12, 10], [50, 400, 10]))
    assert few == many


@pytest.mark.parametrize("name", [n for n in NAMES if make(n).additive])
def test_under_masks_only_a_sum_and_empty_messages_are_seen(name: str) -> None:
    method = make(name, secure=True)
    seen = recorded(method, data(name, [9, 30, 14]), Secure(Inline()))
    for t, message in seen:
        paid = bool(message.cost)
        assert paid is (message.weight == 0.0)
        assert not paid or not any(np.any(a) for a in message.arrays.values())
        plain = message._replace(weight=1.0) if paid else message
        assert transcript.faults(plain, method.schema(M, t), method.plan.costs(t) if paid else None) == []


BROKEN = {
    "an array more": (lambda m: {"arrays": {**m.arrays, "rows": np.zeros(3)}}, "'rows' was not declared"),
    "an array less": (lambda m: {"arrays": {}}, "'sum' was declared and not sent"),
    "one number per row": (lambda m: {"arrays": {**m.arrays, "sum": np.zeros(30)}}, "has shape (30,)"),
    "too many bytes": (lambda m: {"arrays": {**m.arrays, "sum": np.zeros(M, np.longdouble)}}, "bytes were sent"),
    "no real numbers": (lambda m: {"arrays": {**m.arrays, "sum": np.zeros(M, complex)}}, "dtype complex128"),
    "other precision": (lambda m: {"arrays": {**m.arrays, "sum": np.zeros(M, np.float32)}}, "are float64"),
    "off the grid": (lambda m: {"arrays": {**m.arrays, "sum": m.arrays["sum"] + 1e-9}}, "is not on the grid"),
    "not finite": (lambda m: {"arrays": {**m.arrays, "sum": np.full(M, np.nan)}}, "is not on the grid"),
    "rows in the weight": (lambda m: {"weight": 30.0}, "the weight is 30 and not 1"),
    "nothing paid": (lambda m: {"cost": {}}, "has paid None"),
    "too little paid": (
        lambda m: {"cost": {n: r._replace(cost=replace(r.cost, multiplier=1.0)) for n, r in m.cost.items()}},
        "has paid Cost(",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_the_audit_catches(name: str) -> None:
    change, words = BROKEN[name]
    method = make("dp-moments")
    _, message = recorded(method, data("dp-moments", [9, 30, 14]))[0]
    found = transcript.faults(message._replace(**change(message)), method.schema(M, 0), method.plan.costs(0))
    assert words in "; ".join(found)
