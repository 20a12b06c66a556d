"""What left each client, on the command line: every line is there, and what was tampered with is found out."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from tests.helpers.chains import unchained
from tests.helpers.command import FILES, cofactor
from tests.helpers.shorten import shorten

from cofactor.assurance import ledger, writing
from cofactor.engines.contract import Answer
from cofactor.jobs import inspect
from cofactor.jobs.folder import RunFolder
from cofactor.privacy import Cost, Mechanism, chain
from cofactor.privacy.allowance import Release
from cofactor.types import Message


def read(path: Path):
    return json.loads(path.read_text())


def audited(path: Path):
    """Audit what a run has written: chains, transcript and, of a private one, its budget."""
    folder = RunFolder.open(path)
    return inspect.of_folder(folder, inspect.method_of(folder))


def test_every_line_says_what_left_and_the_chains_hold(copied) -> None:
    cwd = copied.parent
    lines = [json.loads(line) for line in (copied / "ledger.jsonl").read_text().splitlines()]
    keys = "client round array shape dtype bytes clip noise mechanism multiplier cost previous hash signature"
    assert all(set(keys.split()) == set(line) for line in lines)
    assert (
        cofactor("ledger", "verify", "run", cwd=cwd).stdout.splitlines()[-1] == "ok: 9 entries of 3 chains, 6 charges"
    )
    found = json.loads(cofactor("ledger", "verify", "run", "--json", cwd=cwd).stdout)
    last = {line["client"]: line["hash"] for line in lines}
    assert {c["client"]: c["last"] for c in found["clients"]} == last
    table = cofactor("ledger", "show", "run", "--client", "b", cwd=cwd).stdout
    assert "moment" in table
    assert len(json.loads(cofactor("ledger", "show", "run", "--json", cwd=cwd).stdout)) == 9
    assert "expected one of the clients" in cofactor("ledger", "show", "run", "--client", "z", cwd=cwd, check=2).stderr


def edit(change):
    """Change the list of lines."""
    return lambda lines: change(lines) or lines


TAMPERED = {  # the lines of client a are 1, 2 and 7
    "changed": (edit(lambda x: x.__setitem__(1, x[1].replace('"noise": ', '"noise": 1'))), "line 2 (a): was changed"),
    "rehashed": (edit(lambda x: x.__setitem__(0, json.dumps(forged(json.loads(x[0]))))), "line 1 (a): is not signed"),
    "recomputed": (
        lambda x: recomputed(x),  # noqa: PLW0108
        "line 1 (a): is not signed by the key that the run began with: it was changed, and the chain was recomputed",
    ),
    "removed": (edit(lambda x: x.pop(1) and None), "line 6 (a): does not follow the one before it"),
    "moved": (edit(lambda x: x.insert(0, x.pop(1))), "line 1 (a): does not follow the one before it"),
    "cut in a line": (lambda x: [*x[:-1], x[-1][:40]], "line 9: cannot be read"),
    "cut at the end": (lambda x: x[:-1], "expected 3 lines of c, found 2: lines were removed from the end"),
    "a client less": (lambda x: [line for line in x if '"b"' not in line], "all 3 lines of b were removed"),
    "a line twice": (lambda x: [*x, x[-1]], "does not follow the one before it"),
    "a client more": (lambda x: [*x, x[-1].replace('"client": "c"', '"client": "d"')], "(d): was changed"),
    "empty": (lambda x: [], "says nothing of round 0"),
}


def forged(entry):
    """An entry with other content and a hash that fits it."""
    body = unchained(entry)
    return chain.link({**body, "bytes": 1}, entry["previous"])


def recomputed(lines):
    """All lines of a, of which the first was changed, with hashes that fit; their signatures are the old ones."""
    entries, previous = [json.loads(line) for line in lines], None
    entries[0]["bytes"] = 1
    for i, entry in enumerate(entries):
        if entry["client"] == "a":
            body = unchained(entry)
            link = chain.link(body, previous or entry["previous"])
            entries[i], previous = {**link, "signature": entry["signature"]}, link["hash"]
    return [json.dumps(entry) for entry in entries]


@pytest.mark.parametrize("name", TAMPERED)
def test_a_ledger_that_was_tampered_with_is_found_out(copied, name) -> None:
    change, words = TAMPERED[name]
    file = copied / "ledger.jsonl"
    lines = file.read_text().splitlines()
    file.write_text("".join(f"{line}\n" for line in change(lines)))
    out = cofactor("ledger", "verify", "run", cwd=copied.parent, check=1).stdout
    assert words in re.sub(r"\s+", " ", out)
    assert "ok" not in out.splitlines()[-1]
    assert audited(copied)[0].passed is False


def changed(run: Path, **more) -> None:
    """Write the manifest with other values; None takes one out."""
    manifest = {**read(run / "manifest.json"), **more}
    (run / "manifest.json").write_text(json.dumps({n: v for n, v in manifest.items() if v is not None}))


def without_results(run: Path) -> None:
    for name in ("evaluation.json", "factor.npz", "factor.tsv", "privacy.json"):
        (run / name).unlink()


ERASED = {  # by somebody who can write all files of a run that is over, and has no key
    "a round": (lambda run: shorten(run, 1), "ledger.jsonl.seal: is not signed"),
    "all rounds": (lambda run: shorten(run, 0), "charges.jsonl.seal: is not signed"),
    "all rounds and results": (lambda run: [shorten(run, 0), without_results(run)], "ledger.jsonl.seal: is not signed"),
    "a round, with the signatures of the end": (
        lambda run: shorten(run, 1, read(run / "manifest.json")["ledger"]["signatures"]),
        "charges.jsonl.seal: the end of a is not signed by the key that it began with",
    ),
    "the end": (lambda run: changed(run, ledger=None), "charges.jsonl.seal: expected the end of the file, found none"),
    "the end, but for the results": (
        lambda run: shorten(run, 2),
        "expected the signed end of the ledger, since evaluation.json says that the run is over, found none",
    ),
    "all rounds, with an end to go with them": (
        lambda run: [end := read(run / "manifest.json")["ledger"], shorten(run, 0),
                     changed(run, ledger={**end, "clients": {}, "charges": {}})],
        "the end of the ledger is not signed by a",
    ),
    "all rounds and keys": (
        lambda run: [shorten(run, 0), without_results(run), changed(run, keys=None, privacy=None)],
        "manifest.json: names no keys",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ERASED)
def test_what_was_spent_cannot_be_erased_without_a_key(copied, name) -> None:
    change, words = ERASED[name]
    change(copied)
    for file in copied.glob("checkpoint*"):
        file.unlink()
    assert words in cofactor("ledger", "verify", "run", cwd=copied.parent, check=1).stdout
    for verb in (("privacy", "spend"), ("resume",)):
        assert "the ledger does not hold" in cofactor(*verb, "run", cwd=copied.parent, check=2).stderr
    assert audited(copied)[0].passed is False


@pytest.mark.parametrize("line", ["null", "[]", "{}", '{"client": 1}', '{"client": "a", "round": "0"}', "[" * 9000])
def test_a_line_that_is_no_entry_is_named(copied, line) -> None:
    with open(copied / "ledger.jsonl", "a") as file:
        file.write(line + "\n")
    assert "line 10: cannot be read" in cofactor("ledger", "verify", "run", cwd=copied.parent, check=1).stdout
    refusal = cofactor("privacy", "spend", "run", "--json", cwd=copied.parent, check=2).stderr
    assert "the ledger does not hold: ledger.jsonl, line 10: cannot be read. Look at it with" in refusal
    assert len(json.loads(cofactor("ledger", "show", "run", "--json", cwd=copied.parent).stdout)) == 9


def test_an_audit_that_fails_is_exit_code_1(copied) -> None:
    file = copied / "ledger.jsonl"
    file.write_text(file.read_text().replace('"noise": ', '"noise": 1', 1))
    table = re.sub(r"[\s│]+", " ", cofactor("audit", "run", cwd=copied.parent, check=1).stdout)
    assert "hash chain ledger.jsonl FAILED ledger.jsonl, line 1" in table
    assert "sensitivity moment, round 1 passed" in table


def test_another_manifest_breaks_every_chain(copied) -> None:
    manifest = read(copied / "manifest.json")
    (copied / "manifest.json").write_text(json.dumps({**manifest, "seed": 1}))
    out = cofactor("ledger", "verify", "run", cwd=copied.parent, check=1).stdout
    for client in "abc":
        assert f"({client}): does not follow the one before it" in out
        assert f"the end of the ledger is not signed by {client}" in out


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"multiplier": 1.0, "noise": 1.0}, "has paid"),
        ({"noise": 0.5}, "was paid for"),
        ({"shape": [60]}, "has shape (60,)"),
        ({"array": "rows"}, "was not declared"),
        ({"round": 7}, "round 7 was not planned"),
        ({"dtype": "float32"}, "private releases are float64"),
        ({"bytes": 10**6}, "bytes, at most"),
        ({"cost": None}, "was released without noise"),
        ({"clip": None}, "has the bound None"),
        ({"noise": "much"}, "and the noise much"),
    ],
)
def test_a_ledger_with_good_chains_and_a_bad_release_fails_the_audit(copied, change, words) -> None:
    file = copied / "ledger.jsonl"
    first, *rest = [json.loads(line) for line in file.read_text().splitlines()]
    if "multiplier" in change:
        change = {**change, "cost": {**first["cost"], "multiplier": change["multiplier"]}}
    rewritten(copied, [{**first, **change}, *rest])
    assert not any(c.fault for c in RunFolder.open(copied).verify().chains)
    _, transcript, *_ = audited(copied)
    assert transcript.passed is False
    assert words in transcript.text


def rewritten(run: Path, entries) -> None:
    """Write a ledger of other entries, chained and signed by the clients' own keys, as if the run were not over."""
    manifest = read(run / "manifest.json")
    del manifest["ledger"]
    (run / "manifest.json").write_text(json.dumps(manifest))
    folder = RunFolder.open(run)
    folder.ledger_file.unlink()
    books = folder.books()
    books[ledger.CHARGES].book.add([], books[ledger.CHARGES].seals)
    told = books[ledger.FILE].prepare(list(map(unchained, entries)))
    signatures = {i: folder.client(client).key().sign(digest) for i, (client, digest) in enumerate(told)}
    books[ledger.FILE].write(signatures)


def test_a_hundred_thousand_tiny_clients_are_one_line_per_array(tmp_path) -> None:
    names = [f"phone{j}" for j in range(100_000)]
    message = Message({"gram": np.zeros((3, 3)), "loss": np.float64(0)})
    writer = writing.Writer(tmp_path / ledger.FILE, {"seed": 0}, names)
    writer(0, [Answer(np.arange(100_000), message)])
    writer(1, [Answer(np.r_[0:10, 20:500], message), Answer(np.array([600]), message)])
    lines = [json.loads(line) for line in (tmp_path / ledger.FILE).read_text().splitlines()]
    assert len(lines) == 6
    assert (tmp_path / ledger.FILE).stat().st_size < 5000
    assert lines[0]["clients"] == 100_000
    assert lines[0]["members"] == "0-99999"
    assert lines[0]["bytes"] == 72 * 100_000
    assert lines[2]["members"] == "0-9,20-499"
    assert lines[4]["client"] == "phone600"
    assert ledger.verify(tmp_path, {"seed": 0}).ok
    noisy = Release(Cost(Mechanism.GAUSSIAN, 4.0), 1.0, 4.0)
    alone = [Answer(np.array([j]), message._replace(cost={"gram": noisy})) for j in range(20_000)]
    writer(2, [*alone, Answer(np.array([30_000]), message)])
    lines = [json.loads(line) for line in (tmp_path / ledger.FILE).read_text().splitlines()]
    assert [(e["client"], e.get("members"), e["noise"]) for e in lines[6:]] == [
        (ledger.TOGETHER, "0-19999", 4.0),
        (ledger.TOGETHER, "0-19999", None),
        ("phone30000", None, None),
        ("phone30000", None, None),
    ]
    again = writing.Writer(tmp_path / ledger.FILE, {"seed": 0}, names)
    again(3, [Answer(np.array([600]), message)])
    assert ledger.verify(tmp_path, {"seed": 0}, [0, 1, 2, 3]).ok


def test_a_run_without_noise_has_a_chained_ledger_too(home, tmp_path) -> None:
    cofactor("fit", *(home / name for name in FILES), "-k", 3, "--rounds", 4, "-q", cwd=tmp_path)
    assert cofactor("ledger", "verify", "run", cwd=tmp_path).stdout.splitlines()[-1].startswith("ok: 36 entries")
    entries = json.loads(cofactor("ledger", "show", "run", "--json", cwd=tmp_path).stdout)
    assert all(e["clip"] is e["noise"] is e["cost"] is None for e in entries)
    found = json.loads(cofactor("audit", "run", "--json", cwd=tmp_path).stdout)["audits"]
    assert [line["passed"] for line in found] == [True, True]
