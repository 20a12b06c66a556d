"""One malformed reply, to any order: the client is named, its reply is not used, and the run does not fail of it."""

import random
from dataclasses import replace

import numpy as np
import pytest
from tests.helpers.client_jobs import NAMES, home_of, terms_of
from tests.helpers.federation import CallWire, blocks, flare_over
from tests.helpers.hostile import WILD, damaged, mutated, verb_of

from cofactor import run
from cofactor.engines import flare_replies
from cofactor.engines.flare_clients import Clients, Patience
from cofactor.engines.flare_format import FormatError, pack, unpack
from cofactor.engines.flare_member import AFTER_STEP, WORK
from cofactor.engines.flare_refusals import REFUSALS, LeftOut, Refused, Short
from cofactor.federation import server_job
from cofactor.federation.client_job import ClientJob
from cofactor.federation.features import Said
from cofactor.federation.own_run import Own
from cofactor.methods import catalog
from cofactor.plan import Plan, Stream
from cofactor.privacy.errors import ForgedShareError, ThresholdError
from cofactor.privacy.secure_sum.messages import Shares, Unmasking, decode, encode
from cofactor.types import Message

VERBS = sorted(flare_replies.REPLIES)


class Bad:
    """Client c2 (or bob) replies something else to one order, the ``count``-th of its name."""

    def __init__(self, verb, make, client="c2", count=2):
        self.verb, self.make, self.client, self.count = verb, make, client, count

    def __call__(self, client, frame, reply):
        order = unpack(frame)
        if client != self.client or verb_of(order) != self.verb:
            return reply
        self.count -= 1
        if self.count:
            return reply
        found = unpack(reply)
        return pack({**found, "v": self.make(found["v"])})


def under_another_name(value):
    return {1: next(iter(value.values()))}


def spoiled(value):
    """Round keys whose signature is wrong: only the sum itself can tell."""
    [(client, data)] = value.items()
    return {client: data[:-4] + b"\x00\x01\x02\x03"}


SECURE = [
    ("bring", lambda v: 3),
    ("bring", lambda v: {**v, "answer": 3}),
    ("bring", lambda v: {**v, "answer": under_another_name(v["answer"])}),
    ("bring", lambda v: {"answer": {2: [{}, {"gram": np.zeros(3)}]}, "kept": True}),
    ("new_keys", lambda v: 7),
    ("new_keys", under_another_name),
    ("new_keys", lambda v: {2: b"short"}),
    ("token", lambda v: "text"),
    ("token", lambda v: None),
    ("answer", lambda v: 7),
    ("answer", lambda v: {2: b"\x00"}),
    ("answer", under_another_name),
    ("answer", spoiled),
    ("check_scale", lambda v: 1),
]


@pytest.mark.parametrize("i", range(len(SECURE)))
def test_a_malformed_reply_in_a_secure_sum_is_the_clients_fault(i):
    (verb, make), told = SECURE[i], []
    Xs, method = blocks((12, 9, 15, 11), features=8), catalog.make("fedavg", 3)
    plan = Plan(rounds=3, seed=1, secure=True)
    bad = Bad(verb, make, count=1 if verb == "new_keys" or make is spoiled else 2)
    more = {"tamper": bad, "patience": Patience(silence=5, least=3), "tell": lambda c, what: told.append((c, what))}
    engine, _ = flare_over(method, Xs, plan, **more)
    found = run(method, Xs, plan, engine=engine)
    assert len(found.history) == 3
    assert np.isfinite(found.factor).all()
    assert bad.count <= 0
    assert set(told) == {("c2", REFUSALS["reply"])}


def without_squares(value):
    arrays = {name: np.asarray(a) * 0 + 1e308 for name, a in value["answer"].arrays.items()}
    return {**value, "answer": value["answer"]._replace(arrays=arrays)}


@pytest.mark.parametrize("make", [lambda v: 3, lambda v: {**v, "answer": Message({})}, without_squares])
def test_a_malformed_reply_in_a_stream_is_the_clients_fault(make):
    told, Xs = [], blocks()
    method, plan = catalog.make("asyn-sd", 3), Plan(stream=Stream(12))
    more = {"tamper": Bad("step", make), "tell": lambda c, what: told.append((c, what))}
    engine, _ = flare_over(method, Xs, plan, **more)
    with pytest.warns(UserWarning, match="the stream goes on without it"):
        found = run(method, Xs, plan, engine=engine)
    assert (len(found.arrivals), found.absent) == (12, (2,))
    assert told == [("c2", REFUSALS["reply"])]


def served(tmp_path, terms, tamper, Xs):
    """Run the server's side over clients in this process."""
    names = [f"g{i}" for i in range(Xs[0].shape[1])]
    desks = {}
    for name, X in zip(NAMES, Xs, strict=True):
        home = home_of(tmp_path / name, X, file="rows.csv", names=names)
        desks[name] = ClientJob(terms.plain(), Own.read(home)).desk
    out = tmp_path / "server" / terms.run
    return server_job.serve(terms, CallWire(desks, tamper), out, stop=lambda: False, started=0.0)


def without(name):
    return lambda v: {
        **v,
        "summary": v["summary"]._replace(arrays={k: a for k, a in v["summary"].arrays.items() if k != name}),
    }


def with_nan(v):
    arrays = {**v["summary"].arrays, "gram": v["summary"].arrays["gram"] * np.nan}
    return {**v, "summary": v["summary"]._replace(arrays=arrays)}


def summary_of(change):
    """Return an end whose summary has other numbers."""
    return lambda v: {
        **v,
        "summary": v["summary"]._replace(arrays={name: change(a) for name, a in v["summary"].arrays.items()}),
    }


def of_no_parts(v):
    arrays = {**v["summary"].arrays, "factor": np.zeros((0, 6)), "gram": np.zeros((0, 0))}
    return {**v, "summary": v["summary"]._replace(arrays=arrays)}


FINISH = [
    summary_of(lambda a: -1.0 - a),  # of which no passports can be made: the run ended there, when all was done
    summary_of(lambda a: np.full_like(a, 1e308)),
    of_no_parts,
    without("factor"),
    without("gram"),
    with_nan,
    lambda v: {**v, "summary": Message({})},
    lambda v: {**v, "tally": v["tally"][:1]},
    lambda v: {**v, "tally": v["tally"] * np.nan},
    lambda v: {**v, "own": np.zeros(9)},
    lambda v: None,
    lambda v: 3,
]


@pytest.mark.parametrize("i", [*range(len(FINISH)), "names"])
def test_a_malformed_end_or_name_is_the_clients_fault_and_the_others_end_the_run(tmp_path, i):
    bad = Bad("names", lambda v: v[:-1], "bob", 1) if i == "names" else Bad("finish", FINISH[i], "bob", 1)
    folder = served(tmp_path, terms_of(rounds=2), bad, blocks((12, 9, 15, 11), features=6))
    assert bad.count == 0
    assert len(folder.evaluation().clients) == (4 if i == "names" else 3)
    assert folder.factor()[1] == [f"g{i}" for i in range(6)]
    events = (tmp_path / "server" / "r1" / "events.jsonl").read_text()
    assert events.count(REFUSALS["reply"]) == 1


HELLO = [
    lambda v: 3,
    lambda v: {**v, "features": 0},
    lambda v: {**v, "features": 1 << 60},
    lambda v: {**v, "dtype": "object"},
    lambda v: {**v, "rows": -1},
    lambda v: {**v, "hashes": v["hashes"][1:]},
    lambda v: {**v, "hashes": v["hashes"].astype(float)},
    lambda v: {**v, "version": 3},
    lambda v: {**v, "keys": 1},
    lambda v: {**v, "more": 1},
]


@pytest.mark.parametrize(("i", "least"), [*((i, 3) for i in range(len(HELLO))), (0, None)])
def test_a_malformed_hello_leaves_that_client_out_where_the_others_are_enough(tmp_path, i, least):
    """And else ends the command, with its name."""
    ends = {3: (LeftOut, "bob: given up; the others begin anew", "fewer"), None: (Refused, "client bob", "refused")}
    error, words, state = ends[least]
    terms = replace(terms_of(rounds=2), patience=Patience(silence=5, least=least))
    with pytest.raises(error, match=words) as ended:
        served(tmp_path, terms, Bad("hello", HELLO[i], "bob", 1), blocks((12, 9, 15, 11), features=6))
    assert server_job.outcome(ended.value)["state"] == state
    assert REFUSALS["reply"] in (tmp_path / "server" / terms.run / "events.jsonl").read_text()


def forged(value):
    """The last answer of a secure sum with other shares than were dealt."""
    [(client, data)] = value.items()
    found = decode(data)
    if not isinstance(found, Unmasking):
        return value
    flipped = [replace(r, share=bytes([r.share[0], r.share[1] ^ 1]) + r.share[2:]) for r in found.seeds]
    return {client: encode(replace(found, seeds=tuple(flipped)))}


class Forgers:
    """Clients that tell other shares than they hold, up to the ``count``-th time."""

    def __init__(self, clients, count=10**9):
        self.clients, self.count = clients, count

    def __call__(self, client, frame, reply):
        if client not in self.clients or verb_of(unpack(frame)) != "answer" or not self.count:
            return reply
        found = unpack(reply)
        made = forged(found["v"])
        self.count -= made != found["v"]
        return pack({**found, "v": made})


def test_forged_shares_of_one_client_change_nothing_and_it_is_named():
    """Whoever it is: the sum is that of a quiet run, and the forger is named where its shares were in the way."""
    Xs, method, told = blocks((12, 9, 15, 11), features=8), catalog.make("exact", 3, start="random"), []
    plan = Plan(rounds=4, seed=1, secure=True)
    for name in ("c0", "c3"):
        more = {"tamper": Forgers([name]), "tell": lambda c, what: told.append((c, what))}
        engine, _ = flare_over(method, Xs, plan, **more)
        found = run(method, Xs, plan, engine=engine)
        np.testing.assert_allclose(found.factor, run(method, Xs, plan).factor, rtol=0, atol=1e-5)
    assert set(told) <= {("c0", REFUSALS["reply"]), ("c3", REFUSALS["reply"])}
    assert ("c0", REFUSALS["reply"]) in told


def test_a_box_that_nobody_can_open_is_not_the_fault_of_who_was_sent_it():
    def tamper(client, frame, reply):
        found, order = unpack(reply), unpack(frame)
        if client != "c2" or verb_of(order) != "answer" or not isinstance(said := decode(found["v"][2]), Shares):
            return reply
        first, *others = said.shares
        forged = replace(first, box=bytes(len(first.box)))
        return pack({**found, "v": {2: encode(replace(said, shares=(forged, *others)))}})

    Xs, method, plan = blocks((12, 9, 15, 11), features=8), catalog.make("fedavg", 3), Plan(rounds=2, secure=True)
    engine, _ = flare_over(method, Xs, plan, tamper=tamper, patience=Patience(silence=5, least=3))
    with pytest.raises(Refused, match=r"client c0: keys or shares that it was sent .* not what their client signed"):
        run(method, Xs, plan, engine=engine)


def test_forged_shares_of_several_end_the_job_and_not_the_run(tmp_path):
    """Nobody can tell who lied: the job is submitted again, and goes on where it was; for ever, it ends in words."""
    Xs, terms = blocks((12, 9, 15, 11), features=6), terms_of(rounds=4, secure=True)
    with pytest.raises(ForgedShareError) as ended:
        served(tmp_path, terms, Forgers(["bob", "carol"], 2), Xs)
    found = server_job.outcome(ended.value)
    assert (found["state"], found["tries"]) == ("short", server_job.TRIES)
    assert "several clients have told shares that they do not hold" in found["text"]
    folder = served(tmp_path, terms, lambda client, frame, reply: reply, Xs)
    quiet = served(tmp_path / "quiet", terms, lambda client, frame, reply: reply, Xs)
    np.testing.assert_allclose(folder.factor()[0], quiet.factor()[0], atol=1e-5)


def recorded(tmp_path):
    """Return a true order and reply of every verb and every work, as client bob has heard and said them."""
    found = {}

    def record(client, frame, reply):
        order = unpack(frame)
        if client == "bob" and order["op"] != "ping":
            found.setdefault(verb_of(order), (order, unpack(reply)))
        return reply

    rng, Xs = np.random.default_rng(3), blocks((40, 50, 45, 60), features=8)
    counts = [rng.poisson(3 * X + 0.2).astype(float) for X in Xs]
    for i, secure in enumerate((False, True)):
        terms = terms_of(f"r{i}", rounds=3, prepare="library,log1p,hvg=6", secure=secure)
        served(tmp_path / str(i), terms, record, counts)
        paused = terms_of(f"p{i}", rounds=3, secure=secure)
        with pytest.raises(Short):
            _paused(tmp_path / f"p{i}", paused, record, counts)
        served(tmp_path / f"p{i}", paused, record, counts)
    found["join"] = ({"op": "join", "v": {}}, {"v": True})
    return found


def _paused(tmp_path, terms, tamper, Xs):
    steps = []

    def stop(client, frame, reply):
        steps.append(unpack(frame)["op"] == "step")
        return tamper(client, frame, reply)

    def ends():
        return any(steps)

    names = [f"g{i}" for i in range(Xs[0].shape[1])]
    homes = {n: home_of(tmp_path / n, X, file="rows.csv", names=names) for n, X in zip(NAMES, Xs, strict=True)}
    desks = {name: ClientJob(terms.plain(), Own.read(home)).desk for name, home in homes.items()}
    wire = CallWire(desks, stop)
    return server_job.serve(terms, wire, tmp_path / "server" / terms.run, stop=ends, started=0.0)


class OneReply:
    """A wire with one reply to whatever is asked."""

    def __init__(self, reply):
        self.reply = reply

    def submit(self, client, frame, timeout):
        return 1

    def wait(self, timeout):
        return [(1, self.reply)]


def test_no_reply_to_any_order_is_an_error_of_the_run(tmp_path):
    """Whole frames with wrong contents, for every verb: used if it is what it should be, else that client is named."""
    found, draw = recorded(tmp_path), random.Random(5)
    assert set(found) == {*VERBS, *WORK, *AFTER_STEP} - {"do"}
    reading = server_job._Reading(NAMES, 8, catalog.make("exact", 3), silent=False)
    for verb, (order, reply) in found.items():
        said, named = {**reply, "run": "r", "seq": 1}, 0
        for i in range(250):
            value = WILD[i] if i < len(WILD) else None
            wrong = {**said, "v": value} if i < len(WILD) else mutated(said, draw)
            try:
                frame = damaged(pack(said), draw) if i % 5 == 4 else pack(wrong)
            except FormatError:
                continue
            told = []
            clients = Clients(OneReply(frame), NAMES, "r", tell=lambda c, what, told=told: told.append((c, what)))
            try:
                answers = clients.ask(order["op"], {1: order["v"]})
            except Refused:
                continue
            if not answers:
                assert told == [("bob", REFUSALS["reply"])], (verb, wrong)
                named += 1
                continue
            assert told == []
            read = {"hello": Said.read, "finish": lambda v: reading(1, v)}.get(verb, lambda v: v)
            try:
                read(answers[1])
            except FormatError:
                named += 1
        assert named > 100, verb


@pytest.mark.parametrize("seed", range(8))
def test_whole_runs_with_one_wild_client(tmp_path, seed):
    """Whatever bob replies now and then, the run ends well, or for a reason that names clients."""
    draw, lied = random.Random(seed), []

    def wild(client, frame, reply):
        if client != "bob" or unpack(frame)["op"] == "ping" or draw.random() > 0.15:
            return reply
        lied.append(verb_of(unpack(frame)))
        return pack(mutated(unpack(reply), random.Random(draw.random())))

    terms = terms_of(rounds=3, secure=seed % 2 == 1, method="fedavg" if seed % 4 < 2 else "exact")
    terms = type(terms)(terms.run, terms.config, Patience(silence=5, least=3))
    error = None
    try:
        folder = served(tmp_path, terms, _packable(wild), blocks((12, 9, 15, 11), features=6))
    except (Short, LeftOut, Refused, ThresholdError) as found:
        error = found
    if error is None:
        assert np.isfinite(folder.factor()[0]).all()
        return
    assert server_job.outcome(error)["state"] in ("short", "fewer", "refused")
    assert not isinstance(error, Refused) or "client bob" in str(error)


def _packable(wild):
    def tamper(client, frame, reply):
        try:
            return wild(client, frame, reply)
        except FormatError:
            return b"no frame"

    return tamper
