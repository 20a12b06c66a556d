"""Whatever is wrong with a file, the reader says so in one line that names it."""

import gzip
import json
import os
import pickle
import sys
import zipfile

import anndata
import h5py
import numcodecs
import numpy as np
import pandas as pd
import pytest
from scipy import io, sparse

from cofactor.data import load
from cofactor.types import CofactorError, DataError

X = np.arange(3000.0).reshape(300, 10)
WRITERS = {
    "x.npy": lambda path: np.save(path, X),
    "x.npz": lambda path: np.savez_compressed(path, X=X),
    "s.npz": lambda path: sparse.save_npz(path, sparse.csr_matrix(X)),
    "x.mtx": lambda path: io.mmwrite(path, sparse.coo_matrix(X)),
    "x.csv.gz": lambda path: pd.DataFrame(X).to_csv(path),
    "x.parquet": lambda path: pd.DataFrame(X, columns=list("abcdefghij")).to_parquet(path),
    "x.h5ad": lambda path: anndata.AnnData(X).write_h5ad(path),
}


def one_line(error, path):
    text = str(error.value)
    assert "\n" not in text
    assert str(path) in text
    return text


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.95])
def test_truncated_files(tmp_path, name, share):
    path = tmp_path / name
    WRITERS[name](path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(DataError) as error:
        load.read(path)
    one_line(error, path)


@pytest.mark.parametrize("suffix", [suffix for suffix in load.SUFFIXES if suffix != ".zarr"])
def test_something_else_in_the_file(tmp_path, suffix):
    path = tmp_path / f"x{suffix}"
    path.write_bytes(bytes(range(256)) * 20)
    with pytest.raises(DataError) as error:
        load.read(path)
    one_line(error, path)


def test_broken_bytes_never_escape_as_other_errors(tmp_path):
    rng, refused = np.random.default_rng(0), 0
    for name, write in WRITERS.items():
        path = tmp_path / name
        write(path)
        content = np.frombuffer(path.read_bytes(), np.uint8)
        for _ in range(10):
            broken = content.copy()
            broken[rng.integers(0, len(content), 40)] = rng.integers(0, 256, 40)
            path.write_bytes(broken.tobytes())
            try:
                load.read(path)
            except DataError:
                refused += 1
    assert refused > 30, "bytes of numbers may change unnoticed, others not"


def test_unknown_suffix_lists_the_known_ones(tmp_path):
    path = tmp_path / "x.xlsx"
    path.write_text("x")
    with pytest.raises(DataError, match=r"expected one of the suffixes .npy, .npz, .*.zarr, found '.xlsx'"):
        load.read(path)


def test_missing_file_hints_at_the_nearest(tmp_path):
    (tmp_path / "counts.csv").write_text("1,2\n")
    with pytest.raises(DataError, match=r"expected a file, found nothing there; did you mean .*counts.csv"):
        load.read(tmp_path / "count.csv")
    with pytest.raises(DataError, match="found nothing there"):
        load.read(tmp_path / "no" / "such.csv")


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [("x.parquet", "pyarrow.parquet", "io"), ("x.h5ad", "anndata", "bio"), ("x.zarr", "zarr", "io")],
)
def test_missing_package_names_the_extra(tmp_path, monkeypatch, name, package, extra):
    path = tmp_path / name
    path.mkdir() if name == "x.zarr" else path.write_text("x")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(CofactorError, match=rf"needs the package {package.split('.')[0]}: .*'cofactor\[{extra}\]'"):
        load.read(path)


def test_option_of_another_format(tmp_path):
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(CofactorError, match=r"the option layer is for .h5ad, .zarr, not for .npy"):
        load.read(tmp_path / "x.npy", layer="counts")


@pytest.mark.parametrize(
    ("array", "found"),
    [
        (np.arange(5), r"expected a matrix \(rows x features\), found an array of shape \(5,\)"),
        (np.zeros((2, 2, 2)), r"shape \(2, 2, 2\)"),
        (np.array([["a"]]), "expected numbers in the array, found dtype <U1"),
        (np.array([[{}]], dtype=object), "expected numbers in the array, found Python objects"),
    ],
)
def test_npy_that_is_no_matrix(tmp_path, array, found):
    np.save(tmp_path / "x.npy", array, allow_pickle=True)
    with pytest.raises(DataError, match=found):
        load.read(tmp_path / "x.npy")


def test_truncated_npy_says_how_much_is_there(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, X)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(DataError, match=r"expected 24128 bytes for shape .300, 10., found 1000; the file is truncated"):
        load.read(path)


def test_npz_without_arrays(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.npz", "w"):
        pass
    with pytest.raises(DataError, match="found no array"):
        load.read(tmp_path / "x.npz")


def test_blocks_of_csc(tmp_path, monkeypatch):
    anndata.AnnData(sparse.csc_matrix(X)).write_h5ad(tmp_path / "x.h5ad")
    np.testing.assert_array_equal(load.read(tmp_path / "x.h5ad", blocks=True).X.toarray(), X)
    monkeypatch.setattr("cofactor.data.formats.table.LAZY_BYTES", 10)
    with pytest.raises(DataError, match=r"expected CSR \(rows\) to read 'X' in blocks, found CSC"):
        load.read(tmp_path / "x.h5ad", blocks=True)


MARKET = "%%MatrixMarket matrix coordinate real general\n%\n"


@pytest.mark.parametrize("end", ["", "\n", "  ", "\r\n", "\n\n"])
@pytest.mark.parametrize("suffix", ["mtx", "mtx.gz"])
def test_mtx_may_end_in_any_way(tmp_path, end, suffix):
    path, content = tmp_path / f"x.{suffix}", f"{MARKET}2 3 2\n1 1 1.5\n2 3 2e1{end}".encode()
    path.write_bytes(gzip.compress(content) if suffix.endswith("gz") else content)
    assert load.read(path).X.toarray().tolist() == [[1.5, 0, 0], [0, 0, 20]]


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("2 3 2\n1 1 1.5\n2 3 2,5\n", "line 5: expected numbers, found ','"),
        ("2 3 2\n1 1 1.5\n2 3 2\0\n", r"line 5: expected numbers, found '\\x00'"),
        ("2 3 2\n1 1 1.5\n2 3 2.5e", "could not convert string to float"),
        ("2 3 2\n1 1 1.5\n", "Expected another 1 lines"),
        ("2 3 1\n1 4 1.5\n", "Column index out of bounds"),
    ],
)
def test_broken_mtx(tmp_path, body, found):
    (tmp_path / "x.mtx").write_text(MARKET + body)
    with pytest.raises(DataError, match=found):
        load.read(tmp_path / "x.mtx")


@pytest.mark.parametrize("blocks", [True, False])
def test_sparse_index_out_of_bounds(tmp_path, blocks):
    path = tmp_path / "x.h5ad"
    anndata.AnnData(sparse.csr_matrix(X)).write_h5ad(path)
    with h5py.File(path, "r+") as file:
        file["X/indices"][5] = 1000
    with pytest.raises(DataError, match=r"x.h5ad: .*indices must be < 10"):
        load.read(path, blocks=blocks).X.row_squares()


class Planted:
    """What makes a folder when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def in_plain(folder, text):
    (folder / ".zarray").write_text(text)
    return folder


def in_obs(folder, text):
    """Hide an array among the names of rows."""
    adata = anndata.AnnData(np.ones((4, 3)))
    with anndata.settings.override(zarr_write_format=2):
        adata.write_zarr(folder)
    (folder / ".zmetadata").unlink(missing_ok=True)
    (folder / "obs" / "_index" / ".zarray").write_text(text)
    return folder / "obs" / "_index"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("where", [in_plain, in_obs])
@pytest.mark.parametrize(
    "how", [{"compressor": {"id": "pickle"}}, {"filters": [{"id": "vlen-utf8"}, {"id": "pickle"}]}]
)
def test_code_in_a_zarr_folder_is_not_run(where, how, tmp_path, monkeypatch):
    """Names of rows could be kept as pickles, which older editions of numcodecs (and newer ones where they are told to)
    unpickle."""
    monkeypatch.setattr(numcodecs.pickles, "ALLOW_UNSAFE_PICKLE_DECODE", True, raising=False)
    (tmp_path / "evil.zarr").mkdir()
    array = {"zarr_format": 2, "shape": [4], "chunks": [4], "dtype": "|O", "fill_value": "", "order": "C"}
    text = json.dumps({**array, "compressor": None, "filters": [{"id": "vlen-utf8"}], **how})
    chunks = where(tmp_path / "evil.zarr", text.replace("pickle", "p\\u0069ckle"))
    (chunks / "0").write_bytes(pickle.dumps(Planted(tmp_path / "run")))
    with pytest.raises(DataError, match="expected arrays of numbers and text, found pickles"):
        load.read(tmp_path / "evil.zarr")
    assert not (tmp_path / "run").exists()
