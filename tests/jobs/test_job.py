"""The one pipeline: a team of several ends like one process, and a killed run like one that nothing happened to."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.helpers.folders import public, same_run
from tests.helpers.samples import SAMPLES, write
from tests.helpers.teams import together

from cofactor.engines.history import Round
from cofactor.jobs import job as jobs
from cofactor.jobs.config import Config
from cofactor.jobs.folder import RunFolder
from cofactor.jobs.inspect import standing
from cofactor.jobs.job import Job, fit, resume
from cofactor.jobs.judge import add_pooled
from cofactor.report.html import render
from cofactor.types import CofactorError

STREAM = (SAMPLES["real"].files, {"rank": 3, "method": "asyn-sd", "rounds": 3})
KINDS = {**SAMPLES, "stream": STREAM}
LONG = {"boolean": {"method": "felb", "rounds": 8}, "clusters": {"rounds": 5, "tol": 0.0}, "private": {}}
SAME = [name for name in SAMPLES if name != "secure"]  # masks are drawn anew


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("job"))


def config_of(home: Path, name: str, **more: Any) -> Config:
    files, options = KINDS[name]
    return Config([str(home / file) for file in files], **{**options, **more})


@pytest.mark.parametrize("name", SAME)
def test_a_team_of_three_writes_the_folder_of_one_process(home: Path, name: str, tmp_path: Path) -> None:
    config = config_of(home, name)
    one = fit(config, tmp_path / "one")
    three = together(3, lambda engine: fit(config, tmp_path / "three"))[0]
    same_run(one, three)
    assert three.verify().ok


def test_one_file_makes_as_many_clients_as_there_are_processes(home: Path, tmp_path: Path) -> None:
    one = fit(Config([str(home / "all.npy")], 3, rounds=3, split=3, by="rows"), tmp_path / "one")
    config = Config([str(home / "all.npy")], 3, rounds=3)
    same_run(one, together(3, lambda engine: fit(config, tmp_path / "three"))[0])
    assert (tmp_path / "three" / "passports.json").exists()


@pytest.mark.parametrize("more", [{"rounds": 2}, {"epsilon": 1.0, "delta": 1e-3}])
def test_a_line_that_is_taken_from_the_ledger_while_the_run_goes_on_is_missed(home, tmp_path: Path, more: Any) -> None:
    """Where the lines end was read from the file again, and what was missing there by then nobody knew of."""
    ledger = tmp_path / "run" / "ledger.jsonl"

    def take(line: Round, shared: Any) -> None:
        if line.round == 1:
            ledger.write_text("".join(ledger.read_text().splitlines(keepends=True)[:-1]))

    folder = fit(Config([str(home / "all.npy")], 3, **more), tmp_path / "run", callbacks=[take])
    assert "lines were removed" in str(folder.verify())


def test_rows_are_those_that_the_run_began_with_whatever_becomes_of_their_file(home: Path, tmp_path: Path) -> None:
    """Files below 1 GiB were mapped: other values went into the rounds that followed, and a shorter file killed all."""
    files, options = [tmp_path / "a.npy", tmp_path / "b.npy"], {"rank": 3, "rounds": 6, "tol": 0.0}
    X = np.load(home / "all.npy")
    for file, part in zip(files, np.array_split(X, 2), strict=True):
        np.save(file, part)
    config = Config([str(file) for file in files], **options)  # type: ignore[arg-type]

    def change(line: Round, shared: Any) -> None:
        values = np.memmap(files[0], np.uint8, "r+", offset=128)
        values[: len(values) // 2] = 0

    undisturbed = fit(config, tmp_path / "one")
    same_run(undisturbed, fit(config, tmp_path / "two", callbacks=[change]))
    for more in (add_pooled, lambda folder: ((folder.path / "evaluation.json").unlink(), resume(folder.path))):
        with pytest.raises(CofactorError, match=r"a.npy: expected the data that the run began with"):
            more(RunFolder(tmp_path / "two"))


@pytest.mark.parametrize("more", [{}, {"epsilon": 1.0, "delta": 1e-3}, {"secure": True}])
def test_a_file_that_is_written_to_between_reading_and_hashing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: Any
) -> None:
    """Its hash was that of other rows, so that the run went on over these when it was resumed."""
    files, rng = [tmp_path / f"{name}.npy" for name in "abc"], np.random.default_rng(0)
    for file in files:
        np.save(file, rng.random((12, 5)))
    real = jobs.hashes
    monkeypatch.setattr(jobs, "hashes", lambda *told: (np.save(files[0], rng.random((12, 5))), real(*told))[1])
    with pytest.raises(CofactorError, match=r"a.npy: expected the file as it was before it was read"):
        fit(Config([str(file) for file in files], 2, **more), tmp_path / "run")
    assert not (tmp_path / "run").exists()


class Killed(Exception):
    """What a process that was killed does not live to raise."""


def kill_at(t: int) -> Any:
    """Return a callback that ends a run after round t."""

    def callback(line: Round, shared: Any) -> None:
        if line.round == t:
            raise Killed

    return callback


def drifts(folder: RunFolder) -> list[float | None]:
    file = folder.path / "passports.json"
    return [line["drift"] for line in json.loads(file.read_text())] if file.exists() else []


def rounds_of(folder: RunFolder) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder.path / "history.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("name", KINDS)
def test_a_run_that_was_killed_in_any_stage_ends_like_the_whole(
    home: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "PAUSE", 0.0)  # every round is written down, however short
    config = config_of(home, name, **LONG.get(name, {}))
    whole = fit(config, tmp_path / "whole")
    history = rounds_of(whole)
    last = {line["stage"]: line["round"] for line in history}  # the end of every stage
    first = {line["stage"]: line["round"] for line in reversed(history)}
    for t in sorted({*last.values(), *first.values()}):
        with pytest.raises(Killed):
            fit(config, tmp_path / f"cut-{t}", callbacks=[kill_at(t)])
        assert not RunFolder.open(tmp_path / f"cut-{t}").finished
        again: list[int] = []
        cut = resume(tmp_path / f"cut-{t}", callbacks=[lambda line, _, seen=again: seen.append(line.round)])
        same_run(whole, cut)
        np.testing.assert_array_equal(whole.factor()[0], cut.factor()[0])
        assert drifts(cut) in (drifts(whole), [None] * config.rank)
        assert [line["round"] for line in rounds_of(cut)] == [line["round"] for line in history]
        assert cut.verify().ok
        if name != "stream":  # a stream has no checkpoint: it begins anew
            assert again == [line["round"] for line in history if line["round"] > t]


def test_short_rounds_are_not_written_down_and_done_again(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "PAUSE", 60.0)  # rounds of a busy machine are not so short
    config, again = config_of(home, "real"), []
    with pytest.raises(Killed):
        fit(config, tmp_path / "cut", callbacks=[kill_at(3)])
    assert not list((tmp_path / "cut").glob("checkpoint*"))
    assert "before a round was saved" in standing(RunFolder.open(tmp_path / "cut"))
    cut = resume(tmp_path / "cut", callbacks=[lambda line, _: again.append(line.round)])
    same_run(fit(config, tmp_path / "whole"), cut)
    assert again == list(range(len(rounds_of(cut))))
    assert cut.checkpoint.rounds() == len(again)  # the last one is
    assert cut.verify().ok


@pytest.mark.parametrize("name", ["real", "swept", "ratings"])
def test_a_team_that_was_killed_goes_on_together(home: Path, name: str, tmp_path: Path) -> None:
    config = config_of(home, name)
    whole = fit(config, tmp_path / "whole")
    with pytest.raises(CofactorError, match="process 0: Killed"):
        together(3, lambda engine: fit(config, tmp_path / "cut", callbacks=[kill_at(3)]))
    with pytest.raises(CofactorError, match="expected the 3 processes that wrote the checkpoint, found 1"):
        resume(tmp_path / "cut")
    same_run(whole, together(3, lambda engine: resume(tmp_path / "cut"))[0])


def test_a_run_that_was_killed_before_its_first_round_begins_anew(home: Path, tmp_path: Path) -> None:
    def stop(job: Job) -> None:
        raise Killed

    config = config_of(home, "real")
    with pytest.raises(Killed):
        fit(config, tmp_path / "cut", announce=stop)
    assert public(RunFolder(tmp_path / "cut")) == {"manifest.json", "run.toml"}
    same_run(fit(config, tmp_path / "whole"), resume(tmp_path / "cut"))


def test_a_finished_run_stays_as_it_is(home: Path, tmp_path: Path) -> None:
    folder = fit(config_of(home, "real"), tmp_path / "run")
    before = {name: (folder.path / name).read_bytes() for name in public(folder)}
    resume(folder.path)
    assert {name: (folder.path / name).read_bytes() for name in public(folder)} == before


def test_a_callback_ends_a_run_which_is_then_over(home: Path, tmp_path: Path) -> None:
    folder = fit(config_of(home, "real"), tmp_path / "run", callbacks=[lambda line, _: line.round == 2])
    assert folder.evaluation().rounds == 3
    assert not folder.evaluation().converged


def test_a_job_is_announced_when_all_is_settled(home: Path, tmp_path: Path) -> None:
    told: list[Job] = []
    fit(config_of(home, "ratings"), tmp_path / "run", announce=told.append)
    (job,) = told
    assert (job.kind.name, job.private, len(job.names), job.rounds) == ("ratings", False, 24, 6)
    assert job.names == [f"u{u}" for u in sorted(range(24), key=str)]
    fit(config_of(home, "stream"), tmp_path / "stream", announce=told.append)
    assert told[-1].rounds is None


@pytest.mark.parametrize(
    ("name", "more", "text"),
    [
        ("real", {"rank": 13}, r"rank: expected at most 12 \(the smaller of 73 rows and 12 features\), found 13"),
        ("private", {"rank": 13}, r"rank: expected at most 12 \(12 features\), found 13"),
        ("real", {"image": "5x5"}, "image: expected 12 pixels"),
        ("boolean", {"method": "hals", "boolean": False}, "expected one file"),
        ("union", {"method": "fedavg"}, "needs the same features at every client"),
        ("secure", {"participation": 0.5}, "secure summation needs at least 3 clients. Found 2"),
    ],
)
def test_what_cannot_be_run_is_refused_and_leaves_no_folder(
    home: Path, name: str, more: dict[str, Any], text: str, tmp_path: Path
) -> None:
    with pytest.raises(CofactorError, match=text):
        fit(config_of(home, name, **more), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_data_of_another_kind_name_the_client(home: Path, tmp_path: Path) -> None:
    files = [str(home / name) for name in ("a-bits.npz", "b.csv")]
    with pytest.raises(CofactorError, match=r"client b \(.*b\.csv\)"):
        fit(Config(files, 2, boolean=True, features="position"), tmp_path / "run")
    X = np.load(home / "a-points.npy")
    np.save(tmp_path / "hole.npy", np.where(X == X.max(), np.nan, X))
    with pytest.raises(CofactorError, match=r"client hole \(.*hole\.npy\): .*NaN"):
        fit(Config([str(home / "a-points.npy"), str(tmp_path / "hole.npy")], 2, method="k-means"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_folder_and_its_report_say_why_the_run_ended_and_who_never_answered(home: Path, tmp_path: Path) -> None:
    """Of three clients one takes part in the only round."""
    folder = fit(config_of(home, "averaged", rounds=1, participation=0.34), tmp_path / "run")
    result = folder.evaluation()
    assert result.ended == "the rounds were used up, too few of them to judge whether it had settled"
    assert (result.absent, len(result.undrawn)) == ([], 2)
    last = json.loads((folder.path / "history.jsonl").read_text().splitlines()[-1])
    assert last["ended"] == "few"
    page = render(folder.path).read_text()
    assert f"Why it ended: {result.ended}." in page
    assert (
        f"Drawn for none of the rounds, so that the factor knows nothing of them: {', '.join(result.undrawn)}." in page
    )
    assert "never answered" not in page  # nobody asked them


def test_empty_components_are_the_same_for_a_team(home: Path, tmp_path: Path) -> None:
    """More clusters than there are points: what no process uses is empty, in all of them."""
    points = np.repeat(np.eye(2, 5), 9, axis=0)
    np.save(tmp_path / "points.npy", points)
    file = [str(tmp_path / "points.npy")]
    one = fit(Config(file, 4, method="k-means", rounds=3, split=3, by="rows"), tmp_path / "one")
    assert len(one.evaluation().empty) == 2
    config = Config(file, 4, method="k-means", rounds=3)
    three = together(3, lambda engine: fit(config, tmp_path / "three"))[0]
    assert three.evaluation().empty == one.evaluation().empty


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_a_file_whose_name_is_not_in_utf8_is_refused_in_one_sentence(tmp_path: Path) -> None:
    """It ended in a traceback when the settings were written, and left an empty folder."""
    file = tmp_path / os.fsdecode(b"caf\xe9.npy")
    np.save(file, np.ones((4, 3)))
    with pytest.raises(CofactorError, match=r"caf.udce9.npy': expected a path in UTF-8"):
        fit(Config([str(file)], 2), tmp_path / "run")
    assert not (tmp_path / "run").exists()
