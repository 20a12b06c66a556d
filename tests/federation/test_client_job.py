"""A client and its policy in this process: what it refuses, what it says, and what stays with it."""

import errno
import itertools
import json
import os
import secrets
import shutil
import time
from concurrent.futures import ThreadPoolExecutor

import anndata
import numpy as np
import pandas as pd
import pytest
from tests.helpers.client_jobs import NAMES, federation, home_of, said, terms_of
from tests.helpers.federation import blocks

from cofactor import FederatedNMF, __version__, files, run
from cofactor.engines.flare_clients import Patience
from cofactor.engines.flare_format import unpack
from cofactor.engines.flare_refusals import REFUSALS, Refused
from cofactor.federation import hand_over, policy, server_job
from cofactor.federation.client_job import ClientJob
from cofactor.federation.own_run import Own, OwnRun
from cofactor.federation.policy import Policy
from cofactor.federation.terms import RunTerms, read_config, settled
from cofactor.jobs.config import Config
from cofactor.jobs.folder import RunFolder
from cofactor.jobs.job import fit
from cofactor.jobs.new_rows import transform
from cofactor.methods import catalog
from cofactor.methods.build import Facts
from cofactor.plan import Plan
from cofactor.privacy import account
from cofactor.privacy.secure_sum import packing
from cofactor.privacy.secure_sum.protocol import terms_of as terms_of_sum
from cofactor.select.markers import SCORES
from cofactor.types import CofactorError, DataError


def test_a_whole_run_over_four_clients(tmp_path):
    Xs = blocks()
    folder, _ = federation(tmp_path, Xs, terms_of(method="exact"))
    here = run(catalog.make("exact", 3), Xs, Plan(5))
    np.testing.assert_array_equal(folder.factor()[0], here.factor)
    for name, W in zip(NAMES, here.codes, strict=True):
        kept = RunFolder.open(tmp_path / name / "runs" / "r1")
        np.testing.assert_array_equal(np.load(kept.client(name).path / "codes.npy"), W)
        np.testing.assert_array_equal(kept.factor()[0], here.factor)
        assert (kept.verify().ok, kept.verify().own) == (True, [name])
        assert {line["round"] for line in map(json.loads, kept.ledger_file.read_text().splitlines())} == set(range(5))
        [mine] = kept.evaluation().clients
        theirs = next(one for one in folder.evaluation().clients if one.client == name)
        assert (mine.client, mine.rows, mine.error) == (name, theirs.rows, pytest.approx(theirs.error))
        assert "What left each client" in (kept.path / "report.html").read_text()
    assert not (tmp_path / "server" / "r1" / "clients").exists()
    assert [line.path for line in folder.manifest_record().inputs] == [""] * 4
    assert folder.evaluation().converged is False
    assert folder.verify().ok
    kept.ledger_file.write_text("".join(kept.ledger_file.read_text().splitlines(keepends=True)[:-1]))
    kept.seal({**kept.manifest()["ledger"], **kept.ends()})  # whoever cuts lines off cannot sign what is left
    assert "the end of the ledger is not signed by dave" in str(kept.verify().faults)


def test_a_private_run_is_charged_to_the_client_before_it_begins(tmp_path):
    text = "total_epsilon = 1.5\nepsilon = 1.0\n"
    private = {"method": "dp-moments", "epsilon": 1.0, "delta": 1e-6, "rounds": None}
    private = {name: value for name, value in private.items() if value is not None}
    terms = RunTerms("r1", settled({"inputs": NAMES, "rank": 3, **private}), Patience(silence=5))
    folder, heard = federation(tmp_path, blocks(), terms, [text] * 4)
    assert policy.spent(tmp_path / "alice")["r1"] == pytest.approx(1.0, rel=1e-6)
    assert folder.evaluation().privacy.epsilon == pytest.approx(1.0, rel=1e-6)
    assert not any(b"rows" in frame and b'"rows",30' in frame for frame in heard)
    again = RunTerms("r2", terms.config, Patience(silence=5))
    with pytest.raises(Refused, match="all runs together have cost is too much"):
        federation(tmp_path, blocks(), again, [text] * 4)
    assert "r2" not in policy.spent(tmp_path / "alice")
    account.new(tmp_path / "bob" / "site.jsonl", epsilon=0.5, delta=1e-6)
    with pytest.raises(Refused, match="client bob: its policy does not allow more"):  # when alice has agreed already
        federation(tmp_path, blocks(), again, [policy.TEXT, 'ledger = "site.jsonl"\n', policy.TEXT, policy.TEXT])
    assert "r2" not in policy.spent(tmp_path / "alice")  # a run that others refuse costs nothing


def test_a_private_round_leaves_a_client_once_whatever_the_server_says(tmp_path):
    """A server that begins the same run again gets nothing: the noise would be another."""
    private = {"method": "dp-moments", "epsilon": 1.0, "delta": 1e-6}
    terms = RunTerms("r1", settled({"inputs": NAMES, "rank": 3, **private}), Patience(silence=5))
    federation(tmp_path, blocks(), terms)
    shutil.rmtree(tmp_path / "server")
    with pytest.raises(Refused, match="never releases one twice") as refused:
        federation(tmp_path, blocks(), terms)
    assert not any(
        isinstance(unpack(frame).get("v"), dict) and "answer" in unpack(frame)["v"] for frame in refused.value.heard
    )
    assert policy.spent(tmp_path / "alice") == {"r1": pytest.approx(1.0, rel=1e-6)}


def begun(home, terms, orders):
    """Return a client that was told to begin a run, and why it refuses."""
    job = ClientJob(json.loads(json.dumps(terms.plain())), Own.read(home))
    for op, order in (("hello", None), ("settle", settle_order())):
        answer = said(job, op, order, seq=next(orders))
    return job, answer.get("no")


def next_step(job, t=0):
    state = job.member.method.start(20, np.random.default_rng(0)).broadcast()
    return {"t": t, "counted": job.member.stepped, "shared": state, "work": None}


def test_of_two_jobs_of_one_private_run_one_alone_releases(tmp_path, monkeypatch):
    """Each of them knew of no round that had left: a server that began n of them got every round n times."""
    monkeypatch.setattr(files, "WAIT", 0.0)
    home, orders = home_of(tmp_path / "alice", blocks()[0]), itertools.count(1)
    (one, _), (other, no) = (begun(home, private_terms(), orders) for _ in range(2))
    assert (no, other.member) == ("held", None)
    assert "answer" in said(one, "step", next_step(one), seq=next(orders))["v"]
    one.held.close()  # its process has ended
    assert said(other, "settle", settle_order(), seq=next(orders))["v"] is None
    assert said(other, "step", next_step(other), seq=next(orders))["no"] == "released"
    assert "answer" in said(other, "step", next_step(other, 1), seq=next(orders))["v"]
    assert RunFolder.open(home / "runs" / "r1").verify().ok


def test_a_private_run_that_was_ended_releases_nothing_more(tmp_path):
    """Its ledger over runs was free then: what its other rounds cost had been promised to another run by then."""
    home, orders = home_of(tmp_path / "alice", blocks()[0], 'ledger = "site.jsonl"\n'), itertools.count(1)
    account.new(home / "site.jsonl", epsilon=1.2, delta=1e-6)
    job, _ = begun(home, private_terms(), orders)
    assert "answer" in said(job, "step", next_step(job), seq=next(orders))["v"]
    assert said(job, "finish", {"factor": next_step(job)["shared"].factor}, seq=next(orders))["v"] is None
    other, no = begun(home, private_terms("r2", epsilon=0.9), orders)
    assert no is None
    for t in range(4):
        assert "answer" in said(other, "step", next_step(other, t), seq=next(orders))["v"]
    assert said(job, "step", next_step(job, 1), seq=next(orders))["no"] == "order"
    other.held.close()
    assert account.read(home / "site.jsonl").faults() == []
    assert account.read(home / "site.jsonl").spent().epsilon <= 1.2


def test_a_round_that_a_client_refuses_to_release_again_is_in_no_sum_under_masks(tmp_path):
    """The refusal came when the message lay ready for the sum: with fresh noise, and as often as the server liked."""
    terms, orders = terms_of(method="dp-moments", epsilon=1.0, delta=1e-6, rounds=None, secure=True), itertools.count(1)
    federation(tmp_path, blocks(), terms)
    jobs = [ClientJob(json.loads(json.dumps(terms.plain())), Own.read(tmp_path / name)) for name in NAMES]
    registry = {}
    for j, job in enumerate(jobs):
        for op, order in (("hello", None), ("settle", settle_order(number=j)), ("do", ["new_keys", None])):
            answer = said(job, op, order, seq=next(orders))["v"]
        registry |= answer
    method = jobs[0].member.method
    state, schema = method.start(20, np.random.default_rng(0)).broadcast(), method.schema(20, 0)
    step = {"t": 0, "counted": -1, "shared": state, "work": ["bring", schema]}
    assert [said(job, "step", step, seq=next(orders))["no"] for job in jobs] == ["released"] * 4
    sum_ = terms_of_sum(secrets.token_bytes(16), (0, 1, 2, 3), packing.size(schema))
    told = [said(job, "do", ["answer", sum_, registry, {j: None}], seq=next(orders)) for j, job in enumerate(jobs)]
    assert [one["v"] for one in told] == [{}] * 4  # there is nothing to add


def test_of_two_private_runs_at_once_the_second_sees_what_the_first_costs(tmp_path, monkeypatch):
    """Without a lock all would find room, since the first one takes its time to write."""
    monkeypatch.setattr(files, "reached", lambda place: time.sleep(0.05))
    limits, config = Policy(total_epsilon=2.5), private_terms().config
    method = RunTerms("r", config).made(Facts(4, 20, None)).method

    def ask(name):
        try:
            limits.check_cost(method, tmp_path, name)
        except Refused as refused:
            return refused.code
        return name

    with ThreadPoolExecutor(5) as pool:
        said = list(pool.map(ask, [f"r{i}" for i in range(5)]))
    assert sorted(code for code in said if code == "total") == ["total"] * 3
    assert set(policy.spent(tmp_path)) == set(said) - {"total"}


def private_terms(run="r1", **settings):
    private = {"method": "dp-nmf", "epsilon": 1.0, "delta": 1e-6, "rounds": 4, **settings}
    return RunTerms(run, settled({"inputs": NAMES, "rank": 3, **private}), Patience(silence=5))


def test_a_name_stands_for_one_run_so_that_more_rounds_under_it_get_nothing(tmp_path):
    """A server that submits a run again with more rounds would release more than the budget allows."""
    texts = ["epsilon = 1.001\ntotal_epsilon = 1.001\n"] * 4
    folder, *_ = federation(tmp_path, blocks(), private_terms(), texts)
    assert "as large as the noise from about" in folder.evaluation().remark  # as of a run over files
    spent, kept = policy.spent(tmp_path / "alice"), RunFolder.open(tmp_path / "alice" / "runs" / "r1")
    charges = (kept.path / "charges.jsonl").read_bytes()
    for other in ({"rounds": 8}, {"epsilon": 0.9}, {"rank": 4}, {"delta": 1e-5}, {"seed": 7}, {"inputs": NAMES[:3]}):
        terms = private_terms(**other)
        with pytest.raises(Refused, match="by other terms, and a name stands for one run only") as refused:
            federation(tmp_path, blocks()[: len(terms.names)], terms, texts)
        assert not any("answer" in str(unpack(frame)) for frame in refused.value.heard)
    assert policy.spent(tmp_path / "alice") == spent
    assert (kept.path / "charges.jsonl").read_bytes() == charges
    assert len(kept.charged()) == 4


def test_of_two_runs_that_come_under_one_name_at_once_one_is_known_by_it(tmp_path, monkeypatch):
    """Both were begun, each with prices of its own, and what the second released was in no total."""
    home, heard = home_of(tmp_path / "alice", blocks()[0]), []

    def reached(place):
        if place == "terms.json: written" and not heard:
            heard.append(None)
            heard[0] = said(ClientJob(private_terms(rounds=8).plain(), Own.read(home)))

    monkeypatch.setattr(files, "reached", reached)
    first = said(ClientJob(private_terms().plain(), Own.read(home)))
    assert (first.get("no"), "v" in heard[0]) == ("terms", True)


def test_the_price_of_a_run_stays_whatever_its_method_is_built_from(tmp_path):
    method = private_terms().made(Facts(4, 20, 130))[0]
    Policy().check_cost(method, tmp_path, "r1")
    Policy().check_cost(method, tmp_path, "r1")
    dearer = private_terms(epsilon=2.0).made(Facts(4, 20, 130))[0]
    with pytest.raises(Refused, match="by other terms"):
        Policy().check_cost(dearer, tmp_path, "r1")
    assert policy.spent(tmp_path)["r1"] == pytest.approx(1.0)


def test_a_cost_that_rounding_puts_above_its_limit_is_within_it(tmp_path):
    assert policy.within(1.0000000000000002, 1.0)
    assert not policy.within(1.00001, 1.0)
    assert policy.within(1e9, None)
    federation(tmp_path, blocks(), private_terms(rounds=8), ["epsilon = 1.0\ntotal_epsilon = 1.0\n"] * 4)
    assert policy.spent(tmp_path / "alice")["r1"] == pytest.approx(1.0)


def test_clients_may_come_late_and_waits_may_change_under_one_name():
    first, late = terms_of(names=NAMES[:3]), terms_of().joined_by(["eve"])
    assert first.digest == late.digest == RunTerms("r1", late.config, Patience(silence=77)).digest
    assert terms_of(secure=True).digest != terms_of(secure=True).joined_by(["eve"]).digest
    assert terms_of("r2").digest != terms_of().digest != terms_of(rank=4).digest


REFUSING = [
    ("methods = ['oneshot']", {}, "method"),
    ("least_rows = 31", {}, "rows"),
    ("private = true", {}, "private"),
    ("epsilon = 1.0", {}, "private"),
    ("secure = true", {}, "secure"),
    ("approval = true", {}, "approval"),
    ("epsilon = 0.5", {"method": "dp-moments", "epsilon": 1.0, "delta": 1e-6}, "epsilon"),
    ("total_epsilon = 0.5", {"method": "dp-moments", "epsilon": 1.0, "delta": 1e-6}, "total"),
    ("private = true", {"method": "dp-moments", "epsilon": 1.0, "delta": 1e-6, "insecure_noise_seed": 1}, "private"),
    (
        "private = true",
        {"method": "dp-moments", "epsilon": 1e9, "delta": 1e-6},
        "limits",
    ),  # which hides nothing, either
    ("epsilon = 1.0", {"method": "dp-moments", "epsilon": 1.0, "delta": 0.999}, "delta"),  # which hides nothing
    ("least_rows = 31", {"method": "dp-moments", "epsilon": 1e9, "delta": 1e-6}, "limits"),
    ("least_rows = 31", {"method": "dp-moments", "epsilon": 1.0, "delta": 1e-6, "insecure_noise_seed": 1}, "rows"),
    ("", {"method": "dp-moments", "epsilon": 1.0, "delta": 1e-6, "secure": True, "curious": 0}, "curious"),
    ("curious = 2", {"method": "dp-moments", "epsilon": 1.0, "delta": 1e-6, "secure": True}, "curious"),
    ("", {"rank": 1001}, "rank"),
    ("rank = 2", {}, "rank"),
    ("rounds = 9", {"rounds": 10}, "rounds"),
    ("", {"method": "dp-nmf", "epsilon": 1.0, "delta": 1e-6, "options": {"rounds": 10_001}}, "rounds"),
]


@pytest.mark.parametrize(("text", "asked", "code"), REFUSING)
def test_a_policy_refuses_in_fixed_words_before_anything_leaves(tmp_path, text, asked, code):
    settings = {"inputs": NAMES, "rank": 3, **asked}
    terms = RunTerms("r1", settled(settings))
    job = ClientJob(terms.plain(), Own.read(home_of(tmp_path, blocks()[0], text)))
    if code not in ("rows", "approval"):  # which come after the data
        (tmp_path / "rows.npy").unlink()
    assert said(job) == {"run": "r1", "seq": 1, "no": code}
    assert said(job, "settle", {}, seq=2)["no"] == "order"
    assert not (tmp_path / "runs" / "r1" / "ledger.jsonl").exists()
    assert policy.spent(tmp_path) == {}


@pytest.mark.parametrize("asked", [{"rank": 10**9}, {"rounds": 10**9}, {"options": {"rounds": 10**9}}])
def test_numbers_that_would_take_all_memory_are_refused_before_a_method_is_made(tmp_path, asked):
    told = private_terms().plain()
    told["config"] |= asked
    assert said(ClientJob(told, Own.read(home_of(tmp_path, blocks()[0]))))["no"] == "order"


def test_a_policy_refuses_messages_that_are_too_large_before_the_first_is_made(tmp_path, monkeypatch):
    Xs = [np.ones((3, 400)) for _ in NAMES]
    terms = RunTerms("r1", private_terms(method="dp-moments", rounds=2).config, Patience(silence=5))
    with pytest.raises(Refused, match="bob: its policy does not allow messages as large as those of this run"):
        federation(tmp_path, Xs, terms, [policy.TEXT, "megabytes = 0\n", policy.TEXT, policy.TEXT])
    assert policy.spent(tmp_path / "bob") == {}
    federation(tmp_path, Xs, RunTerms("r2", terms.config, Patience(silence=5)), ["megabytes = 1\n"] * 4)


def test_a_policy_that_cannot_be_read_allows_nothing(tmp_path):
    job = ClientJob(terms_of().plain(), Own.read(home_of(tmp_path, blocks()[0], "methods = 3")))
    assert said(job)["no"] == "failed"
    with pytest.raises(CofactorError, match="unknown key 'method'"):
        Policy.read(home_of(tmp_path, blocks()[0], "method = 3"))


def test_a_person_approves_or_denies(tmp_path):
    home = home_of(tmp_path, blocks()[0], "approval = true")
    job = ClientJob(terms_of().plain(), Own.read(home))
    assert said(job)["no"] == "approval"
    with pytest.raises(CofactorError, match="that waits for approval; found: r1"):
        policy.answer(home, "r7", True)
    assert policy.answer(home, "r1", True)["config"]["method"] == "exact"
    assert said(job, seq=2)["v"]["features"] == 20
    policy.answer(home, "r1", False)
    assert said(job, seq=3)["no"] == "denied"


@pytest.mark.parametrize("X", [blocks()[0], -blocks()[0], blocks()[0][:1]], ids=["good", "negative", "too few"])
def test_nothing_is_told_of_the_data_before_a_person_has_approved(tmp_path, X):
    home = home_of(tmp_path, X, "least_rows = 5\napproval = true\n")
    assert said(ClientJob(terms_of().plain(), Own.read(home)))["no"] == "approval"


def test_a_yes_is_for_the_terms_that_a_person_has_seen(tmp_path):
    home = home_of(tmp_path, blocks()[0], "approval = true")
    assert said(ClientJob(terms_of().plain(), Own.read(home)))["no"] == "approval"
    policy.answer(home, "r1", True)
    other = terms_of(method="fedavg", rank=15, rounds=500)
    assert said(ClientJob(other.plain(), Own.read(home)))["no"] == "terms"
    (home / "runs" / "r1" / "terms.json").unlink()  # the answer alone is bound to what was asked, too
    assert said(ClientJob(other.plain(), Own.read(home)))["no"] == "terms"
    (home / "runs" / "r1" / "terms.json").unlink()
    assert "v" in said(ClientJob(terms_of().plain(), Own.read(home)))


def test_the_server_waits_for_approval(tmp_path, monkeypatch):
    terms = RunTerms("r1", terms_of().config, Patience(silence=5, approval=30))
    asked = iter([False, False])
    real = Policy.check_approved

    def check(self, home, terms):
        if home.name == "bob" and next(asked, None) is False:
            raise Refused("approval")
        real(self, home, terms)

    monkeypatch.setattr(Policy, "check_approved", check)
    monkeypatch.setattr(server_job, "WAIT", 0.01)
    federation(tmp_path, blocks(), terms)
    events = (tmp_path / "server" / "r1" / "events.jsonl").read_text()
    assert events.count("waits for a person to approve") == 1


def test_features_are_matched_by_salted_hashes(tmp_path):
    Xs, names = blocks(features=6), [f"g{i}" for i in range(6)]
    order = [3, 1, 0, 2, 5, 4]
    shuffled = [names, [names[i] for i in order], names, names]
    given = [X if j != 1 else X[:, order] for j, X in enumerate(Xs)]
    folder, heard = federation(tmp_path, given, terms_of(), names=shuffled)
    np.testing.assert_allclose(folder.factor()[0], run(catalog.make("exact", 3), Xs, Plan(5)).factor, atol=1e-9)
    assert folder.factor()[1] == names
    first = [unpack(frame) for frame in heard if b'"hashes"' in frame]
    assert len(first) == 4
    assert not any(b"g1" in frame for frame in heard if b'"hashes"' in frame)


@pytest.mark.parametrize("how", ["intersection", "union"])
def test_features_that_differ(tmp_path, how):
    Xs = blocks(features=8)
    names = [[f"g{i}" for i in range(8)] for _ in Xs]
    Xs[2], names[2] = Xs[2][:, 1:], names[2][1:]
    folder, _ = federation(tmp_path, Xs, terms_of(features=how), names=names)
    assert folder.factor()[1] == [f"g{i}" for i in range(how == "intersection", 8)]
    with pytest.raises(DataError, match="expected the same features at every client, found 7 of 8"):
        federation(tmp_path / "same", Xs, terms_of(), names=names)


def test_no_secret_reaches_the_server_of_a_refused_run(tmp_path, caplog):
    """In the data, in an exception, in a feature name, in a path: only fixed texts leave."""
    Xs, secret = blocks(features=5), "patient-4711"
    names = [[f"g{i}" for i in range(5)] for _ in Xs]
    names[1][2] = secret
    bad = Xs[1].copy()
    bad[3, 2] = -4711.25  # not allowed: the error says where and what
    home = tmp_path / secret
    with pytest.raises(Refused, match="its data cannot be used for this run") as refused:
        federation(home, [Xs[0], bad, Xs[2], Xs[3]], terms_of(), names=names)
    received = b"".join(refused.value.heard)
    for word in (secret, "4711", str(tmp_path), "rows.csv"):
        assert word.encode() not in received
        assert word not in str(refused.value)
    assert "Negative values in data" in caplog.text  # the client's own log says it


def test_data_that_changed_are_refused(tmp_path):
    home = home_of(tmp_path, blocks()[0])
    assert "v" in said(ClientJob(terms_of().plain(), Own.read(home)))
    assert "v" in said(ClientJob(terms_of().plain(), Own.read(home)))
    np.save(home / "rows.npy", blocks()[0] + 1)
    assert said(ClientJob(terms_of().plain(), Own.read(home)))["no"] == "changed"
    (home / "rows.npy").unlink()
    assert said(ClientJob(terms_of().plain(), Own.read(home)))["no"] == "data"
    np.save(home / "rows.npy", blocks()[0])
    assert "v" in said(ClientJob(terms_of().plain(), Own.read(home)))


def test_another_version_is_refused(tmp_path):
    told = {**terms_of().plain(), "version": "0.0.1"}
    assert said(ClientJob(told, Own.read(home_of(tmp_path, blocks()[0]))))["no"] == "version"
    assert terms_of().plain()["version"] == __version__


@pytest.mark.parametrize("wrong", [None, {}, {"run": "../x"}, {"config": {"inputs": ["a"], "rank": "many"}}])
def test_terms_that_are_none_are_refused(tmp_path, wrong):
    told = wrong if not wrong else {**terms_of().plain(), **wrong}
    job = ClientJob(told, Own.read(home_of(tmp_path, blocks()[0])))
    assert said(job)["no"] in ("order", "format")


def settle_order(**changes):
    order = {"number": 0, "clients": 4, "width": 20, "features": 20, "rows": 130, "groups": None, "dtype": "<f8"}
    return {**order, "union": False, "known": {}, "columns": np.arange(20), **changes}


WRONG = [
    {"number": 4},
    {"number": -1},
    {"dtype": "object"},
    {"columns": np.arange(21)},
    {"columns": np.zeros(20, int)},
    {"columns": np.arange(20) + 1},
    {"columns": np.arange(20.0)},
    {"features": 19},
    {"width": 19},
    {"clients": 5},
    {"known": {"prepare.0.keeps": np.ones(20, bool)}, "features": 19},
    {"more": 1},
]


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_settlements_are_refused(tmp_path, wrong):
    job = ClientJob(terms_of().plain(), Own.read(home_of(tmp_path, blocks()[0])))
    assert "v" in said(job)
    assert said(job, "settle", settle_order(**wrong), seq=2)["no"] == "order"
    assert said(job, "settle", settle_order(), seq=3) == {"run": "r1", "seq": 3, "v": None}
    assert said(job, "settle", settle_order(), seq=4)["no"] == "order"  # once


def test_configurations(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text("rank = 3\nmethod = 'fedavg'\n[federation]\nleast = 3\nsilence = 10\n")
    config, waits = read_config(file, NAMES)
    assert config.inputs == NAMES
    assert waits == Patience(silence=10, least=3)
    for text, words in [
        ("rank = 3\nsplit = 4", "unknown key 'split'"),
        ("rank = 3\ninputs = ['eve']", "unknown client 'eve'"),
        ("rank = 3\n[federation]\npatience = 3", "unknown setting of the federation 'patience'"),
        ("rank = 3\n[federation]\nsilence = -1", "silence: expected a positive number"),
        ("rank = 3\nmethod = 'dsanls'", "works on row and column blocks of one matrix"),
        ("rank =", "expected TOML"),
    ]:
        file.write_text(text)
        with pytest.raises(CofactorError, match=words):
            read_config(file, NAMES)
    assert settled({"inputs": NAMES, "rank": 3, "method": "auto"}).method == "exact"
    assert RunTerms.read(json.loads(json.dumps(terms_of().plain()))) == terms_of()
    assert isinstance(terms_of().config, Config)
    assert set(REFUSALS) >= {"method", "rows", "epsilon", "total", "secure"}


def test_a_full_disk_at_a_client_ends_nothing(tmp_path, monkeypatch):
    Xs, sync = blocks(), os.fsync
    full = str(tmp_path / "carol" / "runs")

    def fsync(number):
        if os.readlink(f"/proc/self/fd/{number}").startswith(full):
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(number)

    monkeypatch.setattr(os, "fsync", fsync)
    folder, _ = federation(tmp_path, Xs, terms_of())
    np.testing.assert_array_equal(folder.factor()[0], run(catalog.make("exact", 3), Xs, Plan(5)).factor)
    events = [json.loads(line) for line in (tmp_path / "server" / "r1" / "events.jsonl").read_text().splitlines()]
    assert [e["client"] for e in events if "cannot write its state" in e["what"]] == ["carol"]
    assert not (tmp_path / "carol" / "runs" / "r1" / "clients" / "carol" / "codes.npy").exists()
    assert (tmp_path / "bob" / "runs" / "r1" / "clients" / "bob" / "codes.npy").exists()
    assert len(folder.evaluation().clients) == 4


def test_a_report_that_cannot_be_made_at_a_client_ends_nothing(tmp_path, monkeypatch):
    """Such as where a package of it is missing there: the run is over, and codes are written."""

    def broken(path):
        raise RuntimeError(f"no template for {path}")

    monkeypatch.setattr("cofactor.report.html.render", broken)
    folder, _ = federation(tmp_path, blocks(), terms_of())
    np.testing.assert_array_equal(folder.factor()[0], run(catalog.make("exact", 3), blocks(), Plan(5)).factor)
    assert (tmp_path / "bob" / "runs" / "r1" / "clients" / "bob" / "codes.npy").exists()


def test_a_full_disk_is_said_in_fixed_words_and_is_not_for_ever(tmp_path, monkeypatch):
    """A private run needs what it writes at the client; when there is room again it goes on."""
    home, full = home_of(tmp_path, blocks()[0]), OSError(errno.ENOSPC, "No space left on device")

    def fsync(number):
        raise full

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        assert said(ClientJob(private_terms().plain(), Own.read(home)))["no"] == "disk"
        assert not list((home / "runs" / "r1").iterdir())  # nothing is half written
        assert "v" in said(ClientJob(terms_of("r2").plain(), Own.read(home)))
    job = ClientJob(private_terms().plain(), Own.read(home))
    assert "v" in said(job)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        assert said(job, "settle", settle_order(rows=None), seq=2)["no"] == "disk"
    assert said(job, "settle", settle_order(rows=None), seq=3)["v"] is None


def test_a_private_run_is_signed_by_the_client_and_charged_to_its_ledger_over_runs(tmp_path):
    """The client's own folder has charges and ledger, signed by its own key; its ledger over runs refuses a third."""
    private = {"method": "dp-moments", "epsilon": 1.0, "delta": 1e-6}
    account.new(tmp_path / "alice" / "site.jsonl", epsilon=1.5, delta=1e-6)
    texts = ['ledger = "site.jsonl"\n', *[policy.TEXT] * 3]
    for run_name in ("r1", "r2"):
        terms = RunTerms(run_name, settled({"inputs": NAMES, "rank": 3, **private}), Patience(silence=5))
        federation(tmp_path, blocks(), terms, texts)
        kept = RunFolder.open(tmp_path / "alice" / "runs" / run_name)
        check = kept.verify()
        assert check.ok
        assert check.own == ["alice"]
        assert len(check.charges) == 1
        assert kept.manifest()["keys"]["alice"] == kept.client("alice").key().public
        assert "alice" in (kept.path / "report.html").read_text()
    spent = account.read(tmp_path / "alice" / "site.jsonl").spent().epsilon
    assert 1.3 < spent < 1.5
    third = RunTerms("r3", settled({"inputs": NAMES, "rank": 3, **private}), Patience(silence=5))
    with pytest.raises(Refused, match="all runs together have cost is too much"):
        federation(tmp_path, blocks(), third, texts)
    with pytest.raises(Refused, match="its policy allows private runs only"):
        federation(tmp_path, blocks(), terms_of("r4"), texts)
    line = (kept.path / "ledger.jsonl").read_text()
    (kept.path / "ledger.jsonl").write_text(line.replace('"round": 0', '"round": 1', 1))
    assert not kept.verify().ok


@pytest.mark.parametrize("file", ["rows.csv", "rows.parquet", "rows.h5ad"])
def test_a_client_leaves_columns_out_that_no_run_reads(tmp_path, file):
    """Text and numbers alike: in a private run a column of text was refused, and one of numbers was a feature."""
    X = np.random.default_rng(0).random((9, 3))
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    more = {"age": 4711.0} if file.endswith(".h5ad") else {"age": 4711.0, "patient": [f"p{i}" for i in range(9)]}
    frame = frame.assign(**more)
    if file.endswith(".csv"):
        frame.to_csv(tmp_path / file, index=False)
    elif file.endswith(".parquet"):
        frame.to_parquet(tmp_path / file)
    else:
        anndata.AnnData(frame).write_h5ad(tmp_path / file)
    for private in (True, False):
        table = Own(tmp_path, tmp_path / file, "salt", left_out=tuple(more)).table(private=private)
        assert table.feature_names == ["a", "b", "c"]
        np.testing.assert_array_equal(table.X, X)


def test_a_client_refuses_ratings_as_columns(tmp_path):
    """Their users and items were taken for features."""
    (tmp_path / "ratings.csv").write_text("userId,movieId,rating\n1,2,3.5\n2,2,4.0\n")
    with pytest.raises(CofactorError, match="expected features in columns, found lines of user,item,rating"):
        Own(tmp_path, tmp_path / "ratings.csv", "salt").table(private=False)


@pytest.mark.parametrize("secure", [False, True])
def test_preparation_and_markers_are_sums_over_the_network(tmp_path, secure):
    rng = np.random.default_rng(3)
    names = [f"g{i}" for i in range(12)]
    counts = [rng.poisson(3 * X + 0.2).astype(float) for X in blocks((40, 50, 45, 60), features=12)]
    settings = {"rounds": 6, "prepare": "library,log1p,hvg=8", "secure": secure}
    folder, heard = federation(tmp_path, counts, terms_of(**settings), names=[names] * 4)
    for name, X in zip(NAMES, counts, strict=True):
        (tmp_path / f"{name}.csv").write_text(
            "\n".join([",".join(names), *(",".join(map(repr, row)) for row in X.tolist())])
        )
    config = Config([str(tmp_path / f"{name}.csv") for name in NAMES], 3, tol=0.0, **settings)
    here = fit(config, tmp_path / "here")
    np.testing.assert_allclose(folder.factor()[0], here.factor()[0], atol=1e-5 if secure else 1e-9)
    assert folder.factor()[1] == here.factor()[1]
    assert folder.verify().ok
    np.testing.assert_allclose(folder.public()[SCORES], here.public()[SCORES], atol=1e-3 if secure else 1e-8)
    own = RunFolder.open(tmp_path / "bob" / "runs" / "r1")
    assert own.verify().ok
    rounds = {line["round"] for line in map(json.loads, own.ledger_file.read_text().splitlines())}
    assert rounds == {-1, *range(7)}
    codes, rows = np.load(own.client("bob").path / "codes.npy"), tmp_path / "bob" / "rows.csv"
    np.testing.assert_allclose(transform(own, rows).codes, codes, atol=1e-9)  # what it keeps finds the same again
    loaded = FederatedNMF.load(own.path / "factor.npz")
    np.testing.assert_allclose(loaded.transform(pd.read_csv(rows)), codes, atol=1e-9)
    agreed = json.loads((own.path / "agreed.json").read_text())
    assert (agreed["prepare"], agreed["common"], agreed["features"]) == ("library,log1p,hvg=8", 12, 9)  # two tie
    assert any(b"hvg" in frame for frame in heard)


def test_the_plan_of_the_features_is_shown_to_every_client_before_the_first_sum_leaves(tmp_path, monkeypatch):
    seen, real = [], OwnRun.asked

    def asked(self, t, message):
        if t < 0:
            seen.append([json.loads((tmp_path / name / "runs" / "r1" / "agreed.json").read_text()) for name in NAMES])
        real(self, t, message)

    monkeypatch.setattr(OwnRun, "asked", asked)
    counts = [np.round(10 * X) for X in blocks((40, 50, 45, 60), features=12)]
    federation(tmp_path, counts, terms_of(prepare="library,log1p,hvg=8"))
    plan = {"clients": 4, "own": 12, "common": 12, "features": None, "how": "same", "prepare": "library,log1p,hvg=8"}
    assert seen == [[plan] * 4] * 4
    assert json.loads((tmp_path / "bob" / "runs" / "r1" / "agreed.json").read_text()) == {**plan, "features": 8}


def test_keys_that_were_handed_over(tmp_path):
    """With the public keys of all in every home secure sums rest on them; a foreign key in one home is noticed."""
    for name in NAMES:
        hand_over.make(tmp_path / name, name)
    assert not hand_over.has_all(tmp_path / "alice", NAMES)
    text = policy.TEXT.replace("keys = false", "keys = true")
    with pytest.raises(Refused, match="asks for keys that clients have exchanged beforehand"):
        federation(tmp_path, blocks(), terms_of("r0", secure=True), [text] * 4)
    for name in NAMES:
        for other in set(NAMES) - {name}:
            shutil.copy(tmp_path / other / "keys" / f"{other}.pub", tmp_path / name / "keys")
    folder, _ = federation(tmp_path, blocks(), terms_of(secure=True), [text] * 4)
    assert "exchanged beforehand" in folder.manifest()["masks"]
    assert "exchanged beforehand" in RunFolder.open(tmp_path / "bob" / "runs" / "r1").manifest()["masks"]
    (tmp_path / "bob" / "keys" / "alice.pub").unlink()
    (tmp_path / "eve").mkdir()
    hand_over.make(tmp_path / "eve", "alice")
    shutil.copy(tmp_path / "eve" / "keys" / "alice.pub", tmp_path / "bob" / "keys" / "alice.pub")
    with pytest.raises(CofactorError):
        federation(tmp_path, blocks(), terms_of("r2", secure=True), [text] * 4)


def test_what_a_client_says_before_a_private_run_depends_on_no_row(tmp_path):
    """It told the precision of its numbers, which one large row changed, that its last row was gone, or one too few."""
    X = np.random.default_rng(0).random((20, 5)).astype(np.float32)
    large = np.vstack([X, np.full((1, 5), 2.0**41, np.float32)])
    terms = terms_of(names=["alice", "bob"], method="dp-moments", epsilon=1.0, delta=1e-6, rounds=None)
    text = "least_rows = 20\nepsilon = 1.0\n"
    told = []
    for j, data in enumerate((X, large, X[:19], X[:1], X[:0])):
        home = home_of(tmp_path / str(j) / "alice", data, text)
        told.append(said(ClientJob(json.loads(json.dumps(terms.plain())), Own.read(home)))["v"])
    assert all(one == told[0] for one in told)
    assert (told[0]["features"], told[0]["dtype"], told[0]["rows"]) == (5, "<f4", None)


NO_STATES = {
    "a feature that there is not": {"features": np.arange(5) + 5},
    "a centre of other features": {"center": np.zeros(4)},
    "a centre out of any range": {"center": np.full(5, 1e300)},
    "no bound": {"bound": np.float64(0)},
    "one array more": {"other": np.zeros(3)},
}


def settled_job(home, X, **settings):
    """Return a client that has settled a private run over five features."""
    private = {"names": ["alice", "bob"], "epsilon": 1.0, "delta": 1e-6, "rounds": None, **settings}
    job = ClientJob(json.loads(json.dumps(terms_of(**private).plain())), Own.read(home_of(home, X)))
    assert "v" in said(job)
    return job, {
        **{"number": 0, "clients": 2, "width": 5, "union": False, "columns": np.arange(5), "features": 5},
        **{"rows": None, "groups": None, "dtype": "<f8", "known": {}},
    }


@pytest.mark.parametrize("what", NO_STATES)
def test_a_server_that_lies_learns_no_row_from_what_a_private_client_fails_at(tmp_path, what):
    """Without rows nothing failed, with one it did: whether the last row is there was told, whatever epsilon is."""
    told = []
    for rows in (0, 1, 20):
        job, order = settled_job(tmp_path / str(rows), np.ones((rows, 5)), method="dp-moments")
        assert "v" in said(job, "settle", order, seq=2)
        state = job.member.method.start(5, np.random.default_rng(0)).broadcast()
        state = state._replace(extra={**state.extra, **NO_STATES[what]})
        told.append(said(job, "step", {"t": 0, "counted": -1, "shared": state, "work": None}, seq=3))
        assert "v" in said(job, "finish", {"factor": np.full((3, 5), 1e308)}, seq=4)  # nor at the end
        assert said(job, "finish", {"factor": np.ones((9, 5))}, seq=5)["no"] == "order"
    assert told == [{"run": "r1", "seq": 3, "no": "failed"}] * 3


@pytest.mark.parametrize("settings", [{"method": "dp-moments"}, {"method": "dp-nmf", "prepare": "library"}])
def test_features_that_a_client_lacks_are_as_the_terms_say(tmp_path, settings):
    """Where a server said that some may be lacking, a client with a row failed, and one without rows answered."""
    for rows in (0, 1, 20):
        job, order = settled_job(tmp_path / str(rows), np.ones((rows, 5)), **settings)
        assert said(job, "settle", {**order, "union": True}, seq=2)["no"] == "order"
        assert "v" in said(job, "settle", order, seq=3)


def test_steps_of_single_rows_are_as_the_terms_say_whatever_the_server_has_learned(tmp_path):
    """A target of its own made rows of some size overflow, and the client then said that its data cannot be used."""
    for size in (1.0, 1e-290):
        job, order = settled_job(tmp_path / str(size), np.full((3, 5), size), method="dp-moments", prepare="library")
        wrong = {**order, "known": {"prepare.0.target": np.array(1e38, np.float32)}}
        assert said(job, "settle", wrong, seq=2)["no"] == "order"
        assert "v" in said(job, "settle", order, seq=3)
