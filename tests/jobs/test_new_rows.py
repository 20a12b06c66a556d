"""New rows for a finished run: the run's own inputs have the codes that the run gave them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.helpers.samples import SAMPLES, write

from cofactor.jobs.config import Config
from cofactor.jobs.folder import RunFolder
from cofactor.jobs.job import fit
from cofactor.jobs.lists import recommend
from cofactor.jobs.new_rows import transform
from cofactor.types import CofactorError


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("new"))


def fitted(home: Path, name: str, out: Path, **more: Any) -> RunFolder:
    files, options = SAMPLES[name]
    return fit(Config([str(home / file) for file in files], **{**options, **more}), out)


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "real": ("real", {}),
    "averaged": ("averaged", {}),
    "union": ("union", {}),
    "intersection": ("union", {"features": "intersection"}),
    "boolean": ("boolean", {}),
    "swept": ("swept", {}),
    "several": ("several", {"holdout": None}),
    "clusters": ("clusters", {}),
    "private": ("private", {}),
    "secure": ("secure", {}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_run_transforms_its_own_inputs(home: Path, case: str, tmp_path: Path) -> None:
    name, more = CASES[case]
    folder = fitted(home, name, tmp_path / "run", **more)
    for line in folder.inputs():
        W, error, _ = transform(folder, Path(line.path))
        own = folder.client(line.client)
        np.testing.assert_allclose(W, np.load(own.path / "codes.npy"), atol=1e-5, err_msg=line.client)
        told = json.loads((own.path / "evaluation.json").read_text()) if case in ("private", "secure") else None
        scores = {c.client: c.error for c in folder.evaluation().clients}
        assert error == pytest.approx(told["error"] if told else scores[line.client], rel=1e-5)


def test_a_run_whose_arrays_are_damaged_says_which_file(home: Path, tmp_path: Path) -> None:
    folder = fitted(home, "real", tmp_path / "run")
    whole = folder.factor_file.read_bytes()
    folder.factor_file.write_bytes(whole[: len(whole) // 2])
    for read in (folder.factor, folder.public, lambda: transform(folder, Path(folder.inputs()[0].path))):
        with pytest.raises(CofactorError, match=r"factor\.npz: expected .*, found another file, or a damaged one"):
            read()


def test_one_file_that_was_cut_is_transformed_as_a_whole(home: Path, tmp_path: Path) -> None:
    for name, more in (("blocks", {}), ("blocks", {"method": "exact"})):
        folder = fitted(home, name, tmp_path / f"{name}{len(more)}", **more)
        parts = {line.client: np.load(folder.client(line.client).path / "codes.npy") for line in folder.inputs()}
        W, error, _ = transform(folder, home / "all.npy")
        assert len(W) == sum(len(part) for part in parts.values())
        assert error == pytest.approx(folder.evaluation().error, rel=1e-4)


def test_features_are_matched_by_name_and_missing_ones_are_not_zero(home: Path, tmp_path: Path) -> None:
    folder = fitted(home, "real", tmp_path / "run")
    table = pd.read_csv(home / "a.csv")
    table[table.columns[::-1]].to_csv(tmp_path / "turned.csv", index=False)
    np.testing.assert_allclose(transform(folder, tmp_path / "turned.csv")[0], transform(folder, home / "a.csv")[0])
    table.iloc[:, 1:].to_csv(tmp_path / "less.csv", index=False)
    table.assign(gene0=0).to_csv(tmp_path / "zero.csv", index=False)
    with pytest.warns(UserWarning, match=r"less.csv: 1 of the \d+ features of the run are not there \('gene0', ...\)"):
        less = transform(folder, tmp_path / "less.csv")[0]
    zero = transform(folder, tmp_path / "zero.csv")[0]
    assert np.abs(less - zero).max() > 1e-3
    table.assign(tp53=1).to_csv(tmp_path / "more.csv", index=False)
    with pytest.raises(CofactorError, match=r"more\.csv: expected features of the run only, found also 'tp53'"):
        transform(folder, tmp_path / "more.csv")


def test_a_run_over_common_features_leaves_the_others_out(home: Path, tmp_path: Path) -> None:
    folder = fitted(home, "union", tmp_path / "run", features="intersection")
    table = pd.read_csv(home / "a.csv")
    table.iloc[:, 2:].to_csv(tmp_path / "common.csv", index=False)
    np.testing.assert_allclose(
        transform(folder, home / "a.csv")[0], transform(folder, tmp_path / "common.csv")[0], atol=1e-9
    )
    table.iloc[:, :2].to_csv(tmp_path / "others.csv", index=False)
    with pytest.raises(CofactorError, match="expected features of the run only, found also 'gene0', 'gene1'"):
        transform(folder, tmp_path / "others.csv")


def test_a_group_column_is_not_a_feature_of_new_rows(tmp_path: Path) -> None:
    table = pd.DataFrame(np.random.default_rng(0).random((12, 4)), columns=list("wxyz")).assign(ward=[1, 2] * 6)
    table.to_csv(tmp_path / "all.csv", index=False)
    folder = fit(Config([str(tmp_path / "all.csv")], 2, group_by="ward", rounds=2), tmp_path / "run")
    W, *_ = transform(folder, tmp_path / "all.csv")
    own = [np.load(folder.client(name).path / "codes.npy") for name in ("1", "2")]
    np.testing.assert_allclose(W[::2], own[0], atol=1e-5)
    np.testing.assert_allclose(W[1::2], own[1], atol=1e-5)


def test_neither_is_one_that_was_left_out_which_new_rows_need_not_have(tmp_path: Path) -> None:
    table = pd.DataFrame(np.random.default_rng(0).random((12, 4)), columns=list("wxyz")).assign(patient_id=range(12))
    table.to_csv(tmp_path / "all.csv", index=False)
    table[list("wxyz")].to_csv(tmp_path / "plain.csv", index=False)
    config = Config([str(tmp_path / "all.csv")], 2, leave_out="patient_id", rounds=2)
    folder = fit(config, tmp_path / "run")
    assert RunFolder.open(tmp_path / "run").config() == config
    found = [transform(folder, tmp_path / name)[0] for name in ("all.csv", "plain.csv")]
    np.testing.assert_array_equal(*found)
    np.testing.assert_allclose(found[0], np.load(folder.client("all").path / "codes.npy"), atol=1e-5)


@pytest.mark.parametrize("by", ["sorted", "dirichlet"])
def test_neither_is_the_label_of_a_split(by: str, tmp_path: Path) -> None:
    table = pd.DataFrame(np.random.default_rng(0).random((12, 4)), columns=list("wxyz")).assign(kind=[1, 2] * 6)
    table.to_csv(tmp_path / "all.csv", index=False)
    config = Config([str(tmp_path / "all.csv")], 2, split=2, by=by, label="kind", alpha=5, rounds=2)
    folder = fit(config, tmp_path / "run")
    W, error, _ = transform(folder, tmp_path / "all.csv")
    assert (W.shape, error) == ((12, 2), pytest.approx(folder.evaluation().error, rel=1e-5))


def test_wrong_rows_are_refused(home: Path, tmp_path: Path) -> None:
    folder = fitted(home, "clusters", tmp_path / "run")
    np.save(tmp_path / "wide.npy", np.ones((2, 9)))
    with pytest.raises(CofactorError, match=r"wide\.npy: expected 5 features like the run, found 9"):
        transform(folder, tmp_path / "wide.npy")
    bits = fitted(home, "boolean", tmp_path / "bits")
    with pytest.raises(CofactorError, match=r"all\.npy"):
        transform(bits, home / "all.npy")


def test_recommendations_come_from_the_factor_alone(home: Path, tmp_path: Path) -> None:
    folder = fitted(home, "ratings", tmp_path / "run")
    (tmp_path / "mine.csv").write_text("user,item,rating\nme,m1,5\nme,nothing,3\nyou,m2,1\n")
    found = recommend(folder, tmp_path / "mine.csv", 3)
    assert {user: len(items) for user, items in found.items()} == {"me": 3, "you": 3}
    assert "m1" not in found["me"]
    W, error, _ = transform(folder, tmp_path / "mine.csv")
    assert (len(W), np.isfinite(error)) == (2, True)
    with pytest.raises(CofactorError, match="expected a run on ratings, found one of method 'exact'"):
        recommend(fitted(home, "real", tmp_path / "real"), tmp_path / "mine.csv", 3)


def test_rows_of_a_known_client_have_the_codes_of_its_own_factor(home: Path, tmp_path: Path) -> None:
    folder = fitted(home, "real", tmp_path / "run", method="shared-own", rounds=20)
    line = folder.inputs()[1]
    found = transform(folder, Path(line.path), client=line.client)
    codes = np.load(folder.client(line.client).path / "codes.npy")
    np.testing.assert_allclose(found.codes, codes, atol=2e-2 * codes.max())
    errors = {score.client: score.error for score in folder.evaluation().clients}
    assert found.error == pytest.approx(errors[line.client], rel=1e-2)
    with pytest.raises(CofactorError, match="unknown client 'nobody'"):
        transform(folder, Path(line.path), client="nobody")
    (folder.client(line.client).path / "own.npy").unlink()
    with pytest.raises(CofactorError, match=r"--client: expected the own part .* found none"):
        transform(folder, Path(line.path), client=line.client)
    plain = fitted(home, "real", tmp_path / "plain", rounds=3)
    with pytest.raises(CofactorError, match="--client: expected a run of shared-own"):
        transform(plain, Path(line.path), client=line.client)
