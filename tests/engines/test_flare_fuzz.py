"""Ten thousand hostile frames: 5000 from a client to a server, 5000 from a server to a client. Nothing happens."""

import random

import numpy as np
import pytest
from tests.helpers.client_jobs import home_of, said
from tests.helpers.federation import blocks
from tests.helpers.hostile import damaged, mutated

from cofactor.engines.flare import Flare, FlareSession
from cofactor.engines.flare_clients import REFUSALS, Clients, Patience, Refused
from cofactor.engines.flare_format import FormatError, pack, unpack
from cofactor.engines.flare_member import Desk, Member
from cofactor.federation import policy
from cofactor.federation.client_job import ClientJob
from cofactor.federation.own_run import Own
from cofactor.federation.terms import RunTerms, settled
from cofactor.methods import catalog
from cofactor.types import Message

COUNT = 5000


def signed(value):
    """Return the frame of a value, if there can be one."""
    try:
        return pack(value)
    except FormatError:
        return b""


def is_right(order, good):
    """Whether an order differs from a good one only where it may: in its number, its round, and what was used last."""
    match order:
        case {"seq": int(seq), "v": {"t": int(t), "counted": int(counted), **rest}, **others}:
            content = {**rest, "t": 1, "counted": 0}
            whole = {**others, "seq": good["seq"], "v": {name: content.get(name) for name in good["v"]}}
            allowed = seq >= good["seq"] and 0 < t < 10 and counted in (-1, 0)
            return allowed and signed({name: whole.get(name) for name in good}) == signed(good)
    return False


@pytest.fixture
def member():
    method = catalog.make("exact", 3, start="random")
    return Member(method, blocks()[0], 0, 7, 10)


def state(member):
    local = member.host.units[0].local
    return member.stepped, member.rounds, None if local is None else local.codes.tobytes()


def test_no_frame_of_a_server_moves_a_client_or_makes_it_say_anything(member):
    draw, released = random.Random(1), []
    member.sending = lambda t, message, shared: released.append(t)
    desk = Desk("run", member.ops)
    shared = member.method.start(20, np.random.default_rng(0)).broadcast()
    order = {"t": 0, "counted": -1, "shared": shared, "work": None}
    assert isinstance(unpack(desk.handle(pack({"run": "run", "seq": 1, "op": "step", "v": order})))["v"], dict)
    before, good = state(member), {"run": "run", "seq": 2, "op": "step", "v": {**order, "t": 1, "counted": 0}}
    frame = pack(good)
    for i in range(COUNT):
        wrong = mutated(good, draw)
        hostile = damaged(frame, draw) if i % 2 else signed(wrong)
        if hostile == frame or (not i % 2 and is_right(wrong, good)):
            continue
        reply = unpack(desk.handle(hostile))
        if reply.get("no") is None:
            assert reply["v"] in ("idle", "busy")
        else:
            assert reply["no"] in REFUSALS
        assert state(member) == before
        assert released == [0]
        desk.last = 1  # whatever was refused did not use up the number
    assert isinstance(unpack(desk.handle(frame))["v"]["answer"], Message)


class Liar:
    """A wire to two clients: the first answers as it should, the second with what somebody has tampered with."""

    def __init__(self, reply, draw):
        self.good, self.draw, self.count, self.replies = unpack(reply), draw, 0, []

    def submit(self, client, frame, timeout):
        self.count += 1
        reply = {**self.good, "seq": unpack(frame)["seq"]}
        if client == "c1":
            whole = pack(reply)
            reply = damaged(whole, self.draw) if self.count % 4 else signed(mutated(reply, self.draw))
            self.same = reply == whole
        else:
            reply = pack(reply)
        self.replies.append((self.count, reply))
        return self.count

    def wait(self, timeout):
        found, self.replies = self.replies, []
        return found


def test_no_frame_of_a_client_is_used_by_a_server(member):
    """The way of every answer in a run: the round has the other client's, and the server is as it was before."""
    shared = member.method.start(20, np.random.default_rng(0)).broadcast()
    order = {"t": 0, "counted": -1, "shared": shared, "work": None}
    reply = Desk("run", member.ops).handle(pack({"run": "run", "seq": 1, "op": "step", "v": order}))
    told, wire = [], Liar(reply, random.Random(2))
    clients = Clients(wire, ["c0", "c1"], "run", Patience(least=1), lambda client, what: told.append((client, what)))
    session = FlareSession(Flare(clients, 20), clients, member.method)
    true, used, refused = wire.good["v"]["answer"], 0, 0
    for _ in range(COUNT):
        session.counted[:] = -1
        try:
            answers = session.round(shared, 0, np.arange(2))
        except Refused:
            refused += 1
            continue
        if len(answers) == 2:  # a whole message of other numbers cannot be told from a true one
            used += not wire.same
            assert all(np.isfinite(a).all() for a in answers[1].message.arrays.values())
            continue
        [answer] = answers
        assert (answer.client, session.counted.tolist()) == (0, [0, -1])
        assert all(np.array_equal(answer.message.arrays[name], a) for name, a in true.arrays.items())
        assert told.pop() == ("c1", REFUSALS["reply"])
        assert (told, clients.absent, clients.waits_for(0), clients.waits_for(1)) == ([], set(), False, False)
    assert used + refused < COUNT // 50


def test_no_frame_of_a_server_makes_a_client_write_or_pay(tmp_path):
    """A private run over files: its ledger, its charges and its states are what they were after the one true step."""
    private = {"method": "dp-nmf", "epsilon": 1.0, "delta": 1e-6, "rounds": 4}
    terms = RunTerms("r1", settled({"inputs": ["alice", "bob"], "rank": 3, **private}))
    job = ClientJob(terms.plain(), Own.read(home_of(tmp_path, blocks()[0], "total_epsilon = 2.0\n")))
    assert "v" in said(job)
    place = {"number": 0, "clients": 2, "width": 20, "union": False, "columns": np.arange(20)}
    more = {"features": 20, "rows": None, "groups": None, "dtype": "<f8", "known": {}}
    assert said(job, "settle", {**place, **more}, seq=2)["v"] is None
    shared = job.member.method.start(20, np.random.default_rng(0)).broadcast()
    order = {"t": 0, "counted": -1, "shared": shared, "work": None}
    assert "answer" in said(job, "step", order, seq=3)["v"]

    def here():
        files = {path: path.stat() for path in tmp_path.rglob("*") if path.is_file()}
        return {path: (found.st_size, found.st_mtime_ns) for path, found in files.items()}

    before, spent, draw = here(), policy.spent(tmp_path), random.Random(3)
    good = {"run": "r1", "seq": 4, "op": "step", "v": {**order, "t": 1, "counted": 0}}
    frame = pack(good)
    for i in range(COUNT):
        wrong = mutated(good, draw)
        hostile = damaged(frame, draw) if i % 2 else signed(wrong)
        if hostile == frame or (not i % 2 and is_right(wrong, good)):
            continue
        reply = unpack(job.desk.handle(hostile))
        assert reply.get("no") in REFUSALS or reply["v"] in ("idle", "busy")
        assert here() == before
        job.desk.last = 3
    assert policy.spent(tmp_path) == spent
    assert "answer" in unpack(job.desk.handle(frame))["v"]
    assert here() != before
