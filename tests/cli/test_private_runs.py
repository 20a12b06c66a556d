"""Privacy on the command line: budgets in, noise out, what left each client, and runs that cannot be released twice."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.cli.test_cli import cofactor

from cofactor import FederatedNMF
from cofactor.data import synthetic
from cofactor.engines.rounds import Reply
from cofactor.methods.private import NONE, RECORD, SKETCH, START
from cofactor.privacy import Cost, Mechanism, Privacy, chain
from cofactor.privacy.plan import Release
from cofactor.runs import audits, ledger
from cofactor.runs.folder import RunFolder
from cofactor.types import Message

FILES = ("a.npy", "b.npy", "c.npy")
BUDGET = ("--epsilon", 1, "--delta", 1e-6)
CLAIM = "All releases of this run together satisfy the printed (eps, delta), add/remove neighbours."


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """Three clients of different size, bits of them too, and one private run that tests may copy, not change."""
    folder = tmp_path_factory.mktemp("private")
    for name, X in zip("abc", synthetic.blocks(3, [60, 90, 75], features=12, rank=3, seed=5).Xs):
        np.save(folder / f"{name}.npy", X)
        np.save(folder / f"{name}-bits.npy", (X > np.median(X)).astype(np.uint8))
    cofactor("fit", *FILES, "-k", 3, *BUDGET, "--out", "run", "-q", cwd=folder)
    return folder


@pytest.fixture
def copied(home, tmp_path) -> Path:
    """A copy of the private run that a test may change."""
    return Path(shutil.copytree(home / "run", tmp_path / "run"))


def read(path: Path):
    return json.loads(path.read_text())


def words_of(page: Path) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", page.read_text().replace("&#39;", "'")))


def test_a_private_run_says_its_total_everywhere_and_withholds_the_rest(home) -> None:
    run = home / "run"
    total = "epsilon = 1 at delta = 1e-06 (unit: record; neighbours: add/remove one; accountant: exact Gaussian)"
    result = read(run / "evaluation.json")
    assert result["epsilon"] == pytest.approx(1, rel=1e-9)
    assert {name: result[name] for name in ("rounds", "private", "delta", "unit", "relation")} == {
        "rounds": 2,
        "private": True,
        "delta": 1e-6,
        "unit": "record",
        "relation": "add/remove one",
    }
    assert total in (result["text"], read(run / "manifest.json")["privacy"]["text"])
    page = words_of(run / "report.html")
    assert total in page
    assert CLAIM in page
    assert "Noise of every release" in page
    # what was computed without noise is in the clients' own folders and nowhere else
    assert sorted(p.name for p in run.iterdir()) == [
        "clients", "evaluation.json", "factor.npz", "factor.tsv", "history.jsonl", "ledger.jsonl", "manifest.json",
        "privacy.json", "report.html", "run.toml",
    ]  # fmt: skip
    own = [read(run / "clients" / name / "evaluation.json") for name in "abc"]
    assert [line["rows"] for line in own] == [60, 90, 75]
    released = "".join(p.read_text() for p in run.iterdir() if p.suffix in (".json", ".jsonl", ".html", ".toml"))
    for line in own:
        assert str(line["error"]) not in released
        assert f"{line['error']:.4f}" not in released
    assert "sha256" not in released
    assert set(read(run / "manifest.json")["inputs"][0]) == {"client", "path", "features"}
    history = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    assert [line["loss"] for line in history] == [None, None]
    assert 0 < history[0]["epsilon"] < history[1]["epsilon"] == pytest.approx(1, rel=1e-9)


def test_a_fit_shows_what_it_spends_and_ends_with_the_total(home, tmp_path) -> None:
    files = [home / name for name in FILES]
    done = cofactor("fit", *files, "-k", 3, *BUDGET, cwd=tmp_path)
    assert "epsilon 1" in done.stderr.splitlines()[-1]
    assert "epsilon = 1 at delta = 1e-06 (unit: record" in done.stdout
    assert "private: no" not in done.stdout
    assert "was not released" in cofactor("evaluate", "run", cwd=tmp_path).stdout
    assert "pooled bound is refused" in cofactor("evaluate", "run", "--pooled", cwd=tmp_path, check=2).stderr
    assert cofactor("transform", "run", files[0], "--json", cwd=tmp_path).stdout.startswith("{")
    assert read(tmp_path / "run" / "manifest.json")["method"] == "dp-moments"


def test_a_seed_for_the_noise_repeats_the_run_and_marks_it(home, tmp_path) -> None:
    files = [home / name for name in FILES]
    words = ("-k", 3, *BUDGET, "--insecure-noise-seed", 3, "--seed", 2)
    printed = cofactor("fit", *files, *words, "--out", "one", cwd=tmp_path).stdout
    assert "private: no" in printed
    cofactor("fit", "--config", "one/run.toml", "--out", "two", "-q", cwd=tmp_path)
    one, two = (np.load(tmp_path / name / "factor.npz")["factor"] for name in ("one", "two"))
    np.testing.assert_array_equal(one, two)
    model = FederatedNMF(3, privacy=Privacy(1, 1e-6, insecure_seed=3), random_state=2).fit([np.load(f) for f in files])
    np.testing.assert_array_equal(one, model.components_)
    assert read(tmp_path / "one" / "evaluation.json")["private"] is False
    assert read(tmp_path / "one" / "manifest.json")["privacy"]["private"] is False
    page = words_of(tmp_path / "one" / "report.html")
    assert "private: no" in page
    assert CLAIM not in page
    assert "private: no" in cofactor("privacy", "spend", "one", cwd=tmp_path).stdout


@pytest.mark.parametrize(
    "words",
    [
        ("--method", "dp-nmf", "--secure"),
        ("--method", "dp-nmf", "--rounds", 2, "--option", "gram_share=0.5"),
        ("--unit", "client", "--delta", 1e-3),
        ("--unit", "client", "--delta", 1e-3, "--method", "fedavg", "--rounds", 3, "--clip", 0.5, "--secure"),
        ("--unit", "client", "--delta", 1e-3, "--method", "fnmf-lap", "--rounds", 2),
        ("--unit", "client", "--delta", 1e-3, "--method", "asso", "--boolean"),
        ("--method", "exact", "--option", "start=random"),
    ],
)
def test_private_methods_run_spend_their_budget_and_pass_the_audit(home, tmp_path, words) -> None:
    bits = "-bits" if "--boolean" in words else ""
    files = [home / f"{name}{bits}.npy" for name in "abc"]
    cofactor("fit", *files, "-k", 3, *BUDGET, *words, "-q", cwd=tmp_path)
    spent = json.loads(cofactor("privacy", "spend", "run", "--json", cwd=tmp_path).stdout)
    assert spent["epsilon"] == pytest.approx(1, rel=1e-9)
    assert spent["accountant"] == ("zCDP" if "--secure" in words else "exact Gaussian")
    assert spent["unit"] == ("client" if "client" in words else "record")
    entries = json.loads(cofactor("ledger", "show", "run", "--client", files[1].stem, "--json", cwd=tmp_path).stdout)
    assert {e.get("masked", False) for e in entries} == {"--secure" in words}
    assert all(e["clip"] > 0 and e["noise"] > 0 and e["multiplier"] > 0 for e in entries)
    assert [line.passed for line in audits.of_folder(RunFolder.open(tmp_path / "run"))] == [True] * 3
    if "--secure" in words:
        found = json.loads(cofactor("audit", "run", "--json", cwd=tmp_path).stdout)
        assert found["passed"]
        assert {"hash chain", "transcript", "budget", "sensitivity"} <= {line["audit"] for line in found["audits"]}


def test_secure_sums_without_noise_are_a_run_like_any_other(home, tmp_path) -> None:
    files = [home / name for name in FILES]
    result = json.loads(cofactor("fit", *files, "-k", 3, "--secure", "--json", cwd=tmp_path).stdout)
    assert result["error"] < 0.3
    assert "the sum itself is disclosed" in words_of(tmp_path / "run" / "report.html")
    assert "no finite epsilon" in cofactor("privacy", "spend", "run", cwd=tmp_path).stdout
    assert json.loads(cofactor("audit", "run", "--json", cwd=tmp_path).stdout)["passed"]


def test_processes_give_the_result_of_one(home, tmp_path) -> None:
    files = [str(home / name) for name in FILES]
    words = ["-k", "3", "--epsilon", "1", "--delta", "1e-6", "--insecure-noise-seed", "4", "-q"]
    command = [sys.executable, "-c", "from cofactor.cli import main; main()", "fit", *files, *words, "--engine", "mpi"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    mpiexec = str(Path(sys.executable).parent / "mpiexec")
    subprocess.run([mpiexec, "-n", "2", *command, "--out", "mpi"], cwd=tmp_path, env=env, check=True, timeout=100)
    cofactor("fit", *files, *words, "--out", "inline", cwd=tmp_path)
    one, two = (np.load(tmp_path / name / "factor.npz")["factor"] for name in ("mpi", "inline"))
    np.testing.assert_array_equal(one, two)
    assert cofactor("ledger", "verify", "mpi", cwd=tmp_path).stdout.splitlines()[-1] == "ok: 9 entries of 3 chains"
    assert (tmp_path / "mpi" / "clients" / "b" / "evaluation.json").exists()
    assert not list((tmp_path / "mpi").glob("checkpoint*"))
    subprocess.run([mpiexec, "-n", "2", *command, "--secure", "--out", "sums"], cwd=tmp_path, env=env, check=True)
    assert json.loads(cofactor("privacy", "spend", "sums", "--json", cwd=tmp_path).stdout)["accountant"] == "zCDP"


DYING = """
import os, signal, sys
from cofactor.engines.checkpoint import Checkpoint
from cofactor.methods.client_level import ClientLevel
save, step = Checkpoint.save, ClientLevel.step
def dies_saving(self, state):
    if len(state.history) == 3: os.kill(os.getpid(), signal.SIGKILL)
    save(self, state)
def dies_stepping(self, data, shared, local, t, rng):
    if t == 2: os.kill(os.getpid(), signal.SIGKILL)
    return step(self, data, shared, local, t, rng)
if sys.argv.pop(1) == "saving": Checkpoint.save = dies_saving
else: ClientLevel.step = dies_stepping
from cofactor.cli import main
main()
"""


def killed(home, tmp_path, when: str) -> None:
    words = ["-k", "3", "--epsilon", "1", "--delta", "1e-3", "--unit", "client", "--method", "fedavg", "--rounds", "5"]
    files = [str(home / name) for name in FILES]
    command = [sys.executable, "-c", DYING, when, "fit", *files, *words, "-q"]
    assert subprocess.run(command, cwd=tmp_path, check=False, timeout=100).returncode == -signal.SIGKILL


def test_a_round_that_was_released_is_never_released_again(home, tmp_path) -> None:
    killed(home, tmp_path, "saving")
    before = (tmp_path / "run" / "ledger.jsonl").read_text()
    assert max(json.loads(line)["round"] for line in before.splitlines()) == 2
    error = cofactor("resume", "run", cwd=tmp_path, check=2).stderr
    assert "found round 2 as well" in error
    assert "Start a new run with a budget of its own; what this one has spent stays spent." in error
    assert (tmp_path / "run" / "ledger.jsonl").read_text() == before
    spent = json.loads(cofactor("privacy", "spend", "run", "--json", cwd=tmp_path).stdout)
    assert spent["rounds"] == 3
    assert 0 < spent["epsilon"] < 1
    assert cofactor("ledger", "verify", "run", cwd=tmp_path).stdout.splitlines()[-1].startswith("ok: 9 entries")


def test_a_run_that_was_killed_before_a_release_goes_on(home, tmp_path) -> None:
    killed(home, tmp_path, "stepping")
    whole = (tmp_path / "run" / "ledger.jsonl").read_text()
    (tmp_path / "run" / "ledger.jsonl").write_text(whole + '{"client": "a", "rou')  # cut off while it was written down
    assert "found round 2 as well" in cofactor("resume", "run", "-q", cwd=tmp_path, check=2).stderr
    (tmp_path / "run" / "ledger.jsonl").write_text(whole)
    cofactor("resume", "run", "-q", cwd=tmp_path)
    rounds = [json.loads(line)["round"] for line in (tmp_path / "run" / "ledger.jsonl").read_text().splitlines()]
    assert sorted(rounds) == [t for t in range(5) for _ in FILES]
    assert cofactor("ledger", "verify", "run", cwd=tmp_path).stdout.splitlines()[-1] == "ok: 15 entries of 3 chains"
    assert read(tmp_path / "run" / "evaluation.json")["epsilon"] == pytest.approx(1, rel=1e-9)


# -- the ledger ----------------------------------------------------------------------------------------------------


def test_every_line_says_what_left_and_the_chains_hold(copied) -> None:
    cwd = copied.parent
    lines = [json.loads(line) for line in (copied / "ledger.jsonl").read_text().splitlines()]
    keys = "client round array shape dtype bytes clip noise mechanism multiplier cost previous hash"
    assert all(set(keys.split()) == set(line) for line in lines)
    assert cofactor("ledger", "verify", "run", cwd=cwd).stdout.splitlines()[-1] == "ok: 9 entries of 3 chains"
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
    "rehashed": (
        edit(lambda x: x.__setitem__(0, json.dumps(forged(json.loads(x[0]))))),
        "line 2 (a): does not follow the one before it",
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
    body = {name: value for name, value in entry.items() if name not in chain.CHAINED}
    return chain.link({**body, "bytes": 1}, entry["previous"])


@pytest.mark.parametrize("name", TAMPERED)
def test_a_ledger_that_was_tampered_with_is_found_out(copied, name) -> None:
    change, words = TAMPERED[name]
    file = copied / "ledger.jsonl"
    lines = file.read_text().splitlines()
    file.write_text("".join(f"{line}\n" for line in change(lines)))
    out = cofactor("ledger", "verify", "run", cwd=copied.parent, check=1).stdout
    assert words in re.sub(r"\s+", " ", out)
    assert "ok" not in out.splitlines()[-1]
    assert audits.of_folder(RunFolder.open(copied))[0].passed is False


@pytest.mark.parametrize("line", ["null", "[]", "{}", '{"client": 1}', '{"client": "a", "round": "0"}', "[" * 9000])
def test_a_line_that_is_no_entry_is_named(copied, line) -> None:
    with open(copied / "ledger.jsonl", "a") as file:
        file.write(line + "\n")
    assert "line 10: cannot be read" in cofactor("ledger", "verify", "run", cwd=copied.parent, check=1).stdout
    assert json.loads(cofactor("privacy", "spend", "run", "--json", cwd=copied.parent).stdout)["rounds"] == 2


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
    assert out.count("BROKEN") == 3


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
    manifest = read(copied / "manifest.json")
    del manifest["ledger"]
    (copied / "manifest.json").write_text(json.dumps(manifest))
    file.unlink()
    seals = {}
    with open(file, "w") as out:
        for entry in [{**first, **change}, *rest]:
            body = {name: value for name, value in entry.items() if name not in chain.CHAINED}
            seal = seals.get(entry["client"]) or ledger.begin(ledger.header(manifest), entry["client"])
            (line,), seals[entry["client"]] = chain.extend([body], seal)
            out.write(json.dumps(line) + "\n")
    chains, transcript, *_ = audits.of_folder(RunFolder.open(copied))
    assert chains.passed is True
    assert transcript.passed is False
    assert words in transcript.text


def test_a_hundred_thousand_tiny_clients_are_one_line_per_array(tmp_path) -> None:
    names = [f"phone{j}" for j in range(100_000)]
    message = Message({"gram": np.zeros((3, 3)), "loss": np.float64(0)})
    writer = ledger.Writer(tmp_path / ledger.FILE, {"seed": 0}, names)
    writer(0, [Reply(np.arange(100_000), message)])
    writer(1, [Reply(np.r_[0:10, 20:500], message), Reply(np.array([600]), message)])
    lines = [json.loads(line) for line in (tmp_path / ledger.FILE).read_text().splitlines()]
    assert len(lines) == 6
    assert (tmp_path / ledger.FILE).stat().st_size < 5000
    assert lines[0]["clients"] == 100_000
    assert lines[0]["members"] == "0-99999"
    assert lines[0]["bytes"] == 72 * 100_000
    assert lines[2]["members"] == "0-9,20-499"
    assert lines[4]["client"] == "phone600"
    assert ledger.verify(tmp_path / ledger.FILE, {"seed": 0}).ok
    noisy = Release(Cost(Mechanism.GAUSSIAN, 4.0), 1.0, 4.0)
    alone = [Reply(np.array([j]), message._replace(cost={"gram": noisy})) for j in range(20_000)]
    writer(2, [*alone, Reply(np.array([30_000]), message)])
    lines = [json.loads(line) for line in (tmp_path / ledger.FILE).read_text().splitlines()]
    assert [(e["client"], e.get("members"), e["noise"]) for e in lines[6:]] == [
        (ledger.TOGETHER, "0-19999", 4.0),
        (ledger.TOGETHER, "0-19999", None),
        ("phone30000", None, None),
        ("phone30000", None, None),
    ]
    again = ledger.Writer(tmp_path / ledger.FILE, {"seed": 0}, names)
    again(3, [Reply(np.array([600]), message)])
    assert ledger.verify(tmp_path / ledger.FILE, {"seed": 0}, [0, 1, 2, 3]).ok


def test_a_run_without_noise_has_a_chained_ledger_too(home, tmp_path) -> None:
    cofactor("fit", *(home / name for name in FILES), "-k", 3, "--rounds", 4, "-q", cwd=tmp_path)
    assert cofactor("ledger", "verify", "run", cwd=tmp_path).stdout.splitlines()[-1].startswith("ok: 36 entries")
    entries = json.loads(cofactor("ledger", "show", "run", "--json", cwd=tmp_path).stdout)
    assert all(e["clip"] is e["noise"] is e["cost"] is None for e in entries)
    found = json.loads(cofactor("audit", "run", "--json", cwd=tmp_path).stdout)["audits"]
    assert [line["passed"] for line in found] == [True, True]


# -- plans ---------------------------------------------------------------------------------------------------------


def plan(cwd, *words, check=0):
    done = cofactor("privacy", "plan", *words, cwd=cwd, check=check)
    return json.loads(done.stdout) if "--json" in words else done


def test_a_plan_reproduces_the_known_multipliers(tmp_path) -> None:
    found = plan(tmp_path, "--epsilon", 1, "--delta", 1e-5, "--rounds", 100, "--json")
    assert found["noise_multipliers"] == pytest.approx({"gram": 52.7590985417, "cross": 52.7590985417}, abs=1e-9)
    assert (found["epsilon"], found["delta"], found["rounds"]) == (pytest.approx(1, rel=1e-9), 1e-5, 100)
    assert (found["unit"], found["relation"]) == ("record", "add/remove one")
    words = ("--epsilon", 1, "--delta", 1e-5, "--rounds", 100, "--method", "dp-nmf", "--option", "gram_share=0.5")
    assert plan(tmp_path, *words, "--json")["noise_multipliers"] == found["noise_multipliers"]


def test_a_plan_says_the_noise_that_the_run_then_has(home, copied) -> None:
    words = ("--epsilon", 1, "--delta", 1e-6, "--features", 12, "--rank", 3, "--rows", 225, "--clients", 3, "--json")
    found = plan(copied.parent, *words)
    assert found["method"] == "dp-moments"
    entries = [json.loads(line) for line in (copied / "ledger.jsonl").read_text().splitlines()]
    assert found["noise_multipliers"] == {e["array"]: e["multiplier"] for e in entries}


def test_a_plan_warns_where_noise_drowns_the_signal(tmp_path) -> None:
    faces = ("--features", 361, "--rank", 25, "--rows", 2429, "--delta", 1e-5)
    assert "expected to be coarse" in plan(tmp_path, *faces, "--epsilon", 1).stdout
    cells = ("--features", 765, "--rank", 20, "--rows", 700, "--delta", 1e-5)
    assert "expected to be useless" in plan(tmp_path, *cells, "--epsilon", 1).stdout
    digits = ("--features", 784, "--rank", 30, "--rows", 70000, "--delta", 1e-6)
    text = plan(tmp_path, *digits, "--epsilon", 1).stdout
    assert "expected to be useful" in text
    assert "All releases of a run together satisfy the printed (eps, delta), add/remove neighbours." in text
    assert "Audits give lower bounds: they find bugs, they do not prove privacy." in text
    assert "secure summation" not in text
    many = plan(tmp_path, *digits, "--epsilon", 1, "--rounds", 300, "--json")["noise_over_signal"]
    few = plan(tmp_path, *digits, "--epsilon", 1, "--method", "dp-nmf", "--json")["noise_over_signal"]
    assert few < many
    words = ("--epsilon", 4, "--delta", 1e-3, "--unit", "client", "--method", "fedavg", "--rounds", 5, "--rank", 10)
    noisy = plan(tmp_path, *words, "--features", 100, "--clients", 20, "--secure", "--json")
    assert noisy["accountant"] == "zCDP"
    assert noisy["noise_over_signal"] > 1
    assert (
        "the sum itself is disclosed" in plan(tmp_path, *words, "--features", 100, "--clients", 20, "--secure").stdout
    )
    assert "Give --features" in plan(tmp_path, *words).stdout


REFUSED = {
    "epsilon": (("--epsilon", 0, "--delta", 1e-6), "epsilon must be positive and finite. Found 0.0."),
    "negative": (("--epsilon", -1, "--delta", 1e-6), "epsilon must be positive and finite. Found -1.0."),
    "delta": (("--epsilon", 1, "--delta", 0), "delta must be in (0, 1). Found 0.0."),
    "unit": (("--epsilon", 1, "--delta", 1e-6, "--unit", "cell"), "unit must be 'record' or 'client'. Found 'cell'."),
    "factors by record": (("--epsilon", 1, "--delta", 1e-6, "--method", "fedavg"), RECORD),
    "fnmf by record": (("--epsilon", 1, "--delta", 1e-6, "--method", "fnmf-lap"), RECORD),
    "a start that reads": (
        ("--epsilon", 1, "--delta", 1e-6, "--method", "exact", "--option", "start=summaries"),
        START,
    ),
    "sketches": (("--epsilon", 1, "--delta", 1e-6, "--method", "syn-ssd-u"), SKETCH),
    "one upload": (("--epsilon", 1, "--delta", 1e-6, "--method", "oneshot", "--unit", "client"), NONE),
    "an unknown method": (("--epsilon", 1, "--delta", 1e-6, "--method", "dp-nfm"), "Did you mean 'dp-nmf'?"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_of_plans_and_of_fits_are_one_line(home, tmp_path, name) -> None:
    words, text = REFUSED[name]
    errors = [plan(tmp_path, *words, check=2).stderr]
    files = [home / file for file in FILES]
    errors.append(cofactor("fit", *files, "-k", 3, *words, cwd=tmp_path, check=2).stderr)
    for error in errors:
        assert text in error
        assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--epsilon", 1), "delta: expected a number below 1/n"),
        (("--delta", 1e-6), "epsilon: expected a total to go with delta"),
        (("--clip", 2), "epsilon: expected a total to go with clip"),
        (("--method", "dp-nmf"), "adds noise: expected epsilon and delta"),
        (("--epsilon", 1, "--delta", 0.01), "delta must be below 1/n = 0.00444444"),
        (("--epsilon", 1, "--delta", 0.5, "--unit", "client"), "delta must be below 1/n = 0.333333"),
        (("--epsilon", 1, "--delta", 1e-6, "--clip", -1), "clip must be positive"),
        (("--secure", "--participation", 0.5), "secure summation needs at least 3 clients. Found 2."),
        (("--secure", "--method", "oneshot"), "secure summation gives the server sums and nothing else"),
        (("--ratings", "--epsilon", 1, "--delta", 1e-6), "this method has no private form"),
        (("--method", "dsanls", "--epsilon", 1, "--delta", 1e-6), "expected one file"),
    ],
)
def test_what_a_private_fit_cannot_do_leaves_no_folder(home, tmp_path, words, text) -> None:
    error = cofactor("fit", *(home / name for name in FILES), "-k", 3, *words, cwd=tmp_path, check=2).stderr
    assert text in error
    assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()
    assert "delta must be below 1/n" in plan(tmp_path, "--epsilon", 1, "--delta", 0.1, "--rows", 100, check=2).stderr


def test_the_verbs_of_privacy_have_examples(tmp_path) -> None:
    for verb in (("privacy", "plan"), ("privacy", "spend"), ("ledger", "show"), ("ledger", "verify"), ("audit",)):
        assert "Example: cofactor" in cofactor(*verb, "--help", cwd=tmp_path).stdout
