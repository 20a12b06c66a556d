"""Ten thousand hostile frames: 5000 from a client to a server, 5000 from a server to a client. Nothing happens."""

import random
from collections import Counter

import numpy as np
import pytest
from tests.helpers.client_jobs import NAMES, home_of, terms_of
from tests.helpers.federation import CallWire, blocks
from tests.helpers.hostile import damaged, mutated, verb_of

from cofactor.engines import flare_replies
from cofactor.engines.flare import Flare, FlareSession
from cofactor.engines.flare_clients import Clients, Patience
from cofactor.engines.flare_format import FormatError, pack, unpack
from cofactor.engines.flare_member import AFTER_STEP, WORK, Desk, Member
from cofactor.engines.flare_refusals import REFUSALS, Refused, Short
from cofactor.federation import policy, server_job
from cofactor.federation.client_job import ClientJob
from cofactor.federation.own_run import Own
from cofactor.methods import catalog

COUNT, EACH = 5000, 72


def signed(value):
    """Return the frame of a value, if there can be one."""
    try:
        return pack(value)
    except FormatError:
        return b""


class Harassed:
    """A desk to which hostile frames come before each order of a run: damaged, wrong in one place, or out of time.

    All are refused in fixed words, and no file of the client changes: its ledger, its charges, its states, its codes.
    """

    def __init__(self, desk, home, draw, each):
        self.desk, self.home, self.draw, self.each = desk, home, draw, each
        self.seen, self.sent, self.faults = [b""], Counter(), []

    def handle(self, frame):
        good = unpack(frame)
        if good["op"] != "ping":
            self.harass(frame, good)
            self.seen.append(frame)
        return self.desk.handle(frame)

    def harass(self, frame, good):
        kept, before = (self.desk.last, self.desk.name, self.desk.reply), self.files()
        for i in range(self.each):
            bad = self.hostile(frame, good, i)
            if bad is None:
                continue
            reply = unpack(self.desk.handle(bad))
            if not (reply.get("no") in REFUSALS or reply.get("v") in ("idle", "busy") or bad == self.seen[-1]):
                self.faults.append(("was carried out", good["op"], bad))
            self.sent[verb_of(good)] += 1
            self.desk.last, self.desk.name, self.desk.reply = kept  # what was refused does not use up the number
        if self.files() != before:
            self.faults.append(("has changed files", good["op"]))

    def hostile(self, frame, good, i):
        """Return a frame; None for one that is right by chance."""
        if i % 4 == 0:
            bad = damaged(frame, self.draw)
        elif i % 4 == 1:
            bad = self.draw.choice(self.seen)
            old = unpack(bad) if bad else {}
            if old.get("op") in ("settle", "restore", "step"):  # nor under a new number
                bad = signed({**old, "seq": good["seq"]})
        else:
            wrong = mutated(good, self.draw)
            bad = frame if is_right(wrong, good) else signed(wrong)
        return None if bad == frame else bad

    def files(self):
        found = {path: path.stat() for path in self.home.rglob("*") if path.is_file()}
        return {path: (one.st_size, one.st_mtime_ns) for path, one in found.items()}


def is_right(order, good):
    """Whether an order differs from a good one only where it may: in its number, its round, and what was used last."""
    match order:
        case {"seq": int(seq), "v": value, **others}:
            if good["op"] == "step" and isinstance(value, dict):
                free = {name: good["v"][name] for name in ("t", "counted") if isinstance(value.get(name), int)}
                value = {name: ({**value, **free}).get(name, b"") for name in [*good["v"], *value]}
            whole = {**others, "seq": good["seq"], "v": value}
            return seq >= good["seq"] and signed({name: whole.get(name) for name in [*good, *whole]}) == signed(good)
    return False


def harassed(tmp_path, terms, each, *, paused=False):
    """Run the server's side over clients in this process, one of which hears hostile frames too; return their count."""
    rng, desks = np.random.default_rng(3), {}
    for name, X in zip(NAMES, blocks((40, 50, 45, 60), features=8), strict=True):
        text = "total_epsilon = 2.0\n" if terms.config.privacy else policy.TEXT
        counts, names = rng.poisson(3 * X + 0.2).astype(float), [f"g{i}" for i in range(8)]
        home = home_of(tmp_path / name, counts, text, file="rows.csv", names=names)
        desks[name] = ClientJob(terms.plain(), Own.read(home)).desk
    bob = desks["bob"] = Harassed(desks["bob"], tmp_path / "bob", random.Random(each), each)
    try:
        out = tmp_path / "server" / terms.run
        folder = server_job.serve(terms, CallWire(desks), out, stop=lambda: paused, started=0.0)
    except Short:
        assert paused
        folder = None
    assert bob.faults == []
    return bob.sent, folder


RUNS = {
    "open": {"rounds": 3, "prepare": "library,log1p,hvg=6"},
    "masked": {"rounds": 3, "prepare": "library,log1p,hvg=6", "secure": True},
    "drawn": {"rounds": 3, "participation": 0.5, "seed": 1},
    "private": {"method": "dp-nmf", "epsilon": 1.0, "delta": 1e-6, "rounds": 3},
}


def test_no_frame_of_a_server_moves_a_client_in_any_order_of_a_run(tmp_path):
    """Every order that there is, in runs in the open, under masks and with noise, the first of them interrupted."""
    sent = Counter()
    for kind, settings in RUNS.items():
        terms = terms_of(kind, **settings)
        if kind == "open":
            sent += harassed(tmp_path / kind, terms, EACH, paused=True)[0]
        found, folder = harassed(tmp_path / kind, terms, EACH)
        sent += found
        if kind != "private":  # whose noise is another one
            _, quiet = harassed(tmp_path / "quiet" / kind, terms, 0)
            np.testing.assert_array_equal(folder.factor()[0], quiet.factor()[0])
    assert set(sent) == {*flare_replies.REPLIES, *WORK, *AFTER_STEP} - {"do"}
    assert sum(sent.values()) >= COUNT
    assert len(policy.spent(tmp_path / "private" / "bob")) == 1


@pytest.fixture
def member():
    method = catalog.make("exact", 3, start="random")
    return Member(method, blocks()[0], 0, 7, 10)


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
