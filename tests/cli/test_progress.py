"""How far long work has come, and what the demo ends with."""

from __future__ import annotations

import io
import logging
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from cofactor import FederatedNMF, select_rank
from cofactor.cli import demo
from cofactor.cli.progress import Progress
from cofactor.engines.history import Round
from cofactor.local.told import LOG
from cofactor.types import Shared


@pytest.fixture
def clients() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.gamma(0.5, size=(20, 3)) @ rng.gamma(0.5, size=(3, 12)) for _ in range(2)]


def test_rank_scans_and_consensus_say_how_many_pieces_are_done(
    clients: list[np.ndarray], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, LOG.name):
        select_rank(clients, [2, 3], seeds=2)
        FederatedNMF(2, method="consensus", options={"starts": 5}).fit(clients)
    fits = [r.getMessage() for r in caplog.records if r.args and r.args[0] == "fits"]  # type: ignore[index]
    assert sorted(fits) == [f"fits: {i} of 6" for i in range(1, 7)], "ranks 1 to 3 with two seeds"
    assert [r.getMessage() for r in caplog.records][-5:] == [f"starts: {i} of 5" for i in range(1, 6)]


def test_what_is_under_way_stands_below_the_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a terminal: the time so far, pieces that are done with the time left, and the table of rounds."""
    screen = Console(force_terminal=True, width=100, record=True, file=io.StringIO())
    monkeypatch.setattr("cofactor.cli.progress.Console", lambda **_: screen)

    def shown(progress: Progress) -> str:
        screen.print(progress._shown())
        return screen.export_text()

    with Progress() as progress:
        assert "working, 0 s so far" in shown(progress)
        clock = iter([10.0, 10.0, 14.0])
        monkeypatch.setattr("cofactor.cli.progress.time.monotonic", lambda: next(clock, 14.0))
        LOG.info("%s: %d of %d", "starts", 1, 7)
        LOG.info("%s: %d of %d", "starts", 3, 7)
        assert "3 of 7 starts, 8 s left" in shown(progress)
        progress.begin(4)
        progress(Round(0, 5.0, 0.0, 10, 10, 2.0, 2), Shared(np.zeros((1, 1))))
        text = shown(progress)
        assert "1/4" in text
        assert "6 s" in text, "three rounds of two seconds are left"
        assert "starts" not in text
    assert not LOG.handlers


def test_the_demo_ends_with_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "METHODS", {"oneshot": 1})
    monkeypatch.setattr(demo, "POOLED_ROUNDS", 5)
    monkeypatch.setattr(demo, "STARTS", 1)
    for _ in range(2):  # the second time, the run is there already
        demo.run_demo(tmp_path / "demo")
        told = "".join(capsys.readouterr().out.split("\n"))
        assert f"Report to open in a browser: {tmp_path / 'demo' / 'run-0' / 'report.html'}" in told
    assert "Components" in (tmp_path / "demo" / "run-0" / "report.html").read_text()
