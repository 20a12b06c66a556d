"""What a budget buys before anything is read, and what privacy refuses."""

from __future__ import annotations

import json

import pytest
from tests.helpers.command import FILES, cofactor, refused

from cofactor.methods.refusals import SKETCH, START, no_private, no_record


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
    assert "components will be pieces of it and a constant row" in plan(tmp_path, *cells, "--epsilon", 1).stdout
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
    assert noisy["accountant"] == "exact Gaussian"
    assert noisy["noise_over_signal"] > 1
    secure = ("--features", 100, "--clients", 20, "--secure")
    assert "the sums themselves are disclosed" in plan(tmp_path, *words, *secure).stdout
    assert "assuming at least 13 honest clients in every sum" in plan(tmp_path, *words, *secure).stdout
    assert plan(tmp_path, *words, *secure, "--curious", 4, "--json")["honest"] == 10
    assert "Give --features" in plan(tmp_path, *words).stdout


REFUSED = {
    "epsilon": (("--epsilon", 0, "--delta", 1e-6), "epsilon must be positive and finite. Found 0.0."),
    "negative": (("--epsilon", -1, "--delta", 1e-6), "epsilon must be positive and finite. Found -1.0."),
    "delta": (("--epsilon", 1, "--delta", 0), "delta must be in (0, 1). Found 0.0."),
    "unit": (("--epsilon", 1, "--delta", 1e-6, "--unit", "cell"), "unit must be 'record' or 'client'. Found 'cell'."),
    "factors by record": (("--epsilon", 1, "--delta", 1e-6, "--method", "fedavg"), no_record("real")),
    "fnmf by record": (("--epsilon", 1, "--delta", 1e-6, "--method", "fnmf-lap"), no_record("real")),
    "a start that reads": (
        ("--epsilon", 1, "--delta", 1e-6, "--method", "exact", "--option", "start=summaries"),
        START,
    ),
    "sketches": (("--epsilon", 1, "--delta", 1e-6, "--method", "syn-ssd-u"), SKETCH),
    "one upload": (("--epsilon", 1, "--delta", 1e-6, "--method", "oneshot", "--unit", "client"), no_private("real")),
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


def test_a_private_fit_does_not_count_rows_to_check_its_delta(home, tmp_path) -> None:
    """Whether delta is below 1/n would tell n: it is checked against a number that is public, or not at all."""
    cofactor("fit", *(home / name for name in FILES), "-k", 3, "--epsilon", 1, "--delta", 0.01, "-q", cwd=tmp_path)
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert (manifest["privacy"]["delta"], manifest["config"]["rows"]) == (0.01, None)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--epsilon", 1), "delta: expected a number below 1/n"),
        (("--delta", 1e-6), "epsilon: expected a total to go with delta"),
        (("--clip", 2), "epsilon: expected a total to go with clip"),
        (("--method", "dp-nmf"), "adds noise: expected epsilon and delta"),
        (("--epsilon", 1, "--delta", 0.01, "--rows", 225), "delta must be below 1/n = 0.00444444"),
        (("--epsilon", 1, "--delta", 0.5, "--unit", "client"), "delta must be below 1/n = 0.333333"),
        (("--epsilon", 1, "--delta", 1e-6, "--clip", -1), "clip must be positive"),
        (("--secure", "--participation", 0.5), "secure summation needs at least 3 clients. Found 2."),
        (("--secure", "--method", "oneshot"), "secure summation gives the server sums and nothing else"),
        (("--ratings", "--epsilon", 1, "--delta", 1e-6), "this method has no private form"),
        (("--method", "dsanls", "--epsilon", 1, "--delta", 1e-6), SKETCH),
        (("--rows", 225), "epsilon: expected a total to go with rows"),
        (("--epsilon", 1, "--delta", 1e-6, "--rows", 0), "rows must be a whole number, 1 or more, or None. Found 0"),
        (("--method", "dp-moments", "--epsilon", 1, "--delta", 1e-6, "--rounds", 1), "'dp-moments' needs 2 rounds"),
        (("--secure", "--engine", "inline", "--split", 3), "make clients of one file; found 3 files"),
    ],
)
def test_what_a_private_fit_cannot_do_leaves_no_folder(home, tmp_path, words, text) -> None:
    assert text in refused("fit", *(home / name for name in FILES), "-k", 3, *words, cwd=tmp_path)
    assert "delta must be below 1/n" in plan(tmp_path, "--epsilon", 1, "--delta", 0.1, "--rows", 100, check=2).stderr


def test_a_plan_for_whole_clients_names_its_own_relation(tmp_path) -> None:
    text = plan(tmp_path, "--epsilon", 1, "--delta", 1e-3, "--unit", "client", "--clients", 100).stdout
    assert "(unit: client; neighbours: zero out one; accountant: exact Gaussian)" in text
    assert "zero-out neighbours: what one client holds is replaced by nothing" in text
    assert "add/remove" not in text
