"""From files to clients: names, features, splits, and which clients are a process's own."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
import zarr
from scipy import sparse
from tests.helpers.samples import CLIENTS, SAMPLES, write
from tests.helpers.teams import together

from cofactor.data import ratings_split
from cofactor.jobs.config import Config
from cofactor.jobs.hashing import sha256
from cofactor.jobs.place import Place
from cofactor.jobs.reading import Inputs, read
from cofactor.local.columns import SomeColumns
from cofactor.methods.blocks import blocks
from cofactor.privacy.errors import PrivacyError
from cofactor.types import CofactorError


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("reading"))


def config_of(home: Path, name: str, **more: Any) -> Config:
    files, options = SAMPLES[name]
    return Config([str(home / file) for file in files], **{**options, **more})


def dense(X: Any) -> np.ndarray:
    X = getattr(X, "row_block", X)
    X = X.load() if hasattr(X, "load") else X
    return X.toarray() if sparse.issparse(X) else np.asarray(X)


def alone(config: Config) -> Inputs:
    return read(config, Place())[1]


EXPECTED = {
    "real": (["a", "b", "c"], list(CLIENTS), 12),
    "union": (["a", "b", "less"], list(CLIENTS), 12),
    "boolean": (["a-bits", "b-bits", "c-bits"], list(CLIENTS), 12),
    "clusters": (["a-points", "b-points", "c-points"], list(CLIENTS), 5),
    "blocks": (["client-0", "client-1", "client-2"], [25, 24, 24], 12),
    "ratings": ([f"u{u}" for u in range(24)], [1] * 24, 15),
    "several": (["x-stars", "y-stars", "z-stars"], [8, 8, 8], 15),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_files_of_every_kind_become_clients(home: Path, name: str) -> None:
    names, rows, features = EXPECTED[name]
    found = alone(config_of(home, name))
    assert sorted(found.names) == sorted(names)
    assert [X.shape for X in found.data] == [(n, features) for n in rows]
    assert len(found.sources) == len(names)
    assert all(Path(source).exists() for source in found.sources)


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("count", [2, 3])
def test_the_processes_of_a_team_share_the_clients_out_in_their_order(home: Path, name: str, count: int) -> None:
    config = config_of(home, name)
    whole = alone(config)
    parts = together(count, lambda engine: read(config, Place(engine))[1])
    sizes = [len(part.names) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    assert [n for part in parts for n in part.names] == whole.names
    assert [s for part in parts for s in part.sources] == whole.sources
    assert all(part.feature_names == whole.feature_names for part in parts)
    for X, Y in zip([X for part in parts for X in part.data], whole.data, strict=True):
        if isinstance(X, SomeColumns):
            np.testing.assert_array_equal(X.index, Y.index)
            np.testing.assert_array_equal(X.inner, Y.inner)
        else:
            np.testing.assert_array_equal(dense(X), dense(Y))
    held = [sparse.csr_matrix(x).toarray() for part in parts for x in part.held]
    for x, y in zip(held, whole.held, strict=True):
        np.testing.assert_array_equal(x, y.toarray())


def test_one_file_for_several_processes_is_cut_by_rows(home: Path) -> None:
    config = Config([str(home / "all.npy")], 3)
    parts = together(3, lambda engine: read(config, Place(engine)))
    assert [part.names for _, part in parts] == [["client-0"], ["client-1"], ["client-2"]]
    assert [(settled.split, settled.by) for settled, _ in parts] == [(3, "rows")] * 3
    np.testing.assert_array_equal(np.vstack([dense(part.data[0]) for _, part in parts]), np.load(home / "all.npy"))


def test_one_file_of_ratings_for_several_processes_is_cut_by_users(home: Path) -> None:
    config = Config([str(home / "stars.csv")], 2, ratings=True)
    (whole,) = alone(config).data
    parts = together(3, lambda engine: read(config, Place(engine))[1])
    assert [part.names for part in parts] == [["client-0"], ["client-1"], ["client-2"]]
    np.testing.assert_array_equal(np.vstack([dense(part.data[0]) for part in parts]), dense(whole))
    assert [name for part in parts for name in part.rows[0]] == alone(config).rows[0]


FILES = {
    "big.npy": np.save,
    "big.npz": lambda path, X: sparse.save_npz(path, sparse.csr_matrix(X)),
    "big.csv": lambda path, X: np.savetxt(path, X, delimiter=","),
    "big.h5ad": lambda path, X: anndata.AnnData(X).write_h5ad(path),
    "sparse.h5ad": lambda path, X: anndata.AnnData(sparse.csr_matrix(X)).write_h5ad(path),
    "big.zarr": lambda path, X: zarr.save_array(str(path), X),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_any_format_is_read_by_its_rows_or_by_its_blocks(name: str, home: Path, tmp_path: Path) -> None:
    X = np.load(home / "all.npy")
    FILES[name](tmp_path / name, X)
    config = Config([str(tmp_path / name)], 3, split=3, by="rows")
    parts = together(3, lambda engine: read(config, Place(engine))[1].data)
    np.testing.assert_allclose(np.vstack([dense(x) for data in parts for x in data]), X)
    assert [[x.shape[0] for x in data] for data in parts] == [[25], [24], [24]]
    cut = replace(config, method="dsanls")
    for found, expected in zip(together(3, lambda engine: read(cut, Place(engine))[1].data), blocks(X, 3), strict=True):
        np.testing.assert_allclose(dense(found[0].row_block), expected.row_block)
        np.testing.assert_allclose(dense(found[0].column_block), expected.column_block)
        assert (found[0].first_row, found[0].first_column) == (expected.first_row, expected.first_column)


def test_more_processes_than_clients_or_rows_are_refused(home: Path, tmp_path: Path) -> None:
    two = Config([str(home / "a.csv"), str(home / "b.csv")], 3)
    with pytest.raises(CofactorError, match=r"expected at most 2 processes \(the clients\), found 3"):
        together(3, lambda engine: read(two, Place(engine)))
    np.save(tmp_path / "few.npy", np.eye(2))
    for method in ("exact", "dsanls"):
        few = Config([str(tmp_path / "few.npy")], 1, method=method)
        with pytest.raises(CofactorError, match=r"few\.npy: expected at most 2 processes \(its rows\), found 3"):
            together(3, lambda engine, few=few: read(few, Place(engine)))


def test_an_error_on_one_process_is_raised_on_all(home: Path) -> None:
    """Only the second process reads the file that is not there."""
    config = Config([str(home / "a.csv"), str(home / "gone.csv")], 3)
    with pytest.raises(CofactorError, match=r"process 1: .*gone\.csv: expected a file"):
        together(2, lambda engine: read(config, Place(engine)))


def test_names_are_those_of_files_of_folders_where_they_repeat_and_else_have_a_number(
    home: Path, tmp_path: Path
) -> None:
    for folder in ("north", "south"):
        (tmp_path / folder).mkdir()
        np.save(tmp_path / folder / "data.npy", np.eye(4))
    np.save(tmp_path / "east.npy", np.eye(4))
    files = [str(tmp_path / name) for name in ("north/data.npy", "east.npy", "south/data.npy")]
    assert alone(Config(files, 2)).names == ["north", "east", "south"]
    np.save(tmp_path / "data.npy", np.eye(4))
    np.savez(tmp_path / "data.npz", np.eye(4))
    assert alone(Config([str(tmp_path / "data.npy"), str(tmp_path / "data.npz")], 2)).names == ["data-0", "data-1"]


def test_rows_are_grouped_by_a_column(tmp_path: Path) -> None:
    table = pd.DataFrame(np.arange(20.0).reshape(10, 2), columns=["g0", "g1"]).assign(ward=list("BABAC") * 2)
    table.to_csv(tmp_path / "all.csv", index=False)
    config = Config([str(tmp_path / "all.csv")], 1, group_by="ward")
    found = alone(config)
    assert (found.names, found.feature_names) == (["A", "B", "C"], ["g0", "g1"])
    for name, X in zip(found.names, found.data, strict=True):
        np.testing.assert_array_equal(X, table[table.ward == name][["g0", "g1"]])
    parts = together(3, lambda engine: read(config, Place(engine))[1])
    assert [part.names for part in parts] == [["A"], ["B"], ["C"]]


@pytest.mark.parametrize("by", ["iid", "rows", "sorted", "dirichlet"])
def test_a_split_has_every_row_once_on_any_number_of_processes(by: str, tmp_path: Path) -> None:
    table = pd.DataFrame(np.arange(60.0).reshape(30, 2), columns=["g0", "g1"]).assign(kind=[3, 1, 2] * 10)
    table.to_csv(tmp_path / "all.csv", index=False)
    config = Config([str(tmp_path / "all.csv")], 1, split=4, by=by, label="kind", seed=2)
    found = alone(config)
    assert found.names == [f"client-{j}" for j in range(4)]
    rows = np.vstack([dense(X) for X in found.data])
    np.testing.assert_array_equal(rows[np.argsort(rows[:, 0])], table[["g0", "g1"]])
    parts = together(2, lambda engine: read(config, Place(engine))[1].data)
    for X, Y in zip([X for data in parts for X in data], found.data, strict=True):
        np.testing.assert_array_equal(dense(X), dense(Y))


def test_features_are_matched_by_name(home: Path) -> None:
    same = config_of(home, "union", features="intersection")
    assert alone(same).feature_names == [f"gene{i}" for i in range(2, 12)]
    assert alone(same).known is None
    union = alone(config_of(home, "union"))
    assert union.known is not None
    assert [len(index) for index in union.known] == [12, 12, 10]
    with pytest.raises(CofactorError, match="gene0"):
        alone(config_of(home, "union", features="same"))


def test_a_union_of_equal_features_is_put_in_order(tmp_path: Path) -> None:
    X = np.arange(12.0).reshape(3, 4)
    pd.DataFrame(X, columns=list("abcd")).to_csv(tmp_path / "x.csv", index=False)
    pd.DataFrame(X[:, ::-1], columns=list("dcba")).to_csv(tmp_path / "y.csv", index=False)
    found = alone(Config([str(tmp_path / "x.csv"), str(tmp_path / "y.csv")], 2, features="union"))
    assert found.known is None
    for Y in found.data:
        np.testing.assert_array_equal(Y, X)


def test_held_out_ratings_are_those_of_all_users_together(home: Path) -> None:
    """What is held out does not depend on how users are spread over files or processes."""
    for name in ("ratings", "several"):
        found = alone(config_of(home, name, holdout="random"))
        train, test = (sparse.vstack(parts).toarray() for parts in (found.data, found.held))
        R = sparse.csr_matrix(train + test)
        assert R.nnz == (home / "stars.csv").read_text().count("\n") - 1
        np.testing.assert_array_equal(test, ratings_split.at_random(R, share=0.2, seed=0).test.toarray())
        assert not np.logical_and(train, test).any()


def test_nothing_held_out_is_an_empty_list(home: Path) -> None:
    assert alone(config_of(home, "ratings", holdout=None)).held == []


def test_a_method_is_chosen_when_data_are_seen(home: Path) -> None:
    settled, _ = read(Config([str(home / "all.npy")], 3, method="auto"), Place())
    assert settled.method == "exact"
    assert settled.why.startswith("exact, because the shorter side of 73 x 12")
    settled, _ = read(Config([str(home / "a.csv"), str(home / "b.csv")], 3, method="auto"), Place())
    assert settled.why.startswith("exact, because")
    assert "73" not in settled.why


@pytest.mark.parametrize("count", [1, 2])
def test_a_feature_name_that_is_there_twice_is_refused_unless_features_go_by_position(
    tmp_path: Path, count: int
) -> None:
    files = [str(tmp_path / f"{name}.h5ad") for name in "ab"[:count]]
    for file in files:
        anndata.AnnData(np.ones((3, 3)), var=pd.DataFrame(index=["TBCE", "B", "TBCE"])).write_h5ad(file)
    with pytest.raises(CofactorError, match=r"a.h5ad: .* found 'TBCE' more than once; adata.var_names_make_unique"):
        read(Config(files, 2), Place())
    assert read(Config(files, 2, features="position"), Place())[1].data[0].shape == (3, 3)


@pytest.mark.parametrize("suffix", ["csv", "parquet", "h5ad", "npz"])
def test_columns_are_left_out_of_every_format(tmp_path: Path, suffix: str) -> None:
    file, frame = tmp_path / f"a.{suffix}", pd.DataFrame(np.arange(9.0).reshape(3, 3), columns=["id", "x", "y"])
    if suffix == "csv":
        frame.to_csv(file, index=False)
    elif suffix == "parquet":
        frame.to_parquet(file)
    elif suffix == "h5ad":
        anndata.AnnData(frame).write_h5ad(file)
    else:
        np.savez(file, X=frame.to_numpy(), features=np.array(list(frame.columns)))
    found = read(Config([str(file)], 2, leave_out="id"), Place())[1]
    assert found.feature_names == ["x", "y"]
    np.testing.assert_array_equal(dense(found.data[0]), frame[["x", "y"]])
    with pytest.raises(CofactorError, match=r"a\..*: expected a .*'idx'"):
        read(Config([str(file)], 2, leave_out="id, idx"), Place())


@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_a_file_of_two_names_is_one_file(tmp_path: Path, link: Any) -> None:
    np.save(tmp_path / "a.npy", np.ones((6, 3)))
    link(tmp_path / "a.npy", tmp_path / "b.npy")
    files = [str(tmp_path / name) for name in ("a.npy", "b.npy")]
    with pytest.raises(PrivacyError, match=r"a.npy: expected each file once, found it again"):
        read(Config(files, rank=1, epsilon=1.0, delta=1e-6), Place())


def test_a_file_that_is_given_twice_is_told_and_in_a_private_run_refused(tmp_path: Path) -> None:
    """Every row was in two clients, at the price of one."""
    np.save(tmp_path / "a.npy", np.ones((4, 3)))
    given = Config([str(tmp_path / "a.npy")] * 2, rank=2)
    with pytest.warns(UserWarning, match=r"a.npy: is given more than once, so that its rows count as often"):
        assert len(read(given, Place())[1].data) == 2
    with pytest.raises(PrivacyError, match=r"a.npy: expected each file once, found it again"):
        read(replace(given, epsilon=1.0, delta=1e-6), Place())


def test_a_folder_is_known_by_the_names_of_its_files_too(tmp_path: Path) -> None:
    """A block of rows that was moved to another place, or cut at another one, was taken for the same data."""
    X = np.zeros((6, 4))
    X[2:4] = 1.0
    group = zarr.open_array(str(tmp_path / "a.zarr"), mode="w", shape=X.shape, chunks=(2, 4), dtype="f8", fill_value=0)
    group[2:4] = X[2:4]
    before = sha256(tmp_path / "a.zarr")
    [block] = (path for path in (tmp_path / "a.zarr").rglob("*") if path.is_file() and "json" not in path.name)
    home = block.parent.parent if block.parent.name == "1" else block.parent  # zarr 3, or 2
    moved = home / ("2/0" if block.parent.name == "1" else "2.0")
    moved.parent.mkdir(exist_ok=True)
    block.rename(moved)
    assert np.asarray(zarr.open_array(str(tmp_path / "a.zarr"), mode="r"))[4:].all()
    assert sha256(tmp_path / "a.zarr") != before


def test_a_file_is_known_by_what_is_in_it(tmp_path: Path) -> None:
    for name, text in (("a", "1\n2\n"), ("b", "1\n2\n"), ("c", "1\n")):
        (tmp_path / name).write_text(text)
    assert sha256(tmp_path / "a") == sha256(tmp_path / "b") != sha256(tmp_path / "c")
