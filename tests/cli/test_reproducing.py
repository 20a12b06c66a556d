"""``cofactor reproduce`` as a person types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.helpers.experiment import traces, written
from typer.testing import CliRunner

from cofactor.cli.app import app
from cofactor.reproduce import experiment, pipeline
from cofactor.types import CofactorError


def test_the_list_names_every_experiment() -> None:
    said = CliRunner().invoke(app, ["reproduce", "--list"])
    assert said.exit_code == 0
    assert all(f"{name} " in said.stdout for name in experiment.names())
    rows = json.loads(CliRunner().invoke(app, ["reproduce", "--list", "--json"]).stdout)
    assert [row["experiment"] for row in rows] == experiment.names()


def test_verdicts_are_printed_and_an_interruption_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["reproduce", written(tmp_path), "--quick", "--out", str(tmp_path / "out"), "--workers", "2"]
    said = CliRunner().invoke(app, words)
    assert said.exit_code == 0, said.output
    for text in (
        "reproduced: theirs is larger",
        "paper: 3 times; here: 3 x",
        "not reproduced",
        "4/4  tiny",
        "out/tiny: cells.jsonl, figure",
    ):
        assert text in said.output
    assert len(traces(tmp_path)) == 4
    found = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert [c["verdict"] for c in found[0]["claims"]] == ["reproduced", "reproduced with correction", "not reproduced"]
    assert (found[0]["missing"], found[0]["failed"]) == ({}, [])

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pipeline, "reproduce", interrupted)
    said = CliRunner().invoke(app, words)
    assert said.exit_code == 130
    assert "the same command goes on" in said.output


def test_mistakes_are_one_sentence() -> None:
    for words, text in (
        (["fnmf-fig33"], "Did you mean 'fnmf-fig3'"),
        (["FNMF-FIG3"], "Did you mean 'fnmf-fig3'"),
        ([], "--all"),
        (["--all", "--workers", "0"], "1"),
    ):
        found = CliRunner().invoke(app, ["reproduce", *words]).exception
        assert isinstance(found, CofactorError)
        assert text in str(found)
