"""Messages of the right form of which nothing can be made: their client is named, and the others go on."""

import numpy as np
import pytest
from tests.helpers.federation import blocks, flare_over
from tests.helpers.private import built, privacy

from cofactor import run
from cofactor.engines.flare_clients import Patience
from cofactor.engines.flare_format import pack, unpack
from cofactor.engines.flare_refusals import REFUSALS
from cofactor.engines.merging import spoilers
from cofactor.methods import catalog
from cofactor.methods.shrunk import denoised
from cofactor.plan import Plan
from cofactor.types import ClientError, CofactorError, Message, Shared

RUNS = {
    "oneshot": {},
    "exact": {},
    "exact-beta": {},
    "shared-own": {},
    "consensus": {"starts": 20},
}


def negative(message):
    return message._replace(arrays={name: -1.0 - a for name, a in message.arrays.items()})


def huge(message):
    return message._replace(arrays={name: np.full_like(a, 1e150) for name, a in message.arrays.items()})


WRONG = [("oneshot", negative), *((name, huge) for name in RUNS)]


def of(client, change):
    """Change what one client replies to its steps."""

    def tamper(name, frame, reply):
        order, found = unpack(frame), unpack(reply)
        if name != client or order["op"] != "step":
            return reply
        answer = change(found["v"]["answer"])
        return pack({**found, "v": {**found["v"], "answer": answer}})

    return tamper


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "change"), WRONG, ids=lambda value: value if isinstance(value, str) else value.__name__
)
def test_a_message_that_cannot_be_merged_is_not_used_and_its_client_is_named(name, change):
    """A negative factor, or one of 1e150, ended the whole run in words of other software, which named nobody; or honest
    clients were named, who could not go on from what was made of it."""
    Xs, told = blocks(), []
    method, plan = catalog.make(name, 3, **RUNS[name]), Plan(rounds=3, seed=1)
    more = {"patience": Patience(silence=5, least=3), "tell": lambda c, what: told.append((c, what))}
    engine, _ = flare_over(method, Xs, plan, tamper=of("c2", change), **more)
    found = run(method, Xs, plan, engine=engine)
    assert np.isfinite(found.factor).all()
    assert {c for c, _ in told} == {"c2"}
    assert {what for _, what in told} == {REFUSALS["reply"]}
    assert min(line.participants for line in found.history) == 3


class Picky:
    """A method that makes nothing of numbers above 1e100."""

    def __init__(self, method):
        self.method = method

    def __getattr__(self, name):
        return getattr(self.method, name)

    def aggregate(self, shared, messages, t):
        if max(np.abs(message.arrays["factor"]).max() for message in messages) > 1e100:
            raise ValueError("no")
        return self.method.aggregate(shared, messages, t)


def test_a_step_whose_message_was_not_used_is_taken_back():
    Xs, plan = blocks(), Plan(rounds=4, seed=1)
    tamper, patience = of("c2", lambda m: huge(m) if tampered.pop() else m), Patience(silence=5, least=3)
    tampered, orders = [False, True, False, True], []
    method = Picky(catalog.make("fedavg", 3, sweeps=3))
    engine, desks = flare_over(method, Xs, plan, tamper=tamper, patience=patience)
    step = desks["c2"].ops["step"]
    desks["c2"].ops["step"] = lambda value: orders.append(value["counted"]) or step(value)
    history = run(method, Xs, plan, engine=engine).history
    assert [line.participants for line in history] == [3, 4, 3, 4]
    assert orders == [-1, -1, 1, 1]


@pytest.mark.parametrize("name", ["oneshot", "exact"])
def test_where_all_are_one_program_the_error_names_the_client(name, clients):
    class Wrong(Picky):
        def step(self, data, shared, local, t, rng):
            local, message = self.method.step(data, shared, local, t, rng)
            return local, huge(message) if np.array_equal(data, clients[2]) else message

        def aggregate(self, shared, messages, t):
            return self.method.aggregate(shared, messages, t)

    with pytest.raises(ClientError, match=r"^client 2, round 0: expected a message that can be merged, found one"):
        run(Wrong(catalog.make(name, 3)), clients)


def test_what_is_wrong_with_all_messages_is_the_fault_of_none(clients):
    with pytest.raises(CofactorError, match=r"^density: expected a threshold"):
        run(catalog.make("consensus", 3, starts=5, density=1e-9), clients)


class Sum:
    """A method that makes nothing of less than two messages, or of numbers that add up to more than 10."""

    def aggregate(self, shared, messages, t):
        found = sum(message.arrays["a"] for message in messages)
        if len(messages) < 2 or found > 10:
            raise ValueError("no")
        return Shared(np.array([[found]]))


@pytest.mark.parametrize(
    ("numbers", "found"), [([1, 2, 20.0, 3], [2]), ([1, 20, 20], []), ([6, 6.0, 6], []), ([4, 5, 3], [0, 1, 2])]
)
def test_who_spoils_a_round_is_whoever_the_others_can_do_without(numbers, found):
    messages = [Message({"a": np.float64(number)}) for number in numbers]
    assert spoilers(Sum(), Shared(np.zeros((1, 1))), messages, 0) == found


@pytest.mark.parametrize("name", ["dp-moments", "dp-range", "dp-nmf"])
@pytest.mark.parametrize("number", [-1e149, 1e149, -1e12])
def test_sums_of_a_private_run_that_no_rows_have_lead_no_honest_client_astray(name, number):
    """They took all memory of the server, or made states that the others refused, who were named."""
    Xs, told = blocks(), []
    method = built(name, privacy(), rounds=3 if name == "dp-nmf" else None)

    def change(message):
        return message._replace(arrays={name: np.full_like(a, number) for name, a in message.arrays.items()})

    more = {"patience": Patience(silence=5, least=3), "tell": lambda c, what: told.append(c)}
    plan = Plan(seed=1, privacy=privacy())
    engine, _ = flare_over(method, Xs, plan, tamper=of("c2", change), **more)
    assert np.isfinite(run(method, Xs, plan, engine=engine).factor).all()
    assert set(told) <= {"c2"}


def test_a_client_of_a_private_run_counts_once():
    Xs, method, plan = blocks(), built("dp-moments", privacy()), Plan(seed=1, privacy=privacy())
    engine, _ = flare_over(method, Xs, plan, tamper=of("c2", lambda message: message._replace(weight=7.0)))
    with pytest.raises(ClientError, match=r"^client 2, round 0: expected a weight of 1, found 7"):
        run(method, Xs, plan, engine=engine)


def test_what_noise_leaves_of_hostile_numbers_takes_no_more_memory():
    np.testing.assert_allclose(denoised(np.array([-1e12, 30.0]), 1.0), [0.0, 30.0], atol=0.01)
