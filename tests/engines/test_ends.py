"""What clients find in the end under masks: added up, and of no client to be seen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.helpers.client_jobs import NAMES, federation, terms_of
from tests.helpers.federation import blocks
from tests.helpers.teams import together

from cofactor import FederatedNMF
from cofactor.engines import ends
from cofactor.engines.flare_format import unpack
from cofactor.engines.host import Host
from cofactor.engines.secure import SecureSession, new_keys
from cofactor.jobs.config import Config
from cofactor.jobs.job import fit
from cofactor.methods import catalog
from cofactor.privacy.errors import ShapeError
from cofactor.report.html import render
from cofactor.types import Message


def test_numbers_of_any_size_add_up() -> None:
    own = [np.array([3e-9, 1e15, 7.25, 0.0, -2e-7]) * (j + 1) for j in range(5)]
    sums = Message({"found": np.sum([ends.told(a).arrays["found"] for a in own], axis=0)})
    assert all(np.abs(ends.told(a).arrays["found"]).max() <= 2**24 for a in own)
    np.testing.assert_allclose(ends.total(sums), np.sum(own, axis=0), rtol=1e-15, atol=1e-13)
    for wrong in ([np.nan], np.zeros(33), np.zeros((2, 2))):
        with pytest.raises(ShapeError, match="at most 32 finite numbers"):
            ends.told(wrong)


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    for name, X in zip("abc", blocks()):
        np.save(tmp_path / f"{name}.npy", X)
    return [str(tmp_path / f"{name}.npy") for name in "abc"]


def test_a_run_under_masks_knows_its_error_and_that_of_no_client(tmp_path: Path, files: list[str]) -> None:
    """Errors and rows of every client were told at the end, while all else was masked."""
    plain, masked = (fit(Config(files, 3, secure=s, rounds=4, tol=0.0), tmp_path / f"{s}") for s in (False, True))
    assert masked.evaluation().clients == []
    assert [line.rows for line in masked.manifest_record().inputs] == [None] * 3
    assert not any("sha256" in line for line in masked.manifest()["inputs"])
    here = fit(Config(files, 3, rounds=4, tol=0.0, options={"start": "moments"}), tmp_path / "here")
    assert masked.evaluation().error == pytest.approx(here.evaluation().error, rel=1e-4)
    for score in here.evaluation().clients:
        own = json.loads((masked.client(score.client).path / "evaluation.json").read_text())
        assert (own["rows"], own["error"]) == (score.rows, pytest.approx(score.error, rel=1e-3))
    assert len(plain.evaluation().clients) == 3


def test_processes_tell_each_other_nothing_but_sums_under_masks(
    tmp_path: Path, files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[Any] = []
    Xs = [np.load(file) for file in files]

    def go(engine: Any) -> Any:
        real = engine.team.exchange
        monkeypatch.setattr(
            engine.team, "exchange", lambda w, v=None, **more: said.append(repr(v)) or real(w, v, **more)
        )
        X = Xs[engine.team.here]
        return FederatedNMF(3, engine=engine, secure=True, rounds=3, tol=0, random_state=0).fit([X])

    models = together(3, go)
    whole = FederatedNMF(3, secure=True, rounds=3, tol=0, random_state=0).fit(Xs).reconstruction_err_
    assert [m.reconstruction_err_ for m in models] == pytest.approx([whole] * 3, rel=1e-4)
    for X in Xs:
        assert not any(f"{np.sum(X**2):.6f}"[:8] in text for text in said)


def test_what_is_found_is_added_up_once() -> None:
    """A server that asks again, for a sum over fewer clients, gets nothing: the difference would tell of one."""
    host = Host(catalog.make("exact", 2, start="random"), [blocks()[0]], 0, masks=True)
    new_keys(host, None)
    host.finish(np.ones((2, 20)), [lambda client, factor: np.ones(3)])
    assert (ends.bring_found(host), ends.bring_found(host)) == ({0: b""}, {})


def test_clients_of_a_federation_say_no_errors_under_masks(tmp_path: Path) -> None:
    folder, heard = federation(tmp_path, blocks(), terms_of(secure=True))
    plain, _ = federation(tmp_path / "plain", blocks(), terms_of(options={"start": "moments"}))
    assert folder.evaluation().error == pytest.approx(plain.evaluation().error, rel=1e-2)
    assert folder.evaluation().clients == []
    assert len(plain.evaluation().clients) == len(NAMES)
    assert not any(b"tally" in frame for frame in heard)
    assert all(unpack(frame).get("no") is None for frame in heard)


@pytest.mark.parametrize("number", [-1000.0, 7.0, 1e9, None])
def test_numbers_that_nobody_can_have_found_do_not_lose_a_run_that_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: float | None
) -> None:
    """Under masks nobody can say who has lied: the run has no errors then, and its factor all the same."""
    honest, told = ends.told, []

    def lies(found: Any) -> Message:
        told.append(found)
        message = honest(found)
        if len(told) != 2:
            return message
        size = message.arrays["found"].shape
        wrong = 1e6 * np.random.default_rng(0).normal(size=size) if number is None else np.full(size, number)
        return Message({"found": wrong})

    monkeypatch.setattr(ends, "told", lies)
    folder, _ = federation(tmp_path, [X / 10 for X in blocks()], terms_of(secure=True, method="exact"))
    assert len(told) == 4
    assert folder.evaluation().error is None
    assert np.isfinite(folder.factor()[0]).all()
    render(folder.path)


def test_a_run_of_which_too_few_are_left_in_the_end_is_done_all_the_same(tmp_path: Path, files: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SecureSession, "_found", lambda session: [])
        folder = fit(Config(files, 3, secure=True, rounds=3, tol=0.0), tmp_path / "run")
    assert folder.evaluation().error is None
