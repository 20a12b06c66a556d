"""The flare engine over a wire of calls: the inline result through bytes, faults that it survives, and hostile ones."""

import random
import threading
import time

import numpy as np
import pytest
from tests.helpers.federation import blocks, flare_over
from tests.helpers.methods import NAMES, ROUNDS, case

from cofactor import run
from cofactor.engines import flare_clients
from cofactor.engines.checkpoint import Checkpoint
from cofactor.engines.flare import Flare
from cofactor.engines.flare_clients import Patience
from cofactor.engines.flare_format import FormatError, pack, unpack
from cofactor.engines.flare_member import Desk
from cofactor.engines.flare_refusals import REFUSALS, LeftOut, Refused, Short
from cofactor.engines.named import named
from cofactor.methods import catalog
from cofactor.methods.build import Facts, build
from cofactor.plan import ByShare, Plan, Stream
from cofactor.privacy.accountant import Cost, Mechanism
from cofactor.privacy.allowance import Privacy
from cofactor.privacy.secure_sum.messages import Terms
from cofactor.types import CofactorError, Message, Shared

FEDERATED = [name for name in NAMES if not (name.startswith("dsanls") or case(name).kind == "blocks")]


@pytest.mark.parametrize("name", FEDERATED)
@pytest.mark.parametrize("participation", [1.0, 0.6])
def test_every_method_gives_the_inline_factor_through_bytes(name, participation):
    _, method, Xs = case(name)
    plan = Plan(rounds=ROUNDS if method.rounds is None else None, seed=5, participation=participation)
    engine, _ = flare_over(method, Xs, plan)
    here, there = run(method, Xs, plan), run(method, Xs, plan, engine=engine)
    np.testing.assert_allclose(there.factor, here.factor, rtol=0, atol=1e-9)
    np.testing.assert_allclose([r.loss for r in there.history], [r.loss for r in here.history], rtol=1e-9)
    assert [r.bytes_down for r in there.history] == [r.bytes_down for r in here.history]
    assert there.codes == []  # they stay with the clients


def test_secure_sums_give_the_factor_and_show_no_message():
    seen = []

    def look(client, frame, reply):
        seen.append(unpack(reply))
        return reply

    Xs = blocks()
    method, plan = catalog.make("exact", 3, start="random"), Plan(rounds=6, seed=1, secure=True)
    engine, _ = flare_over(method, Xs, plan, tamper=look)
    there = run(method, Xs, plan, engine=engine)
    here = run(method, Xs, Plan(rounds=6, seed=1))
    np.testing.assert_allclose(there.factor, here.factor, rtol=0, atol=1e-5)
    steps = [reply["v"] for reply in seen if isinstance(reply["v"], dict) and "answer" in reply["v"]]
    assert len(steps) == 24
    assert not any(isinstance(step["answer"], Message) for step in steps)


class Gone:
    """Client 3 is gone from one order of round 3 on: its step, or what it is asked for next (keys, masks, shares)."""

    def __init__(self, order):
        self.order, self.count, self.over = order, None, False

    def __call__(self, client, frame, reply):
        order = unpack(frame)
        if client != "c3" or order["op"] == "ping":
            return None if client == "c3" and self.over else reply
        if order["op"] == "step" and order["v"]["t"] == 3:
            self.count = 0
        elif self.count is not None:
            self.count += 1
        self.over = self.over or (self.count is not None and self.count >= self.order)
        return None if self.over else reply


@pytest.mark.parametrize(
    ("name", "order"), [*(("exact", i) for i in range(8)), ("fedavg", 0), ("fedavg", 4), ("fedavg", 6)]
)
def test_a_client_that_is_lost_in_any_phase_of_a_secure_sum(name, order, tmp_path, monkeypatch):
    """Its step counts if its message is in the sum, and else for neither side: the run goes on to the quiet factor."""
    for what, seconds in (("LOOK", 0.01), ("AGAIN", 0.02), ("PING", 0.05)):
        monkeypatch.setattr(flare_clients, what, seconds)
    Xs, start = blocks((12, 9, 15, 11, 10), features=8), {"start": "random"} if name == "exact" else {}
    method = catalog.make(name, 3, **start)
    plan, gone, checkpoint = Plan(rounds=8, seed=1, secure=True), Gone(order), Checkpoint(tmp_path / "server.npz")
    engine, _ = flare_over(method, Xs, plan, keep=tmp_path, tamper=gone, patience=Patience(silence=0.3))
    with pytest.raises(Short):
        run(method, Xs, plan, engine=engine, checkpoint=checkpoint)
    assert gone.over
    engine, _ = flare_over(method, Xs, plan, keep=tmp_path)
    found = run(method, Xs, plan, engine=engine, checkpoint=checkpoint)
    np.testing.assert_allclose(found.factor, run(method, Xs, plan).factor, rtol=0, atol=1e-5)
    engine, _ = flare_over(method, Xs, plan, tamper=Gone(order), patience=Patience(silence=0.3, least=3))
    if name == "exact":  # its part would stay in the sums
        with pytest.raises(LeftOut, match="c3: given up; the others begin anew"):
            run(method, Xs, plan, engine=engine)
        return
    counts = [line.participants for line in run(method, Xs, plan, engine=engine).history]
    assert (counts[:3], set(counts[3:])) == ([5, 5, 5], {4} if order < 5 else {5, 4})


def test_what_masks_and_honest_clients_rest_on_travels_whole():
    """Terms with neighbours, and costs that assume honest clients: a private secure run through bytes pays them."""
    terms = Terms(b"name", tuple(range(12)), 5, 6, 4)
    assert unpack(pack(terms)) == terms
    assert unpack(pack(terms)).tag == terms.tag
    cost = Cost(Mechanism.GAUSSIAN, 2.0, honest=3)
    assert unpack(pack(cost)) == cost
    Xs = blocks()
    method, plan = build("exact", 3, Plan(privacy=Privacy(8.0, 1e-3), secure=True), Facts(len(Xs)))
    engine, _ = flare_over(method, Xs, plan)
    assert run(method, Xs, plan, engine=engine).ledger.spend().honest == 2


def test_a_client_of_a_secure_run_never_sends_a_message_in_the_open():
    Xs = blocks()
    method = catalog.make("exact", 3, start="random")
    engine, _ = flare_over(method, Xs, Plan(rounds=3, secure=True))
    with pytest.raises(Refused, match="secure summation"):
        run(method, Xs, Plan(rounds=3), engine=engine)  # a server that forgets the masks


def test_a_stream_is_answered_in_real_time():
    Xs = blocks()
    method, plan = catalog.make("asyn-sd", 3), Plan(stream=Stream(24))
    engine, _ = flare_over(method, Xs, plan)
    found = run(method, Xs, plan, engine=engine)
    assert len(found.arrivals) == 24
    assert {a.client for a in found.arrivals} == {0, 1, 2, 3}
    assert found.history[-1].loss < found.history[0].loss


def test_a_run_goes_on_from_its_checkpoint_to_the_same_bits(tmp_path):
    Xs = blocks()
    method, plan = catalog.make("exact", 3), Plan(rounds=8, seed=1)
    whole = run(method, Xs, plan)
    checkpoint = Checkpoint(tmp_path / "server.npz")
    engine, _ = flare_over(method, Xs, plan, keep=tmp_path)
    run(method, Xs, plan, engine=engine, checkpoint=checkpoint, callbacks=[lambda line, shared: line.round == 4])
    engine, _ = flare_over(method, Xs, plan, keep=tmp_path)  # new processes everywhere
    rest = run(method, Xs, plan, engine=engine, checkpoint=checkpoint)
    np.testing.assert_array_equal(rest.factor, whole.factor)
    assert sorted(p.name for p in (tmp_path / "0").iterdir()) == ["after-7.npz", "after-8.npz"]


def test_a_client_that_lost_its_states_makes_the_run_begin_anew(tmp_path):
    Xs, told = blocks(), []
    method, plan = catalog.make("exact", 3), Plan(rounds=6, seed=1)
    checkpoint = Checkpoint(tmp_path / "server.npz")
    engine, _ = flare_over(method, Xs, plan, keep=tmp_path)
    run(method, Xs, plan, engine=engine, checkpoint=checkpoint, callbacks=[lambda line, shared: line.round == 3])
    for file in (tmp_path / "2").iterdir():
        file.unlink()
    engine, _ = flare_over(method, Xs, plan, keep=tmp_path, tell=lambda c, what: told.append((c, what)))
    rest = run(method, Xs, plan, engine=engine, checkpoint=checkpoint)
    np.testing.assert_array_equal(rest.factor, run(method, Xs, plan).factor)
    assert told == [("c2", "has lost its state; the run begins anew")]


class Lossy:
    """Replies that are lost now and then: the order is sent again, and carried out once."""

    def __init__(self, every):
        self.every, self.count = every, 0

    def __call__(self, client, frame, reply):
        self.count += 1
        return None if self.count % self.every == 0 else reply


def test_lost_replies_change_nothing():
    Xs = blocks()
    method, plan = catalog.make("exact", 3, start="random"), Plan(rounds=3, seed=1, participation=0.5)
    engine, _ = flare_over(method, Xs, plan, tamper=Lossy(4), patience=Patience(silence=60))
    np.testing.assert_array_equal(run(method, Xs, plan, engine=engine).factor, run(method, Xs, plan).factor)


@pytest.mark.parametrize("name", ["exact", "fedavg"])
def test_a_late_answer_counts_for_neither_side(name, monkeypatch):
    """Client 3 sleeps in round 2 until the deadline is over: its step is taken back, as if it had not been asked."""
    monkeypatch.setattr(flare_clients, "PING", 60.0)  # else the answer, which is only held back, is asked for again
    Xs, told, over = blocks(), [], threading.Event()
    method = catalog.make(name, 3, **({"start": "random"} if name == "exact" else {}))
    plan = Plan(rounds=5, seed=1)
    late = threading.Event()

    def sleep(client, frame, reply):
        value = unpack(frame)["v"]
        if client == "c3" and isinstance(value, dict) and value.get("t") == 2 and not late.is_set():
            late.set()
            over.wait(60)
        return reply

    def tell(client, what):
        told.append((client, what))
        over.set()

    more = {"patience": Patience(silence=30, deadline=3.0, least=3), "tell": tell}
    engine, _ = flare_over(method, Xs, plan, tamper=sleep, **more)
    found = run(method, Xs, plan, engine=engine)
    assert [r.participants for r in found.history] == [4, 4, 3, 4, 4]
    assert told[0] == ("c3", "took longer than 3 s; the others go on")
    assert told[-1] == ("c3", "answers again")


def test_a_run_that_is_to_pause_waits_for_nobody_who_is_silent():
    Xs, told = blocks(), []
    method, plan = catalog.make("exact", 3, start="random"), Plan(rounds=6, seed=1)
    more = {"patience": Patience(silence=600), "tell": lambda c, what: told.append((c, what))}
    engine, _ = flare_over(method, Xs, plan, tamper=lambda c, frame, reply: None if c == "c1" else reply, **more)
    engine.clients.stop = lambda: bool(told)
    with pytest.raises(Short, match="the run was asked to pause"):
        run(method, Xs, plan, engine=engine)
    assert told == [("c1", "does not answer")]


@pytest.mark.parametrize("comes", [True, False])
def test_who_is_not_there_at_the_start_is_named_before_it_is_given_up(comes, monkeypatch):
    monkeypatch.setattr(flare_clients, "LATE", 0.1)
    told = []

    def tamper(client, frame, reply):
        return reply if client != "c2" or (comes and told) else None

    more = {"patience": Patience(start=60.0 if comes else 0.6, least=2), "tell": lambda c, what: told.append((c, what))}
    plan, method = Plan(rounds=1, seed=0), catalog.make("fedavg", 2)
    engine, _ = flare_over(method, blocks((6, 7, 5)), plan, tamper=tamper, **more)
    if comes:
        engine.clients.meet()
    else:
        with pytest.raises(LeftOut, match="c2"):
            engine.clients.meet()
    assert told == [("c2", f"is not there yet; the run waits for it, at most {engine.clients.patience.start:g} s")]


def test_silence_is_noticed_and_too_few_answers_end_the_job_not_the_run(tmp_path):
    Xs, told = blocks(), []
    method, plan = catalog.make("exact", 3), Plan(rounds=6, seed=1)
    dead = threading.Event()

    def die(client, frame, reply):
        return None if client == "c1" and dead.is_set() else reply

    checkpoint = Checkpoint(tmp_path / "server.npz")
    more = {"keep": tmp_path, "patience": Patience(silence=1.0), "tell": lambda c, what: told.append((c, what))}
    engine, _ = flare_over(method, Xs, plan, tamper=die, **more)

    def kill(line, shared):
        if line.round == 2:
            dead.set()

    with pytest.raises(Short, match="at least 4 clients, found 3"):
        run(method, Xs, plan, engine=engine, checkpoint=checkpoint, callbacks=[kill])
    assert told == [("c1", "does not answer"), ("c1", "was silent for 1 s, and is given up")]
    engine, _ = flare_over(method, Xs, plan, **more)
    rest = run(method, Xs, plan, engine=engine, checkpoint=checkpoint)
    np.testing.assert_array_equal(rest.factor, run(method, Xs, plan).factor)


def test_with_a_quorum_the_others_go_on_and_a_client_may_come_back():
    Xs = blocks()
    method, plan = catalog.make("fedavg", 3), Plan(rounds=12, seed=1)
    cut = threading.Event()

    def tamper(client, frame, reply):
        return None if client == "c1" and cut.is_set() else reply

    def at(line, shared):
        {2: cut.set, 5: cut.clear}.get(line.round, lambda: None)()
        if 4 < line.round < 8:
            time.sleep(1.0)

    engine, _ = flare_over(method, Xs, plan, tamper=tamper, patience=Patience(silence=1.0, least=3))
    found = run(method, Xs, plan, engine=engine, callbacks=[at])
    counts = [r.participants for r in found.history]
    assert counts[:3] == [4, 4, 4]
    assert counts[3] == 3
    assert counts[-1] == 4


def test_sums_begin_anew_without_a_client_that_was_given_up():
    Xs = blocks()
    method, plan = catalog.make("exact", 3), Plan(rounds=6, seed=1)
    dead = threading.Event()

    def die(client, frame, reply):
        return None if client == "c1" and dead.is_set() else reply

    engine, _ = flare_over(method, Xs, plan, tamper=die, patience=Patience(silence=0.5, least=3))
    with pytest.raises(LeftOut, match="c1: given up; the others begin anew") as left:
        run(method, Xs, plan, engine=engine, callbacks=[lambda line, shared: dead.set()])
    assert left.value.clients == ["c1"]


def bad(kind):
    """Return a reply that a faulty or hostile client might send instead of its own."""

    def tamper(client, frame, reply):
        order, found = unpack(frame), unpack(reply)
        if client != "c2" or order["op"] != "step" or order["v"]["t"] != 1:
            return reply
        message = found["v"]["answer"]
        arrays = dict(message.arrays)
        name = next(n for n, a in arrays.items() if np.ndim(a))
        a = np.array(arrays[name], float)
        if kind == "nan":
            a.flat[0] = np.nan
        elif kind == "shape":
            a = np.zeros((*a.shape, 2))
        elif kind == "oversized":
            a = np.zeros(1_000_000)
        elif kind == "more":
            arrays["rows"] = np.zeros(3)
        elif kind == "huge":
            a[:] = 1e308
        elif kind == "weight":
            message = message._replace(weight=-1.0)
        elif kind == "huge weight":
            message = message._replace(weight=1e308)
        arrays[name] = a
        value = {"answer": message._replace(arrays=arrays), "kept": True}
        seq = found["seq"] + (kind == "replayed")
        if kind == "garbage":
            return b"\x00" * 100
        if kind == "pickle":
            return b"\x80\x04\x95" + bytes(100)
        if kind == "code":
            return pack({"run": "run", "seq": seq, "no": "anything it likes to say"})
        return pack({"run": "run", "seq": seq, "v": value})

    return tamper


BAD = ["nan", "shape", "oversized", "more", "huge", "weight", "huge weight", "replayed", "garbage", "pickle", "code"]


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_message_is_not_used_and_the_others_go_on(kind):
    Xs, told = blocks(), []
    method, plan = catalog.make("exact", 3, start="random"), Plan(rounds=4, seed=1)
    more = {"patience": Patience(silence=5, least=3), "tell": lambda c, what: told.append((c, what))}
    engine, _ = flare_over(method, Xs, plan, tamper=bad(kind), **more)
    found = run(method, Xs, plan, engine=engine)
    assert [r.participants for r in found.history] == [4, 3, 4, 4]
    assert told == [("c2", REFUSALS["reply"])]


def test_a_client_that_fails_says_a_fixed_text_and_nothing_else():
    Xs = blocks()
    method, plan = catalog.make("exact", 3, start="random"), Plan(rounds=4, seed=1)
    sent = []
    engine, desks = flare_over(method, Xs, plan, tamper=lambda c, frame, reply: sent.append(reply) or reply)

    def step(value):
        raise ValueError("patient 4711 in /home/secret/rows.csv")

    desks["c1"].ops["step"] = step
    with pytest.raises(Refused, match="client c1: it failed; its own log says why"):
        run(method, Xs, plan, engine=engine)
    assert not any(b"4711" in reply or b"secret" in reply for reply in sent)


def test_only_known_work_can_be_asked_for():
    Xs = blocks()
    method, plan = catalog.make("exact", 3), Plan(rounds=2)
    engine, _ = flare_over(method, Xs, plan)
    with engine.open(method, [], plan) as session:
        with pytest.raises(CofactorError, match="code is never sent"):
            session.everywhere(print, "hello")
        with pytest.raises(CofactorError, match="code is never sent"):
            session.step(Shared(np.eye(3)), 0, np.arange(4), print)
    assert engine.remote
    with pytest.raises(CofactorError, match="runs in a federation"), Flare().open(method, [], plan):
        pass
    with pytest.raises(CofactorError, match="draw by share"), engine.open(method, [], Plan(participation=ByShare(2))):
        pass
    assert isinstance(named("flare"), Flare)


def test_orders_are_carried_out_once_and_in_order():
    done = []
    desk = Desk("run", {"add": lambda value: done.append(value) or len(done)})

    def order(seq, value, run="run", op="add"):
        return unpack(desk.handle(pack({"run": run, "seq": seq, "op": op, "v": value})))

    assert order(1, "a")["v"] == 1
    assert order(1, "a")["v"] == 1  # the same again: the same reply
    assert order(1, "b")["no"] == "order"
    assert order(3, "c")["v"] == 2
    assert order(2, "d")["no"] == "order"
    assert order(4, "e", run="other")["no"] == "format"
    assert order(4, "e", op="delete")["no"] == "order"
    assert order(0, None, op="ping")["v"] == "idle"
    assert unpack(desk.handle(b"x"))["no"] == "format"
    assert unpack(desk.handle(None))["no"] == "format"
    assert done == ["a", "c"]


def test_formats_hold_numbers_and_nothing_else():
    for value in (object(), {1.5: 2}, np.array(["text"]), np.array([object()]), {True: 1}):
        with pytest.raises(FormatError):
            pack(value)


@pytest.mark.parametrize("seed", range(20))
def test_random_faults_lose_no_run(seed, tmp_path, monkeypatch):
    """Replies are lost, clients fall silent and come back, jobs end and begin again: the factor is the quiet one."""
    for name, seconds in (("LOOK", 0.01), ("AGAIN", 0.02), ("PING", 0.05)):
        monkeypatch.setattr(flare_clients, name, seconds)
    draw, lock, dead = random.Random(seed), threading.Lock(), {}
    name = ["exact", "fedavg", "fnmf-lap", "syn-sd"][seed % 4]
    Xs, method = blocks((12, 9, 15, 11), features=8), catalog.make(name, 3)
    plan = Plan(rounds=10, seed=seed)

    def tamper(client, frame, reply):
        with lock:
            now = time.monotonic()
            if draw.random() < 0.02:
                dead[client] = now + draw.choice([0.05, 0.3])  # shorter and longer than the patience
            return None if dead.get(client, 0) > now or draw.random() < 0.05 else reply

    checkpoint, ends = Checkpoint(tmp_path / "server.npz"), 0
    while True:
        engine, _ = flare_over(method, Xs, plan, keep=tmp_path, tamper=tamper, patience=Patience(silence=0.15))
        try:
            found = run(method, Xs, plan, engine=engine, checkpoint=checkpoint)
            break
        except Short:
            ends += 1
            assert ends < 50
    np.testing.assert_allclose(found.factor, run(method, Xs, plan).factor, rtol=0, atol=1e-9)
