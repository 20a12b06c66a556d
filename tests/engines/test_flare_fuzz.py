"""Ten thousand hostile frames: 5000 from a client to a server, 5000 from a server to a client. Nothing happens."""

import random

import numpy as np
import pytest
from tests.helpers.federation import blocks
from tests.helpers.hostile import damaged, mutated

from cofactor.engines.contract import check_message
from cofactor.engines.flare_clients import REFUSALS, Clients, Patience, Refused
from cofactor.engines.flare_format import FormatError, pack, unpack
from cofactor.engines.flare_member import Desk, Member, answered
from cofactor.methods import catalog
from cofactor.types import ClientError, Message

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
            whole = {**others, "seq": 2, "v": {name: content.get(name) for name in good["v"]}}
            allowed = seq > 1 and 0 < t < 10 and counted in (-1, 0)
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


def test_no_frame_of_a_client_is_used_by_a_server(member):
    draw = random.Random(2)
    shared = member.method.start(20, np.random.default_rng(0)).broadcast()
    order = {"t": 0, "counted": -1, "shared": shared, "work": None}
    reply = Desk("run", member.ops).handle(pack({"run": "run", "seq": 1, "op": "step", "v": order}))
    good, schema = unpack(reply), member.method.schema(20, 0)
    clients = Clients(None, ["c0"], "run", Patience())
    used = 0
    for i in range(COUNT):
        hostile = damaged(reply, draw) if i % 2 else signed(mutated(good, draw))
        if hostile == reply:
            continue
        try:
            message = answered(clients._read(0, 1, hostile))
            check_message(message, schema, client=0, t=0)
        except (Refused, ClientError):
            continue
        used += 1  # a whole message of other numbers cannot be told from a true one
        assert all(np.isfinite(a).all() for a in message.arrays.values())
    assert used < COUNT // 50
