"""Usage by client, and what is shared and what a client's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cofactor.jobs.config import Config
from cofactor.jobs.job import fit
from cofactor.report import html
from cofactor.report.contents import read
from cofactor.report.sections import usage


def test_a_bar_is_all_that_the_model_says_of_a_client(real_run: Path) -> None:
    """Ten components: the seven largest and the three others add up, and are those of codes and factor."""
    found, folder = usage.usage(read(real_run)), read(real_run)
    assert found is not None
    assert [bar.client for bar in found["bars"]] == folder.client_names
    for bar in found["bars"]:
        assert [b.tone for b in bar.parts] == list(range(usage.TONES + 1))
        assert sum(b.width for b in bar.parts) == pytest.approx(100, abs=0.1)
    W = np.load(real_run / "clients" / "Lyon" / "codes.npy")
    H, share = folder.factor.H, [p.client_shares[1] for p in folder.passports or []]
    model = W @ H
    assert share == pytest.approx([np.vdot(np.outer(W[:, i], H[i]), model) / np.vdot(model, model) for i in range(10)])
    assert found["keys"][-1].name == "3 other components"
    assert "Usage by client" in html.page(folder)


def test_passports_without_shares_have_no_bars(folder: Path, edit) -> None:
    edit(folder / "passports.json", lambda lines: [p.pop("client_shares") for p in lines] and None)
    assert usage.usage(read(folder)) is None
    assert 'id="usage"' not in html.page(read(folder))


@pytest.fixture(scope="module")
def own_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two labs that measure three programs, each shifted in its own way."""
    path, rng = tmp_path_factory.mktemp("own"), np.random.default_rng(0)
    programs = rng.gamma(0.3, size=(3, 30))
    for name in ("north", "south"):
        X = rng.gamma(0.5, size=(60, 3)) @ (programs + 0.8 * rng.gamma(0.3, size=(3, 30)))
        pd.DataFrame(X, columns=[f"gene{i}" for i in range(30)]).to_csv(path / f"{name}.csv", index=False)
    files = [str(path / f"{name}.csv") for name in ("north", "south")]
    return fit(Config(files, 3, method="shared-own", rounds=20, seed=0), path / "run").path


def test_shared_and_own_parts_are_shown_and_the_own_ones_stay(own_run: Path) -> None:
    """Bars are the sums of ``W H`` and ``W V`` over all cells; features of own parts are not in the page."""
    folder = read(own_run)
    found = usage.apart(folder)
    assert found is not None
    for score, bar in zip(folder.evaluation.clients, found["bars"], strict=True):
        home = own_run / "clients" / score.client
        W, V = np.load(home / "codes.npy"), np.load(home / "own.npy")
        shared, own = np.sum(W @ folder.factor.H), np.sum(W @ V)
        assert score.own_share == pytest.approx(own / (shared + own), rel=1e-5)
        assert [b.width for b in bar.parts] == pytest.approx(
            [100 * shared / (shared + own), 100 * own / (shared + own)], abs=0.01
        )
        each = V.sum(axis=1) / (V + folder.factor.H).sum(axis=1)
        assert score.own_shares == pytest.approx(each, rel=1e-5)
    text = html.page(folder)
    assert 'id="apart"' in text
    assert "clients/NAME/own.npy" in text
