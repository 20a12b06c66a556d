"""Clients that fail or answer nonsense: an error that names client and round, expected and found."""

import numpy as np
import pytest

from cofactor import run
from cofactor.engines.contract import check_message
from cofactor.engines.inline import Inline
from cofactor.methods import catalog
from cofactor.types import ClientError, CofactorError, Message

SCHEMA = {"factor": (2, 3), "loss": ()}
GOOD = {"factor": np.ones((2, 3)), "loss": np.float64(1)}


class Faulty:
    """A method of which one client misbehaves in round 1, alone or in a batch: the one that holds a certain row."""

    def __init__(self, method, fault, row):
        self.method, self.fault, self.row = method, fault, row

    def held(self, data):
        return (data == self.row).all(axis=1).any()

    def __getattr__(self, name):
        return getattr(self.method, name)

    def step(self, data, shared, local, t, rng):
        local, message = self.method.step(data, shared, local, t, rng)
        return local, self.fault(message) if t == 1 and self.held(data) else message


def spoil(change):
    def fault(message):
        name = next(n for n, a in message.arrays.items() if np.ndim(a))
        return Message({**message.arrays, name: change(message.arrays[name].copy())}, message.weight)

    return fault


def nan(a):
    a.flat[0] = np.nan
    return a


def infinite(a):
    a.flat[1:3] = np.inf
    return a


def crash(message):
    raise ZeroDivisionError("disk on fire")


FAULTS = {
    "NaN": (spoil(nan), "finite.*found 1 NaN"),
    "infinite": (spoil(infinite), "finite.*found 2"),
    "wrong shape": (spoil(lambda a: a[:-1]), "expected .* of shape .*found"),
    "transposed": (spoil(lambda a: a.reshape(-1, 1)), "expected .* of shape .*found"),
    "missing array": (lambda m: Message(dict(list(m.arrays.items())[1:]), m.weight), "expected arrays .*found"),
    "extra array": (lambda m: Message({**m.arrays, "rows": np.ones(17)}, m.weight), "expected arrays .*found.*rows"),
    "negative weight": (lambda m: Message(m.arrays, -1.0), "weight >= 0, found -1"),
    "NaN weight": (lambda m: Message(m.arrays, np.nan), "weight >= 0, found nan"),
    "exception": (crash, "ZeroDivisionError: disk on fire"),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("name", ["exact", "fnmf-lap", "fedavg"])
def test_bad_answer_names_client_and_round(fault, workers, name, clients):
    change, message = FAULTS[fault]
    options = {"start": "random"} if name == "exact" else {"sweeps": 3}
    method = Faulty(catalog.make(name, 3, **options), change, clients[2][5])
    with pytest.raises(ClientError, match=f"^client 2, round 1: .*{message}"):
        run(method, clients, rounds=4, engine=Inline(workers))


@pytest.mark.parametrize("name", ["fedavg", "exact"])
def test_failure_in_join_names_the_client(name, clients):
    class Broken(Faulty):
        def join(self, data, shared, t, rng):
            if self.held(data):
                raise MemoryError("too large")
            return self.method.join(data, shared, t, rng)

    with pytest.raises(ClientError, match=r"^client 1, join: MemoryError: too large"):
        run(Broken(catalog.make(name, 3), None, clients[1][7]), clients)


@pytest.mark.parametrize("name", ["fedavg", "exact"])
def test_failure_in_the_final_refit_names_the_client(name, clients):
    class Broken(Faulty):
        def refit(self, data, factor):
            if self.held(data):
                raise MemoryError("too large")
            return self.method.refit(data, factor)

    with pytest.raises(ClientError, match=r"^client 1, .*MemoryError: too large"):
        run(Broken(catalog.make(name, 3), lambda m: m, clients[1][7]), clients, rounds=2)


def test_cause_of_a_failure_is_kept(clients):
    with pytest.raises(ClientError) as error:
        run(Faulty(catalog.make("fedavg", 3), crash, clients[2][5]), clients, rounds=3)
    assert isinstance(error.value.__cause__, ZeroDivisionError)


def test_good_message_passes():
    check_message(Message(GOOD), SCHEMA, client=0, t=0)
    check_message(Message(GOOD, 0.0), SCHEMA, client=0, t=0)


BAD = {
    "missing": ({"factor": np.ones((2, 3))}, 1.0, r"expected arrays \['factor', 'loss'\], found \['factor'\]"),
    "unknown": ({**GOOD, "X": np.ones(2)}, 1.0, r"found \['X', 'factor', 'loss'\]"),
    "shape": ({**GOOD, "factor": np.ones((3, 2))}, 1.0, r"'factor' of shape \(2, 3\), found \(3, 2\)"),
    "scalar": ({**GOOD, "loss": np.ones(1)}, 1.0, r"'loss' of shape \(\), found \(1,\)"),
    "NaN": ({**GOOD, "loss": np.float64("nan")}, 1.0, "finite numbers in 'loss', found 1 NaN or infinite"),
    "infinite": ({**GOOD, "factor": np.full((2, 3), np.inf)}, 1.0, "finite numbers in 'factor', found 6"),
    "weight": (GOOD, -2.0, "a weight >= 0, found -2"),
    "infinite weight": (GOOD, np.inf, "a weight >= 0, found inf"),
}


@pytest.mark.parametrize("name", BAD)
def test_check_message_names_client_round_expected_and_found(name):
    arrays, weight, text = BAD[name]
    with pytest.raises(ClientError, match=f"^client 4, round 9: expected .*{text}|^client 4, round 9: {text}"):
        check_message(Message(arrays, weight), SCHEMA, client=4, t=9)


def test_client_errors_are_value_errors():
    assert issubclass(ClientError, CofactorError)
    assert issubclass(ClientError, ValueError)
