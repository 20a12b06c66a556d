"""Row blocks compute what the matrix in memory computes, in little memory."""

import pickle
import subprocess
import sys

import anndata
import numpy as np
import pandas as pd
import pytest
import zarr
from scipy import sparse

from cofactor import FederatedNMF
from cofactor.data import load
from cofactor.data.formats.row_blocks import RowBlocks
from cofactor.local import arrays
from cofactor.types import DataError

pytestmark = pytest.mark.filterwarnings("ignore:Writing zarr v2")

N, M, K = 53, 11, 3
RNG = np.random.default_rng(0)
X = np.round(RNG.random((N, M)) * 9 * (RNG.random((N, M)) < 0.4), 2)
H, W = RNG.random((K, M)), RNG.random((N, K))

WRITERS = {
    "c.npy": lambda path: np.save(path, X),
    "f.npy": lambda path: np.save(path, np.asfortranarray(X)),
    "dense.h5ad": lambda path: anndata.AnnData(X).write_h5ad(path),
    "csr.h5ad": lambda path: anndata.AnnData(sparse.csr_matrix(X)).write_h5ad(path),
    "plain.zarr": lambda path: zarr.save_array(str(path), X),
    "csr.zarr": lambda path: anndata.AnnData(sparse.csr_matrix(X)).write_zarr(path),
    "stored.npz": lambda path: np.savez(path, X=X),
    "packed.npz": lambda path: np.savez_compressed(path, X=X),
    "csr.npz": lambda path: sparse.save_npz(path, sparse.csr_matrix(X)),
    "plain.csv": lambda path: np.savetxt(path, X, delimiter=",", header=",".join("abcdefghijk"), comments=""),
    "plain.parquet": lambda path: frame().to_parquet(path),
    "groups.parquet": lambda path: frame().to_parquet(path, row_group_size=10),
    "bare.tsv": lambda path: np.savetxt(path, X, delimiter="\t"),
}


def frame():
    return pd.DataFrame(X, columns=list("abcdefghijk"))


def dense(A):
    return A.toarray() if sparse.issparse(A) else A


@pytest.fixture(scope="module", params=list(WRITERS))
def rows(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("blocks") / request.param
    WRITERS[request.param](path)
    found = load.read(path, blocks=True).X
    assert isinstance(found, RowBlocks)
    assert found.sparse == ("csr" in request.param)
    return RowBlocks(found.source, block_bytes=7 * M * 8)


def test_blocks_cover_all_rows_in_order(rows):
    parts = list(rows.blocks())
    assert len(parts) > 3
    assert [i for part, _ in parts for i in range(N)[part]] == list(range(N))
    for part, block in parts:
        np.testing.assert_array_equal(dense(block), X[part])
        assert block.dtype == rows.dtype == np.float64
        assert sparse.issparse(block) == rows.sparse


@pytest.mark.parametrize("part", [slice(0, 4), slice(4, 11), slice(3, 4)])
def test_consecutive_columns_and_rows_in_memory(rows, part):
    columns, few = rows.column_block(part), rows.row_block(part)
    np.testing.assert_array_equal(dense(columns), X[:, part])
    np.testing.assert_array_equal(dense(few), X[part])
    assert not sparse.issparse(columns) or columns.format == "csc"
    assert columns.dtype == few.dtype == np.float64


def test_products_and_squares(rows):
    np.testing.assert_allclose(rows.times_factor(H), X @ H.T)
    np.testing.assert_allclose(rows.times_codes(W), X.T @ W)
    np.testing.assert_allclose(rows.row_squares(), (X**2).sum(axis=1))
    assert rows.square() == pytest.approx((X**2).sum())
    np.testing.assert_array_equal(dense(rows.load()), X)


@pytest.mark.parametrize("index", [[], [3], [50, 2, 2, 41, 0], list(range(10, 40)), list(range(0, N, 2))], ids=len)
def test_chosen_rows(rows, index):
    index = np.array(index, dtype=int)
    np.testing.assert_array_equal(dense(rows.rows(index)), X[index])
    np.testing.assert_allclose(rows.take(index).times_codes(W[index]), X[index].T @ W[index])


def test_row_groups_are_blocks(tmp_path, monkeypatch):
    """Whole groups, as many as fit: each is decoded once a round."""
    monkeypatch.setattr("cofactor.data.formats.parquet.BLOCK_BYTES", 25 * M * 8)
    frame().assign(a=[None, *X[1:, 0]], name=[f"row {i}" for i in range(N)]).to_parquet(
        tmp_path / "x.parquet", row_group_size=10, index=False
    )
    with pytest.warns(UserWarning, match="'name'"):
        table = load.read(tmp_path / "x.parquet", blocks=True)
    assert [part.stop for part in table.X.slices()] == [20, 40, 53]
    assert np.isnan(table.X.row_block(slice(0, 1))[0, 0])
    assert table.feature_names == list("abcdefghijk")
    np.testing.assert_array_equal(table.X.load()[1:], X[1:])


def test_rows_far_apart(tmp_path):
    big = np.arange(4000.0).reshape(1000, 4)
    np.save(tmp_path / "x.npy", big)
    rows, index = load.read(tmp_path / "x.npy", blocks=True).X, np.array([999, 0, 500, 501, 300, 330])
    np.testing.assert_array_equal(rows.rows(index), big[index])


def test_chosen_columns_and_masks(rows):
    columns, mask = np.array([9, 0, 4]), np.arange(N) % 3 == 1
    both = rows.columns(columns).take(mask)
    assert both.shape == (mask.sum(), 3)
    np.testing.assert_array_equal(dense(both.load()), X[mask][:, columns])


def test_row_blocks_pickle(rows):
    again = pickle.loads(pickle.dumps(rows))
    np.testing.assert_allclose(again.times_factor(H), X @ H.T)


def test_row_blocks_do_not_become_arrays_by_accident(rows):
    with pytest.raises(TypeError, match="found row blocks"):
        np.asarray(rows)
    with pytest.raises(TypeError):
        H @ rows


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int16, np.int32, np.float16, np.float32, ">f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_types_are_those_of_check(tmp_path, dtype, order):
    stored = np.asarray(X.round(), dtype=dtype, order=order)
    np.save(tmp_path / "x.npy", stored)
    rows, expected = load.read(tmp_path / "x.npy", blocks=True).X, arrays.check(stored)
    assert rows.dtype == rows.load().dtype == expected.dtype
    np.testing.assert_array_equal(rows.load(), expected)


@pytest.mark.parametrize("value", [np.nan, -1.0, np.inf])
@pytest.mark.parametrize("kind", ["npy", "h5ad"])
def test_check_names_the_cell(tmp_path, value, kind):
    bad, path = X.copy(), tmp_path / f"x.{kind}"
    bad[40, 6] = value
    np.save(path, bad) if kind == "npy" else anndata.AnnData(sparse.csr_matrix(bad)).write_h5ad(path)
    rows = RowBlocks(load.read(path, blocks=True).X.source, block_bytes=600)
    with pytest.raises(DataError, match=rf"client 2: expected finite values >= 0, found {value} at row 40, column 6"):
        rows.check(client=2)


def test_check_of_values_of_any_sign_names_the_one_that_is_not_finite(tmp_path):
    X = np.full((50, 7), -1.0)
    X[40, 6] = np.inf
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(DataError, match=r"expected finite values, found inf at row 40, column 6; drop or impute such"):
        load.read(tmp_path / "x.npy", blocks=True).X.check(client=2, signed=True)


def test_check_passes_good_data(rows):
    assert rows.check() is rows


def test_file_that_shrinks_while_it_is_read(tmp_path):
    np.save(tmp_path / "x.npy", X)
    rows = load.read(tmp_path / "x.npy", blocks=True).X
    np.save(tmp_path / "x.npy", X[:10])
    with pytest.raises(DataError, match="expected 583 values"):
        rows.load()


PROGRAM = """
import re, sys
from pathlib import Path
import numpy as np
from cofactor.data import load

def peak():  # of this program alone: getrusage counts its parent's memory too
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024

warm = np.ones((500, 500), np.float32) @ np.ones((500, 10), np.float32)
before = peak()
rows = load.read(sys.argv[1], blocks=True).X.check()
H = np.ones((10, rows.shape[1]), np.float32)
codes = rows.times_factor(H)
rows.times_codes(codes)
rows.take(np.arange(0, rows.shape[0], 4)).square()
print(peak() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_is_bounded(tmp_path):
    block = np.random.default_rng(0).random((10_000, 750), dtype=np.float32)  # 30 MB
    path = tmp_path / "x.npy"
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (100_000, 750)})
        for _ in range(10):
            block.tofile(file)
    found = subprocess.run([sys.executable, "-c", PROGRAM, path], check=True, capture_output=True, text=True)
    path.unlink()
    assert float(found.stdout) < 250


@pytest.mark.parametrize(
    ("parts", "refused"), [([1.7e308, 1.7e308], "found inf"), ([3.0, -1.0], ""), ([1.0, -3.0], "found -2")]
)
def test_cells_that_are_stored_in_parts_are_checked_as_their_sum(tmp_path, parts, refused):
    """On disk as in memory: a sum that is infinite was found in the first round, after a private run was charged."""
    stored = {
        "data": np.array(parts),
        "indices": np.array([1, 1]),
        "indptr": np.array([0, 2]),
        "shape": np.array([1, 3]),
    }
    np.savez(tmp_path / "x.npz", format=b"csr", **stored)
    held = load.read(tmp_path / "x.npz", blocks=True).X
    assert held.sparse
    if refused:
        with pytest.raises(DataError, match=refused):
            held.check()
    else:
        assert held.check() is held


@pytest.mark.parametrize("stored", [">f4", "<f8", "uint8", "bool"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_of_any_numbers_in_any_order(tmp_path, stored, order):
    values = np.array(X, stored, order=order)
    np.save(tmp_path / "x.npy", values)
    found = load.read(tmp_path / "x.npy", blocks=True).X
    np.testing.assert_array_equal(found.load(), values)
    np.testing.assert_array_equal(found.row_block(slice(7, 12)), values[7:12])


@pytest.mark.parametrize("name", [name for name in WRITERS if not name.endswith("zarr")])
def test_a_file_that_is_written_anew_is_not_read_on(tmp_path, name):
    """Rounds before and after were of different data, and what came out of neither; zarr folders show nothing."""
    path = tmp_path / name
    WRITERS[name](path)
    found = load.read(path, blocks=True).X
    some, copy = found.take(np.arange(0, N, 2)), pickle.loads(pickle.dumps(found))
    found.load()
    path.write_bytes(path.read_bytes())
    for rows in (found, some, copy):
        with pytest.raises(DataError, match=f"{name}: expected the file as it was opened, found that it has changed"):
            rows.load()
    with pytest.raises(DataError, match="has changed"):
        found.column_block(slice(0, 2))
    np.testing.assert_array_equal(
        dense(pickle.loads(pickle.dumps(found)).load()), X
    )  # on another machine: its own copy


def test_npy_that_became_shorter_says_how_much_is_left(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, X)
    found = load.read(path, blocks=True).X
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 2 * X.itemsize - 3)
    with pytest.raises(DataError, match=f"expected {X.size} values from value 0 on, found {X.size - 3}"):
        found.load()


@pytest.mark.parametrize("unit", [1e-30, 1e30])
def test_single_precision_whose_squares_leave_it_is_read_as_double(tmp_path, rng, unit):
    """As in memory: squares in single precision were 0, or infinite, and a fit far off without a word."""
    X = ((rng.random((90, 3)) @ rng.random((3, 12))) * unit).astype(np.float32)
    np.save(tmp_path / "x.npy", X)
    blocks = load.read(tmp_path / "x.npy", blocks=True).X
    assert blocks.check().dtype == blocks.check().take(np.arange(5)).load().dtype == np.float64
    assert FederatedNMF(3, random_state=0).fit(blocks).reconstruction_err_ < 1e-3
