"""Ranks of Boolean factors: planted tiles are counted, and nobody scans factors of numbers by mistake."""

from pathlib import Path

import numpy as np
import pytest
from tests.helpers.command import cofactor

from cofactor import FederatedBMF, Privacy
from cofactor.privacy.errors import PrivacyError
from cofactor.select import boolean_ranks
from cofactor.types import CofactorError


def test_planted_tiles_are_counted(rng):
    H = (rng.random((3, 40)) < 0.25).astype(int)
    X = (((rng.random((240, 3)) < 0.3) @ H) > 0) ^ (rng.random((240, 40)) < 0.02)
    found = boolean_ranks.scan(np.array_split(X.astype(int), 3), [5, 2, 3, 4], seeds=2, seed=0)
    assert list(found.ranks) == [2, 3, 4, 5]
    assert found.suggestion == 3
    assert found.heldout[1] < found.heldout[0] < found.baseline
    assert found.bytes_up > 0


def test_an_estimator_takes_the_rank_that_is_suggested(rng):
    H = np.kron(np.eye(3, dtype=int), np.ones(8, dtype=int))
    X = (((rng.random((120, 3)) < 0.4) @ H) > 0).astype(int)
    model = FederatedBMF("auto", random_state=0).fit([X[:60], X[60:]])
    assert model.n_components_ == boolean_ranks.suggested([X[:60], X[60:]], seed=0) == 3
    assert model.reconstruction_err_ == 0
    assert model.get_params()["n_components"] == "auto"


def test_a_scan_is_refused_where_it_would_show_what_the_fit_does_not(rng):
    X = (rng.random((40, 8)) < 0.4).astype(int)
    with pytest.raises(PrivacyError, match="refused in a private fit: it reads all rows without noise"):
        FederatedBMF("auto", method="felb", privacy=Privacy(1, 1e-3, unit="client")).fit([X, X])
    with pytest.raises(PrivacyError, match="refused with secure sums"):
        FederatedBMF("auto", secure=True).fit([X, X, X])


def test_what_cannot_be_scanned_is_said():
    X = np.eye(6, dtype=int)
    with pytest.raises(CofactorError, match=r"ranks must be in 1..6, at most the rows and the features. Found 7"):
        boolean_ranks.scan([X], [2, 7], seeds=1, seed=0)
    with pytest.raises(CofactorError, match="expected clients with 5 rows or more"):
        boolean_ranks.scan([X[:3], X[3:]], [2], seeds=1, seed=0)


def test_the_command_scans_what_it_is_asked_for(tmp_path: Path) -> None:
    """Zeros and ones may be numbers too: it is said that they were taken for such."""
    for name in "ab":
        np.save(tmp_path / f"{name}.npy", (np.random.default_rng(0).random((40, 12)) < 0.3).astype(int))
    files = ("a.npy", "b.npy", "-k", "2,3", "--seeds", 1)
    said = " ".join(cofactor("rank", *files, cwd=tmp_path).stdout.split())
    assert "--boolean scans those of Boolean ones." in said
    said = " ".join(cofactor("rank", *files, "--boolean", "--out", "run", cwd=tmp_path).stdout.split())
    assert "held-out loss" in said
    assert "Suggested rank" in said
    assert "--boolean scans" not in said
    assert (tmp_path / "run" / "rank.json").exists()
