"""Preparation and markers in a job: settled once, written down, paid attention to by audits, repeated for new rows."""

from __future__ import annotations

import json
import shutil
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from tests.helpers.kills import Killed, kill_at
from tests.helpers.teams import together

from cofactor import FederatedNMF
from cofactor.jobs.config import Config
from cofactor.jobs.folder import RunFolder
from cofactor.jobs.inspect import audit
from cofactor.jobs.job import fit, prepare, resume
from cofactor.jobs.judge import add_pooled
from cofactor.jobs.new_rows import annotate_file, markers, transform
from cofactor.jobs.place import Place
from cofactor.jobs.ranks import scan_ranks
from cofactor.privacy.errors import PrivacyError
from cofactor.select import select_rank
from cofactor.types import CofactorError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import anndata
    import scanpy as sc

STEPS = "library=100,log1p,hvg=20"
GENES = [f"g{i}" for i in range(40)]


def counts(n: int, seed: int) -> np.ndarray:
    draw = np.random.default_rng(seed)
    return draw.poisson(draw.gamma(0.5, size=(n, 3)) @ np.random.default_rng(9).gamma(0.1, 15, size=(3, 40))).astype(
        float
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Counts of three clients as h5ad and csv files, one with features of its own."""
    folder = tmp_path_factory.mktemp("counts")
    for seed, (name, n) in enumerate({"a": 30, "b": 41, "c": 25}.items()):
        obs = pd.DataFrame(index=[f"{name}{i}" for i in range(n)])
        X = counts(n, seed)
        anndata.AnnData(sparse.csr_matrix(X), obs=obs, var=pd.DataFrame(index=GENES)).write_h5ad(
            folder / f"{name}.h5ad"
        )
        pd.DataFrame(X, columns=GENES).to_csv(folder / f"{name}.csv", index=False)
    pd.DataFrame(counts(25, 5)[:, 4:], columns=GENES[4:]).to_csv(folder / "less.csv", index=False)
    return folder


def config_of(home: Path, *files: str, **more: Any) -> Config:
    names = files or ("a.h5ad", "b.h5ad", "c.h5ad")
    settings: dict[str, Any] = {"rank": 3, "rounds": 6, "prepare": STEPS, **more}
    return Config([str(home / name) for name in names], settings.pop("rank"), **settings)


@pytest.fixture(scope="module")
def folder(home: Path, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return fit(config_of(home), tmp_path_factory.mktemp("prepared") / "run")


def test_a_job_prepares_as_the_estimator_does(home: Path, folder: RunFolder) -> None:
    held = [anndata.read_h5ad(home / f"{name}.h5ad") for name in "abc"]
    model = FederatedNMF(3, random_state=0, rounds=6, prepare=STEPS).fit(held)
    H, names = folder.factor()
    np.testing.assert_array_equal(H, model.components_)
    assert names == model.features_
    assert len(names) == 20
    assert markers(folder, 5) == model.markers(top=5)
    read = FederatedNMF.load(folder.path / "factor.npz")
    np.testing.assert_allclose(read.transform(held[1]), model.codes_[1])
    assert read.markers(top=5) == model.markers(top=5)


def test_a_run_killed_before_its_first_round_keeps_its_steps_and_says_what_has_left_for_them(
    home: Path, folder: RunFolder, tmp_path: Path
) -> None:
    """Between manifest and first round it went on without a file of what its steps had learned, or without lines of
    the sums that had left for them."""

    def lines(of: RunFolder) -> list[list[Any]]:
        found = map(json.loads, of.ledger_file.read_text().splitlines())
        return [[line[name] for name in ("client", "round", "array", "bytes")] for line in found]

    reached: list[str] = [""]
    while not reached[-1].startswith("checkpoint"):
        out = tmp_path / f"at{len(reached)}"
        with pytest.raises(Killed), kill_at(len(reached) - 1) as seen:
            fit(config_of(home), out)
        reached.append(seen[-1])
        if RunFolder(out).manifest_file.exists():
            found = resume(out)
            assert lines(found) == lines(folder), seen
            np.testing.assert_array_equal(found.factor()[0], folder.factor()[0])
            assert found.preparation().keys() == folder.preparation().keys(), seen
            assert not list(out.glob("*.part"))
    assert "preparation.npz: named" in reached


def test_new_rows_are_prepared_as_those_of_the_run_were(home: Path, folder: RunFolder, tmp_path: Path) -> None:
    own = folder.client("b").path
    found = transform(folder, home / "b.h5ad")
    np.testing.assert_allclose(found.codes, np.load(own / "codes.npy"))
    assert found.rows == (own / "rows.txt").read_text().split() == [f"b{i}" for i in range(41)]
    np.testing.assert_allclose(transform(folder, home / "b.csv").codes, found.codes, atol=1e-6)
    annotate_file(folder, home / "b.h5ad", tmp_path / "with.h5ad", found)
    held = anndata.read_h5ad(tmp_path / "with.h5ad")
    np.testing.assert_array_equal(held.obsm["X_cofactor"], found.codes)
    ranked = sc.get.rank_genes_groups_df(held, "0", key="rank_genes_cofactor")["names"]
    assert ranked.tolist()[:3] == [m.feature for m in markers(folder, 3) if m.component == 0]
    assert held.uns["cofactor"]["prepare"] == STEPS
    with pytest.raises(CofactorError, match=r"x\.h5ad: expected new rows in an h5ad file to write one, found b\.csv"):
        annotate_file(folder, home / "b.csv", tmp_path / "x.h5ad", found)


def test_what_left_for_preparation_and_markers_is_in_the_ledger_and_audited(folder: RunFolder) -> None:
    lines = [json.loads(line) for line in folder.ledger_file.read_text().splitlines()]
    before = {line["array"] for line in lines if line["round"] == -1}
    assert before == {"hvg rows", "hvg sums", "hvg squares"}
    assert {line["round"] for line in lines if line["array"].startswith("markers ")} == {folder.evaluation().rounds}
    assert all(found.passed for found in audit(folder.path))
    assert json.loads((folder.path / "passports.json").read_text())[0]["markers"][0][0] == markers(folder, 1)[0].feature
    table = (folder.path / "markers.tsv").read_text().splitlines()
    assert table[0].split("\t") == ["component", "place", "feature", "score", "weight"]


def test_a_run_that_was_cut_off_goes_on_with_what_its_steps_had_learned(
    home: Path, folder: RunFolder, tmp_path: Path
) -> None:
    class Cut(Exception):
        pass

    def stop(line: Any, shared: Any) -> None:
        if line.round == 3:
            raise Cut

    with pytest.raises(Cut):
        fit(config_of(home), tmp_path / "run", callbacks=[stop])
    again = resume(tmp_path / "run")
    np.testing.assert_array_equal(again.factor()[0], folder.factor()[0])
    assert again.ledger_file.read_text().count('"hvg sums"') == 3
    assert all(found.passed for found in audit(again.path))


def test_processes_that_hold_different_clients_learn_the_same_steps(home: Path, folder: RunFolder) -> None:
    jobs = together(2, lambda engine: prepare(config_of(home), Place(engine)))
    for job in jobs:
        assert job.inputs.feature_names == folder.factor()[1]
    assert [len(job.inputs.data) for job in jobs] == [2, 1]


def test_masked_runs_have_masked_steps_and_markers(home: Path, tmp_path: Path) -> None:
    folder = fit(config_of(home, secure=True, prepare="library=10,log1p,scale"), tmp_path / "run")
    lines = [json.loads(line) for line in folder.ledger_file.read_text().splitlines()]
    assert {line["array"].split()[0] for line in lines if line.get("masked")} >= {"scale", "markers"}
    assert all(line.get("masked") for line in lines)
    assert len(markers(folder, 2)) == 6


def test_clients_that_lack_features_are_prepared_over_what_they_have(home: Path, tmp_path: Path) -> None:
    folder = fit(config_of(home, "a.csv", "b.csv", "less.csv", features="union"), tmp_path / "run")
    assert len(folder.factor()[1]) == 20
    found = transform(folder, home / "less.csv")
    np.testing.assert_allclose(found.codes, np.load(folder.client("less").path / "codes.npy"), atol=1e-6)
    assert markers(folder, 2)


def test_private_runs_take_rows_alone_and_have_no_markers(home: Path, tmp_path: Path) -> None:
    private = {"epsilon": 4.0, "delta": 1e-3, "insecure_noise_seed": 1}
    with pytest.raises(PrivacyError, match="hvg is refused in a private run"):
        config_of(home, **private, rounds=None)
    folder = fit(config_of(home, **private, prepare="library,log1p", rounds=None), tmp_path / "run")
    assert not (folder.path / "markers.tsv").exists()
    with pytest.raises(CofactorError, match=r"has no markers: it is private"):
        markers(folder, 3)


def test_pooled_bounds_and_rank_scans_are_prepared_too(home: Path, folder: RunFolder, tmp_path: Path) -> None:
    run = RunFolder(Path(shutil.copytree(folder.path, tmp_path / "run")))
    result = add_pooled(run)
    assert result.pooled_error == pytest.approx(folder.evaluation().error, rel=0.02)
    scan = scan_ranks(config_of(home), [2, 3], seeds=1)
    ready = prepare(config_of(home), Place()).inputs.data
    assert scan.to_dict() == select_rank(ready, [2, 3], seeds=1, seed=0).to_dict()


def test_raw_counts_are_hinted_at_and_bad_cells_are_named(home: Path, tmp_path: Path) -> None:
    assert "look like raw counts" in prepare(config_of(home, "a.csv", prepare=None), Place()).prepared.hint
    assert not prepare(config_of(home, "a.csv"), Place()).prepared.hint
    frame = pd.DataFrame(counts(9, 1), columns=GENES)
    frame.loc[2, "g7"] = -1
    frame.to_csv(tmp_path / "bad.csv", index=False)
    for steps in (None, "library"):
        with pytest.raises(CofactorError, match=r"client bad \(.*bad\.csv\): Negative.* row 2, column 7 \('g7'\)"):
            prepare(
                replace(config_of(home, prepare=steps), inputs=[str(home / "a.csv"), str(tmp_path / "bad.csv")]),
                Place(),
            )


def test_steps_for_what_has_none_are_refused(home: Path) -> None:
    with pytest.raises(CofactorError, match=r"found --prepare"):
        config_of(home, "a.csv", method="hals")
    with pytest.raises(CofactorError, match=r"--ratings has no prepare"):
        config_of(home, "a.csv", ratings=True)
    with pytest.raises(CofactorError, match=r"unknown step of a preparation 'logp'"):
        config_of(home, "a.csv", prepare="logp")
