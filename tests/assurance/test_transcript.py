"""Every byte that private methods send is declared, paid for, on the grid, and the same for any number of rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.helpers.private import built, messages_of
from tests.helpers.transcript import faults

from cofactor import run
from cofactor.methods import catalog
from cofactor.privacy.allowance import Privacy

RECORD, CLIENT = Privacy(1, 1e-6), Privacy(4, 1e-3, "client")
NAMES = {
    "dp-moments": (RECORD, {}),
    "dp-range": (RECORD, {"width": 4}),
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
    return built(name.split(" by ", maxsplit=1)[0], privacy, clients=3, secure=secure, **options)


def as_bytes(messages) -> list[int]:
    return [sum(len(np.asarray(a).tobytes()) for a in m.arrays.values()) for _, m in messages]


@pytest.mark.parametrize("name", NAMES)
def test_every_message_is_as_declared(name: str) -> None:
    method = make(name)
    seen = messages_of(method, data(name, [9, 30, 14]))
    assert {t for t, _ in seen} == set(range(method.rounds))
    for t, message in seen:
        assert faults(message, method.schema(M, t), method.allowance.costs(t)) == []


@pytest.mark.parametrize("name", NAMES)
def test_no_size_depends_on_the_rows(name: str) -> None:
    few, many = (as_bytes(messages_of(make(name), data(name, rows))) for rows in ([9, 12, 10], [50, 400, 10]))
    assert few == many


@pytest.mark.parametrize("name", [n for n in NAMES if make(n).traits.additive])
def test_under_masks_one_sum_of_all_is_seen_in_every_round(name: str) -> None:
    method, seen = make(name, secure=True), []
    run(method, data(name, [9, 30, 14]), secure=True, watch=lambda t, answers: seen.append((t, answers)))
    assert [t for t, _ in seen] == list(range(method.rounds))
    for t, (answer,) in seen:
        np.testing.assert_array_equal(answer.clients, range(3))
        assert answer.message.weight == 3
        plain = answer.message._replace(weight=1.0)
        assert faults(plain, method.schema(M, t), method.allowance.costs(t)) == []


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
    _, message = messages_of(method, data("dp-moments", [9, 30, 14]))[0]
    found = faults(message._replace(**change(message)), method.schema(M, 0), method.allowance.costs(0))
    assert words in "; ".join(found)
