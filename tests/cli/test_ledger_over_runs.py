"""Ledgers on the command line: totals over runs, foreign keys, first editions; what is wrong is one line and code 2."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest
from tests.helpers.command import BUDGET, FILES, cofactor, refused

from cofactor import files
from cofactor.assurance import ledger
from cofactor.files import held
from cofactor.jobs import inspect
from cofactor.jobs.folder import RunFolder
from cofactor.privacy import account, signing
from cofactor.privacy.book import Book
from cofactor.privacy.chain import Seal

pytestmark = pytest.mark.filterwarnings("ignore:Mind that")


@pytest.fixture
def site(home: Path, tmp_path: Path) -> Path:
    """A ledger, and the files of three clients beside it."""
    for name in FILES:
        shutil.copy(home / name, tmp_path / name)
    told = cofactor("ledger", "new", "site.jsonl", "--epsilon", 1.5, "--delta", 1e-6, cwd=tmp_path).stdout
    assert "a ledger of epsilon = 1.5 at delta = 1e-06 (unit: record) for all runs with it" in told
    return tmp_path


def fit(site: Path, out: str, *words, check: int = 0):
    return cofactor("fit", *FILES, "-k", 3, *BUDGET, "--ledger", "site.jsonl", "--out", out, "-q", *words, cwd=site,
                    check=check)  # fmt: skip


def test_two_runs_add_up_and_a_third_is_refused_without_a_trace(site) -> None:
    fit(site, "one")
    fit(site, "two")
    spent = json.loads(cofactor("privacy", "spend", "site.jsonl", "--json", cwd=site).stdout)
    assert spent["epsilon"] == pytest.approx(1.45467, rel=1e-5)
    assert spent["budget"]["epsilon"] == 1.5
    text = cofactor("privacy", "spend", "site.jsonl", cwd=site).stdout
    assert text.startswith("spent in 4 rounds: epsilon = 1.45467 at delta = 1e-06 (unit: record")
    assert "budget: epsilon = 1.5 at delta = 1e-06" in text
    error = fit(site, "three", check=2).stderr
    assert "of which 1.45467 is spent; with this run it would be 1.81378. Nothing was released." in error
    assert not (site / "three").exists()
    assert "ok: 5 lines, key" in cofactor("ledger", "verify", "site.jsonl", cwd=site).stdout
    assert cofactor("ledger", "show", "site.jsonl", cwd=site).stdout.count("Gaussian") >= 4
    assert len(json.loads(cofactor("ledger", "show", "site.jsonl", "--json", cwd=site).stdout)) == 5
    assert RunFolder(site / "one").config().ledger == str((site / "site.jsonl").resolve())


def test_a_total_of_clients_is_for_zero_out_neighbours(tmp_path) -> None:
    """That a client takes part is known to all: what is hidden is what it holds."""
    cofactor("ledger", "new", "site.jsonl", "--epsilon", 2, "--delta", 1e-3, "--unit", "client", cwd=tmp_path)
    spent, budget = cofactor("privacy", "spend", "site.jsonl", cwd=tmp_path).stdout.splitlines()
    for line in (spent, budget):
        assert "(unit: client; neighbours: zero out one;" in line
    for words in (("fit",), ("privacy", "plan"), ("ledger", "new")):
        told = re.sub(r"[\s│]+", " ", cofactor(*words, "--help", cwd=tmp_path).stdout)
        assert "presence" not in told
        assert "replaced by nothing" in told


def test_what_is_wrong_with_a_ledger_is_one_line(site, monkeypatch) -> None:
    words = ("fit", *FILES, "-k", 3, *BUDGET, "-q", "--ledger")
    assert "cofactor ledger new" in refused(*words, "none.jsonl", cwd=site)
    assert "epsilon: expected a total to go with ledger" in refused(*words[:6], "--ledger", "site.jsonl", cwd=site)
    monkeypatch.setattr(files, "WAIT", 0.1)
    with held(site / "site.jsonl.lock", "it"):
        assert f"but process {os.getpid()} on" in refused(*words, "site.jsonl", cwd=site)
    key = site / "site.key"
    key.chmod(0o640)
    assert "expected permissions 600" in refused(*words, "site.jsonl", cwd=site)
    assert "found 640" in cofactor("privacy", "spend", "site.jsonl", cwd=site, check=2).stderr
    key.chmod(0o600)
    fit(site, "one")
    some = ("fit", *FILES[:2], "-k", 3, *BUDGET, "-q", "--ledger", "site.jsonl")
    assert "a ledger of other data: its 2 rounds were charged for other rows" in refused(*some, cwd=site)
    text = (site / "site.jsonl").read_text()
    lines = text.splitlines(keepends=True)
    (site / "site.jsonl").write_text("".join(lines[:-1]))  # as if a crash had kept it: it is in the seal
    assert "spent in 2 rounds" in cofactor("privacy", "spend", "site.jsonl", cwd=site).stdout
    (site / "site.jsonl").write_text(lines[0])
    for verb in (("privacy", "spend", "site.jsonl"), (*words, "site.jsonl", "--out", "two")):
        error = cofactor(*verb, cwd=site, check=2).stderr
        assert "expected 3 lines, found 1: lines were removed from the end. Look at it with" in error
    (site / "site.jsonl").write_text(text.replace('"multiplier": ', '"multiplier": 9', 1))
    assert "line 2: was changed" in cofactor("privacy", "spend", "site.jsonl", cwd=site, check=2).stderr
    assert "BROKEN site.jsonl, line 2" in cofactor("ledger", "verify", "site.jsonl", cwd=site, check=1).stdout
    assert not json.loads(cofactor("ledger", "verify", "site.jsonl", "--json", cwd=site, check=1).stdout)["ok"]


def test_a_total_cannot_be_raised_by_whoever_has_no_key(site) -> None:
    """The ledger cut back to its total, with a seal to go with it: nothing is added up, and no run begins."""
    fit(site, "one")
    file = site / "site.jsonl"
    first = json.loads(file.read_text().splitlines()[0])
    file.write_text(json.dumps(first) + "\n")
    Book(file).add([], {account.CHAIN: Seal(1, first["hash"])})
    said = "site.jsonl.seal: is not signed: an edition of cofactor"
    assert said in cofactor("ledger", "verify", "site.jsonl", cwd=site, check=1).stdout
    assert said in cofactor("privacy", "spend", "site.jsonl", cwd=site, check=2).stderr
    assert said in fit(site, "two", check=2).stderr
    assert not (site / "two").exists()
    assert len(json.loads(cofactor("ledger", "show", "site.jsonl", "--json", cwd=site).stdout)) == 1


def signed_again(run: Path) -> None:
    """Write the whole run anew with other keys: every chain and every signature fits the manifest."""
    folder = RunFolder.open(run)
    manifest = folder.manifest()
    others = {name: signing.Key(os.urandom(32)) for name in manifest["keys"]}
    lines = {of: [line.entry for line in ledger.read(run / of, of)] for of in (ledger.FILE, ledger.CHARGES)}
    manifest = {**manifest, "keys": {name: key.public for name, key in others.items()}}
    del manifest["ledger"]
    (run / "manifest.json").write_text(json.dumps(manifest))
    for of in lines:
        (run / of).unlink()
    for of, book in folder.books().items():
        bare = [{n: v for n, v in e.items() if n not in ("previous", "hash", "signature")} for e in lines[of]]
        told = book.prepare(bare)
        book.write({i: others[client].sign(digest) for i, (client, digest) in enumerate(told)})
    ends, header = folder.ends(), ledger.header(manifest)
    signatures = {name: key.sign(ledger.end_of(header, name, ends)) for name, key in others.items()}
    folder.seal({**ends, "signatures": signatures})


def test_a_run_that_was_signed_with_foreign_keys_is_found_out_by_those_who_have_their_own(copied) -> None:
    signed_again(copied)
    out = cofactor("ledger", "verify", "run", cwd=copied.parent, check=1).stdout
    for name in "abc":
        assert f"names another key of {name} than its own folder has: the run was signed with a foreign key" in out
    assert "signed with a foreign key" in cofactor("privacy", "spend", "run", cwd=copied.parent, check=2).stderr
    for key in copied.glob("clients/*/ledger.*"):
        key.unlink()
    told = cofactor("ledger", "verify", "run", cwd=copied.parent).stdout
    assert "Keys are those of the manifest; not all clients' own are here to compare." in told


def test_charges_that_were_removed_are_found_out(copied) -> None:
    file = copied / "charges.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    out = cofactor("ledger", "verify", "run", cwd=copied.parent, check=1).stdout
    assert "charges.jsonl: expected 2 lines of c, found 1: lines were removed from the end" in out
    file.write_text("")
    assert "all 2 lines of a were removed" in cofactor("privacy", "spend", "run", cwd=copied.parent, check=2).stderr
    manifest = json.loads((copied / "manifest.json").read_text())
    manifest["ledger"]["charges"] = {}
    (copied / "manifest.json").write_text(json.dumps(manifest))
    error = cofactor("privacy", "spend", "run", cwd=copied.parent, check=2).stderr
    assert "left in round 0 at a price that was not charged" in error
    assert (
        "the end of the ledger is not signed by a"
        in cofactor("ledger", "verify", "run", cwd=copied.parent, check=1).stdout
    )


def test_a_key_that_others_can_read_is_named(copied) -> None:
    (copied / "clients" / "b" / "ledger.key").chmod(0o604)
    for verb in (("ledger", "verify"), ("privacy", "spend")):
        error = cofactor(*verb, "run", cwd=copied.parent, check=2).stderr
        assert "b/ledger.key: expected permissions 600" in error
        assert "they can sign lines too" in error
        assert "give the new .pub file" not in error  # that is for keys of masks


@pytest.mark.parametrize(
    ("name", "removed"), [("privacy.json", None), ("evaluation.json", None), ("privacy.json", "evaluation.json")]
)
def test_a_total_that_was_changed_beside_the_ledger_is_found_out(copied, name, removed) -> None:
    """Without evaluation.json, which is written last, a run looked as if its total were still to come."""
    if removed:
        (copied / removed).unlink()
    told = json.loads((copied / name).read_text())
    (told if name == "privacy.json" else told["privacy"])["epsilon"] /= 10
    (copied / name).write_text(json.dumps(told))
    out = cofactor("ledger", "verify", "run", cwd=copied.parent, check=1).stdout
    assert f"BROKEN {name}: expected the total of what was charged, epsilon = " in out
    assert "found another one, or none" in cofactor("privacy", "spend", "run", cwd=copied.parent, check=2).stderr


@pytest.mark.parametrize("at", [0, -1])
def test_an_epsilon_that_was_changed_in_the_history_is_found_out(copied, at) -> None:
    file = copied / "history.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    lines[at]["epsilon"] *= 0.9
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    out = cofactor("ledger", "verify", "run", cwd=copied.parent, check=1).stdout
    assert f"BROKEN history.jsonl, round {lines[at]['round']}: expected the epsilon of what was charged up to it" in out


def test_a_total_that_was_taken_away_is_found_out(copied) -> None:
    (copied / "privacy.json").unlink()
    out = cofactor("ledger", "verify", "run", cwd=copied.parent, check=1).stdout
    assert "BROKEN privacy.json: expected the total of what was charged" in out


def test_a_ledger_of_the_first_edition_can_be_looked_at_and_is_not_added_up(copied) -> None:
    """Without keys, charges and signatures, and with costs that had other fields."""
    manifest = json.loads((copied / "manifest.json").read_text())
    for name in ("keys", "ledger"):
        del manifest[name]
    (copied / "manifest.json").write_text(json.dumps(manifest))
    (copied / "charges.jsonl").unlink()
    lines = [json.loads(line) for line in (copied / "ledger.jsonl").read_text().splitlines()]
    for line in lines:
        del line["signature"]
        line["cost"] = {"mechanism": "Gaussian", "multiplier": 5.0, "count": 1, "sampling": 1.0}
    (copied / "ledger.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert len(json.loads(cofactor("ledger", "show", "run", "--json", cwd=copied.parent).stdout)) == len(lines)
    assert "moment" in cofactor("ledger", "show", "run", cwd=copied.parent).stdout
    error = cofactor("privacy", "spend", "run", cwd=copied.parent, check=2).stderr
    assert "the first edition of cofactor wrote this private run, or its keys were removed" in error
    assert "the first edition" in cofactor("ledger", "verify", "run", cwd=copied.parent, check=1).stdout
    folder = RunFolder.open(copied)
    verdicts = [line.passed for line in inspect.of_folder(folder, inspect.method_of(folder))]
    assert verdicts == [False, False, False]
