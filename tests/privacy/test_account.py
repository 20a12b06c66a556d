"""Ledgers over runs: they add up exactly, know their data again, and refuse what was tampered with or is too much."""

from __future__ import annotations

import json
import math
import os
import shutil
import socket
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from tests.helpers.chains import unchained
from tests.helpers.kills import Killed, kill_at

from cofactor import FederatedNMF, files, run
from cofactor.engines.checkpoint import Checkpoint
from cofactor.files import HeldError, held
from cofactor.methods import catalog
from cofactor.privacy import Privacy, account, chain, gaussian, signing
from cofactor.privacy.book import Book
from cofactor.privacy.errors import (
    BudgetError,
    DamagedLedgerError,
    KeyFileError,
    LedgerError,
    OtherDataError,
    ParameterError,
    UnitError,
    UnsignedLedgerError,
)

DELTA = 1e-6
Xs = [np.random.default_rng(j).random((10 + j, 5)) for j in range(3)]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A ledger with the total of three runs at epsilon 1, and a little."""
    account.new(tmp_path / "site.jsonl", epsilon=1.9, delta=DELTA)
    return tmp_path / "site.jsonl"


def fit(ledger: Path, data: Any = None, epsilon: float = 1.0, **more: Any) -> Any:
    privacy = Privacy(epsilon, more.pop("delta", DELTA), ledger=ledger)
    return run(catalog.make("dp-moments", 2, privacy=privacy), Xs if data is None else data, **more)


def spent(ledger: Path) -> float:
    found = account.read(ledger)
    found.verify()
    return found.spent().epsilon


def test_runs_on_the_same_data_add_up_as_gaussians_do(site) -> None:
    """mu^2 adds up exactly, whatever delta a run asks for itself; it is not epsilon that adds up."""
    mus = []
    for epsilon, delta in ((1.0, DELTA), (0.5, 1e-9), (0.7, 1e-5)):
        fit(site, epsilon=epsilon, delta=delta)
        mus.append(1 / gaussian.calibrate(epsilon, delta))
        assert spent(site) == pytest.approx(gaussian.epsilon(math.hypot(*mus), DELTA), rel=1e-9)
    assert spent(site) < 1.5


def test_what_exceeds_the_total_is_refused_before_anything_leaves(site) -> None:
    for _ in range(3):
        fit(site)
    before = site.read_text()

    def watch(t, answers):
        pytest.fail("a message was sent")

    with pytest.raises(BudgetError, match=r"epsilon = 1.9 .*of which 1.81378 is spent; with this run it would be 2.12"):
        fit(site, watch=watch)
    assert site.read_text() == before
    fit(site, epsilon=0.3)
    assert spent(site) <= 1.9


def test_noise_that_can_be_taken_out_is_in_no_total(site) -> None:
    """A run with an insecure seed is not private: a total that counts it as if it were would be wrong for ever."""
    before, asked = site.read_text(), Privacy(0.1, DELTA, ledger=site, insecure_seed=1)
    with pytest.raises(LedgerError, match="Found noise from an insecure seed"):
        run(catalog.make("dp-moments", 2, privacy=asked), Xs, watch=lambda *_: pytest.fail("a message was sent"))
    assert site.read_text() == before


@pytest.mark.filterwarnings("ignore:Mind that the second moment")
def test_estimators_take_a_ledger_too(site) -> None:
    FederatedNMF(2, privacy=Privacy(1, DELTA, ledger=str(site))).fit(Xs)
    assert spent(site) == pytest.approx(1, rel=1e-9)
    with pytest.raises(UnitError, match="a ledger of the unit record"):
        FederatedNMF(2, privacy=Privacy(1, 1e-2, unit="client", ledger=site)).fit(Xs)


@pytest.mark.parametrize(("unit", "relation"), [("record", "add/remove one"), ("client", "zero out one")])
def test_a_ledger_says_how_neighbours_of_its_unit_differ_before_anything_is_charged(tmp_path, unit, relation) -> None:
    made = account.new(tmp_path / "of.jsonl", epsilon=1, delta=DELTA, unit=unit)
    assert (made.spent().unit, made.spent().relation) == (unit, relation)


def test_a_ledger_of_no_unit_is_refused_before_its_key_is_made(tmp_path) -> None:
    """The key stayed, and kept the ledger that was meant from being begun."""
    with pytest.raises(ParameterError, match=r"unit must be 'record' or 'client'. Found 'row'"):
        account.new(tmp_path / "of.jsonl", epsilon=1, delta=DELTA, unit="row")
    assert list(tmp_path.iterdir()) == []


SAME = {
    "reversed clients": lambda: Xs[::-1],
    "another split": lambda: [np.vstack(Xs)[:4], np.vstack(Xs)[4:]],
    "rows in another order": lambda: [X[::-1] for X in Xs],
    "sparse": lambda: [sparse.csr_matrix(X) for X in Xs],
    "columns": lambda: [sparse.csc_matrix(X) for X in Xs],
    "one client": lambda: [np.vstack(Xs)],
    "in another memory order": lambda: [np.asfortranarray(X) for X in Xs],
}
OTHER = {
    "a client less": lambda: Xs[:2],
    "a row less": lambda: [Xs[0][1:], *Xs[1:]],
    "a row twice": lambda: [np.vstack([Xs[0], Xs[0][:1]]), *Xs[1:]],
    "one other value": lambda: [Xs[0] + np.eye(10, 5) * 1e-9, *Xs[1:]],
    "other columns": lambda: [X[:, ::-1] for X in Xs],
    "rounded": lambda: [X.astype(np.float32) for X in Xs],
}


@pytest.mark.parametrize("form", SAME)
def test_the_same_rows_are_known_again(site, form) -> None:
    fit(site)
    fit(site, SAME[form]())
    assert spent(site) == pytest.approx(1.45467, rel=1e-4)


@pytest.mark.parametrize("form", OTHER)
def test_a_ledger_of_other_data_is_refused(site, form) -> None:
    fit(site)
    with pytest.raises(OtherDataError, match="a ledger of other data"):
        fit(site, OTHER[form]())
    assert spent(site) == pytest.approx(1, rel=1e-9)


def test_what_data_are_known_by_says_nothing_without_the_key(site) -> None:
    fit(site)
    secret = account.read(site).charges[0]["data"]
    other = signing.Key(bytes(32)).secret
    assert secret != account.tag([account.fingerprint(X, other) for X in Xs], 5, other)
    own = signing.load(site.with_suffix(".key")).secret
    assert secret == account.tag([account.fingerprint(X, own) for X in Xs], 5, own)


def test_killed_at_every_write_no_total_is_too_small(tmp_path) -> None:
    point = 0
    while True:
        site, left = tmp_path / f"{point}.jsonl", []
        account.new(site, epsilon=9, delta=DELTA)
        method = catalog.make("dp-moments", 2, privacy=Privacy(1, DELTA, ledger=site))
        try:
            with kill_at(point):
                run(method, Xs, watch=lambda t, answers, left=left: left.append(t))
            break
        except Killed:
            pass
        costs = [c for t in left for c in method.allowance.costs(t).values()]
        assert spent(site) >= gaussian.epsilon(gaussian.compose(c.multiplier for c in costs), DELTA) * (1 - 1e-12)
        before = spent(site)
        fit(site)  # a new run: what the first one charged stays charged
        assert spent(site) == pytest.approx(gaussian.epsilon(_mu(before, 1.0), DELTA), rel=1e-9)
        point += 1
    assert point > 6


def _mu(*epsilons: float) -> float:
    return math.hypot(*(1 / gaussian.calibrate(e, DELTA) if e else 0.0 for e in epsilons))


def test_two_copies_of_one_run_are_both_paid_for(site, tmp_path) -> None:
    """Each has the charges of its own, and cannot know of the other; the ledger over runs counts both."""
    method = catalog.make("dp-moments", 2, privacy=Privacy(1, DELTA, ledger=site))

    def cut(line, shared) -> None:
        raise Killed

    (tmp_path / "one").mkdir()
    with pytest.raises(Killed):
        run(method, Xs, checkpoint=Checkpoint(tmp_path / "one" / "c.npz"), callbacks=[cut])
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    for name in ("one", "two"):
        run(method, Xs, checkpoint=Checkpoint(tmp_path / name / "c.npz"))
    first, second = (method.allowance.costs(t).values() for t in (0, 1))
    mu = gaussian.compose(c.multiplier for c in (*first, *second, *second))
    assert spent(site) == pytest.approx(gaussian.epsilon(mu, DELTA), rel=1e-9)


def test_a_ledger_has_one_lock_whatever_it_is_called(site, tmp_path, monkeypatch) -> None:
    (tmp_path / "alias.jsonl").symlink_to(site)
    monkeypatch.setattr(files, "WAIT", 0.0)
    with account.opened(site), pytest.raises(HeldError), account.opened(tmp_path / "alias.jsonl"):
        pytest.fail("two hold one ledger")


def test_of_two_runs_at_once_one_waits_and_both_are_paid_for(site, monkeypatch) -> None:
    inside, go = threading.Event(), threading.Event()

    def wait(line, shared) -> None:
        inside.set()
        go.wait(30)

    one = threading.Thread(target=lambda: fit(site, callbacks=[wait]))
    one.start()
    assert inside.wait(30)
    monkeypatch.setattr(files, "WAIT", 0.1)
    with pytest.raises(HeldError, match=f"the ledger {site}: .*process {os.getpid()} on {socket.gethostname()}"):
        fit(site)
    monkeypatch.setattr(files, "WAIT", 30.0)
    others = [threading.Thread(target=lambda: fit(site)) for _ in range(2)]
    for thread in others:
        thread.start()
    go.set()
    for thread in (one, *others):
        thread.join(60)
    assert spent(site) == pytest.approx(gaussian.epsilon(_mu(1, 1, 1), DELTA), rel=1e-9)
    assert not list(site.parent.glob("*.lock"))


def lines(site: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in site.read_text().splitlines()]


def end(site: Path, count: int) -> str:
    return chain.end(account.EXTENT, account.CHAIN, chain.Seal(count, lines(site)[count - 1]["hash"]))


def resealed(site: Path, signatures: dict[str, str]) -> None:
    """Cut off all that was charged, and write a seal with somebody's signatures."""
    first = lines(site)[:1]
    write(site, first)
    Book(site).add([], {account.CHAIN: chain.Seal(1, first[0]["hash"])}, signatures)


def write(site: Path, entries: list[dict[str, Any]], *, sealed: bool = False) -> None:
    site.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    if sealed:
        Book(site).add([], {account.CHAIN: chain.Seal(len(entries), entries[-1]["hash"])})


def rechained(entries: list[dict[str, Any]], key: signing.Key | None = None) -> list[dict[str, Any]]:
    """Recompute all hashes, and sign them with a key, or keep the old signatures."""
    last, out = account.begin(key.public if key else entries[0]["public"]).last, []
    for entry in entries:
        link = chain.link(unchained(entry), last)
        last = link["hash"]
        out.append({**link, "signature": key.sign(last) if key else entry["signature"]})
    return out


def cheaper(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for cost in entries[1]["costs"].values():
        cost["multiplier"] = 1e6
    return entries


def foreign(site: Path) -> None:
    key, entries = signing.Key(os.urandom(32)), cheaper(lines(site))
    entries[0]["public"] = key.public
    write(site, rechained(entries, key), sealed=True)


TAMPERED = {
    "a price changed": (lambda s: write(s, cheaper(lines(s))), DamagedLedgerError, "line 2: was changed"),
    "recomputed": (
        lambda s: write(s, rechained(cheaper(lines(s))), sealed=True),
        UnsignedLedgerError,
        "line 2: is not signed by the key",
    ),
    "a foreign key": (foreign, UnsignedLedgerError, "line 1: names another key than site.key: .* a foreign key"),
    "not signed": (
        lambda s: write(s, [{n: v for n, v in e.items() if n != "signature"} for e in lines(s)]),
        UnsignedLedgerError,
        "line 1: is not signed",
    ),
    "the tail removed": (
        lambda s: write(s, lines(s)[:2]),
        DamagedLedgerError,
        "expected 5 lines, found 2: lines were removed from the end",
    ),
    "the tail removed, and the seal written anew": (
        lambda s: write(s, lines(s)[:1], sealed=True),
        UnsignedLedgerError,
        "site.jsonl.seal: is not signed: .*; lines may have been removed",
    ),
    "a seal written anew with the signature of the one before": (
        lambda s: resealed(s, Book(s).ends().signatures),
        UnsignedLedgerError,
        "the end of ledger is not signed by the key that it began with",
    ),
    "a seal written anew with the signature of a line": (
        lambda s: resealed(s, {account.CHAIN: lines(s)[0]["signature"]}),
        UnsignedLedgerError,
        "the end of ledger is not signed by the key that it began with",
    ),
    "a seal written anew with another key": (
        lambda s: resealed(s, {account.CHAIN: signing.Key(os.urandom(32)).sign(end(s, 1))}),
        UnsignedLedgerError,
        "the end of ledger is not signed by the key that it began with",
    ),
    "a seal of an edition that did not sign it": (
        lambda s: write(s, lines(s), sealed=True),
        UnsignedLedgerError,
        "site.jsonl.seal: is not signed: an edition of cofactor",
    ),
    "emptied": (lambda s: s.write_text(""), DamagedLedgerError, "expected the total of a ledger over runs"),
    "without its seal": (
        lambda s: s.with_name("site.jsonl.seal").unlink(),
        DamagedLedgerError,
        "expected the end of the ledger, found none",
    ),
    "a line moved": (
        lambda s: write(s, [lines(s)[i] for i in (0, 2, 1, 3, 4)]),
        DamagedLedgerError,
        "line 2: does not follow the one before it",
    ),
    "no JSON": (lambda s: s.write_text("x\n" + s.read_text()), DamagedLedgerError, "line 1: expected the total"),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_a_ledger_that_was_tampered_with_is_not_added_up_and_not_charged(site, name) -> None:
    change, kind, words = TAMPERED[name]
    for _ in range(2):
        fit(site)
    change(site)
    with pytest.raises(kind, match=words) as refusal:
        account.read(site).verify()
    assert "`cofactor ledger verify" in str(refusal.value)
    with pytest.raises(kind, match=words):
        fit(site)


def test_a_ledger_that_was_put_back_with_its_seal_is_not_noticed(site) -> None:
    """What no file beside it can show: an older copy of everything. So the how-to says to keep a copy elsewhere."""
    fit(site)
    seal = site.with_name("site.jsonl.seal")
    old = site.read_text(), seal.read_text()
    fit(site)
    site.write_text(old[0])
    seal.write_text(old[1])
    assert spent(site) == pytest.approx(1, rel=1e-9)


def test_keys_that_are_missing_or_that_others_can_read_are_refused(site) -> None:
    key = site.with_suffix(".key")
    assert key.stat().st_mode & 0o777 == 0o600
    key.chmod(0o644)
    with pytest.raises(KeyFileError, match=r"expected permissions 600 .*found 644. Run: chmod 600"):
        fit(site)
    key.unlink()
    with pytest.raises(KeyFileError, match="expected the private key"):
        fit(site)
    key.write_text("x")
    key.chmod(0o600)
    with pytest.raises(KeyFileError, match="expected an Ed25519 private key"):
        fit(site)


def test_a_ledger_is_begun_once_and_with_a_total(site, tmp_path) -> None:
    with pytest.raises(LedgerError, match="never written over"):
        account.new(site, epsilon=1, delta=DELTA)
    with pytest.raises(LedgerError, match=r"`cofactor ledger new '.*/my site.jsonl' --epsilon 4"):
        fit(tmp_path / "my site.jsonl")
    with pytest.raises(ValueError, match="epsilon must be positive"):
        account.new(tmp_path / "x.jsonl", epsilon=0, delta=DELTA)
    with held(site.with_name("site.jsonl.lock"), "it"):
        assert spent(site) == 0  # whoever reads waits for nobody
