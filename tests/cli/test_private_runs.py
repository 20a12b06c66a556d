"""Private runs on the command line: budgets in, noise out, and runs that cannot be released twice."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from tests.helpers.command import BUDGET, FILES, cofactor
from tests.helpers.processes import BIN, launch

from cofactor import FederatedNMF
from cofactor.jobs import inspect
from cofactor.jobs.folder import RunFolder
from cofactor.privacy import Privacy

CLAIM = "All releases of this run together satisfy the printed (eps, delta), add/remove neighbours."


def read(path: Path):
    return json.loads(path.read_text())


def words_of(page: Path) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", page.read_text().replace("&#39;", "'")))


def test_a_private_run_says_its_total_everywhere_and_withholds_the_rest(home) -> None:
    run = home / "run"
    total = "epsilon = 1 at delta = 1e-06 (unit: record; neighbours: add/remove one; accountant: exact Gaussian)"
    result = read(run / "evaluation.json")
    spent = result["privacy"]
    assert spent.pop("epsilon") == pytest.approx(1, rel=1e-9)
    assert spent == {
        "private": True,
        "delta": 1e-6,
        "unit": "record",
        "relation": "add/remove one",
        "accountant": "exact Gaussian",
        "text": total,
        "honest": 1,
    }
    assert (result["rounds"], result["error"], result["clients"], result["match"]) == (2, None, [], None)
    assert read(run / "manifest.json")["privacy"]["text"] == total
    assert read(run / "privacy.json")["text"] == total
    page = words_of(run / "report.html")
    assert total in page
    assert CLAIM in page
    assert "Noise of every release" in page
    # what was computed without noise is in the clients' own folders and nowhere else
    assert sorted(p.name for p in run.iterdir()) == [
        "charges.jsonl", "clients", "evaluation.json", "factor.npz", "factor.tsv", "history.jsonl", "ledger.jsonl",
        "manifest.json", "privacy.json", "report.html", "run.toml",
    ]  # fmt: skip
    own = [read(run / "clients" / name / "evaluation.json") for name in "abc"]
    assert [line["rows"] for line in own] == [60, 90, 75]
    released = "".join(p.read_text() for p in run.iterdir() if p.suffix in (".json", ".jsonl", ".html", ".toml"))
    for line in own:
        assert str(line["error"]) not in released
        rounded = re.escape(f"{line['error']:.4f}")  # as a number of its own: noise has as many digits by chance
        assert not re.search(rf"(?<![\d.]){rounded}(?!\d)", released)
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
    assert read(tmp_path / "one" / "evaluation.json")["privacy"]["private"] is False
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
    assert (spent["accountant"], spent["honest"] > 1) == ("exact Gaussian", "--secure" in words)
    assert spent["unit"] == ("client" if "client" in words else "record")
    entries = json.loads(cofactor("ledger", "show", "run", "--client", files[1].stem, "--json", cwd=tmp_path).stdout)
    assert {e.get("masked", False) for e in entries} == {"--secure" in words}
    assert all(e["clip"] > 0 and e["noise"] > 0 and e["multiplier"] > 0 for e in entries)
    folder = RunFolder.open(tmp_path / "run")
    assert [line.passed for line in inspect.of_folder(folder, inspect.method_of(folder))] == [True] * 3
    if "--secure" in words:
        found = json.loads(cofactor("audit", "run", "--json", cwd=tmp_path).stdout)
        assert found["passed"]
        assert {"hash chain", "transcript", "budget", "sensitivity"} <= {line["audit"] for line in found["audits"]}


def test_secure_sums_without_noise_are_a_run_like_any_other(home, tmp_path) -> None:
    files = [home / name for name in FILES]
    result = json.loads(cofactor("fit", *files, "-k", 3, "--secure", "--json", cwd=tmp_path).stdout)
    assert result["error"] < 0.3
    assert "the sums themselves are disclosed" in words_of(tmp_path / "run" / "report.html")
    assert "no finite epsilon" in cofactor("privacy", "spend", "run", cwd=tmp_path).stdout
    assert json.loads(cofactor("audit", "run", "--json", cwd=tmp_path).stdout)["passed"]


def test_processes_give_the_result_of_one(home, tmp_path) -> None:
    files = [str(home / name) for name in FILES]
    words = ["-k", "3", "--epsilon", "1", "--delta", "1e-6", "--insecure-noise-seed", "4", "-q"]
    command = (BIN / "cofactor", "fit", *files, *words, "--engine", "mpi")
    launch(2, *command, "--out", "mpi", cwd=tmp_path)
    cofactor("fit", *files, *words, "--out", "inline", cwd=tmp_path)
    one, two = (np.load(tmp_path / name / "factor.npz")["factor"] for name in ("mpi", "inline"))
    np.testing.assert_array_equal(one, two)
    assert (
        cofactor("ledger", "verify", "mpi", cwd=tmp_path).stdout.splitlines()[-1]
        == "ok: 9 entries of 3 chains, 6 charges"
    )
    assert (tmp_path / "mpi" / "clients" / "b" / "evaluation.json").exists()
    assert not list((tmp_path / "mpi").glob("checkpoint*"))
    launch(2, *command, "--secure", "--out", "sums", cwd=tmp_path)
    spent = json.loads(cofactor("privacy", "spend", "sums", "--json", cwd=tmp_path).stdout)
    assert (spent["accountant"], spent["honest"]) == ("exact Gaussian", 2)
    assert spent["text"].endswith("; assuming at least 2 honest clients in every sum; private: no (insecure seed))")


def test_the_verbs_of_privacy_have_examples(tmp_path) -> None:
    for verb in (
        ("privacy", "plan"),
        ("privacy", "spend"),
        ("ledger", "new"),
        ("ledger", "show"),
        ("ledger", "verify"),
        ("audit",),
    ):
        assert "Example: cofactor" in cofactor(*verb, "--help", cwd=tmp_path).stdout
