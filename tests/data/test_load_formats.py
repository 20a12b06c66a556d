"""What is written in a format is read back from it: values, feature names, row names, obs."""

import gzip
import shutil

import anndata
import numpy as np
import pandas as pd
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import io, sparse

from cofactor.data import load
from cofactor.types import DataError

pytestmark = pytest.mark.filterwarnings("ignore:Writing zarr v2")

N, M = 7, 4
FEATURES, ROWS = ["TP53", "EGFR", "a b", "ü"], [f"cell{i}" for i in range(N)]
SITE = np.array(["x", "y", "x", "z", "y", "x", "x"])
KIND = {"dense": np.asarray, "csr": sparse.csr_matrix, "csc": sparse.csc_matrix}


def values(seed=0, *, n=N, m=M, dtype=np.float64):
    rng = np.random.default_rng(seed)
    return (rng.random((n, m)) * 10 * (rng.random((n, m)) < 0.6)).astype(dtype)


def dense(X):
    X = X.load() if isinstance(X, load.RowBlocks) else X
    return X.toarray() if sparse.issparse(X) else np.asarray(X)


def annotated(X, layers=None):
    obs = pd.DataFrame({"site": pd.Categorical(SITE), "age": np.arange(N), "note": list(SITE)}, index=ROWS)
    return anndata.AnnData(X, obs=obs, var=pd.DataFrame(index=FEATURES), layers=layers)


def frame(X):
    return pd.DataFrame(X, columns=FEATURES, index=ROWS).assign(site=SITE)


def write_10x(folder, X, *, zipped=True, genes="features.tsv", prefix=""):
    folder.mkdir(exist_ok=True)
    io.mmwrite(folder / f"{prefix}matrix.mtx", sparse.coo_matrix(X.T))
    (folder / f"{prefix}{genes}").write_text("".join(f"ID{i}\t{name}\tGene\n" for i, name in enumerate(FEATURES)))
    (folder / f"{prefix}barcodes.tsv").write_text("".join(f"{row}\n" for row in ROWS))
    for path in list(folder.iterdir()) if zipped else []:
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    return folder


WRITERS = {
    "dense.npy": np.save,
    "fortran.npy": lambda path, X: np.save(path, np.asfortranarray(X)),
    "dense.npz": lambda path, X: np.savez(path, X=X, feature_names=FEATURES, row_names=ROWS, site=SITE, other=X[:2]),
    "only.npz": lambda path, X: np.savez_compressed(path, counts=X, genes=FEATURES),
    "sparse.npz": lambda path, X: sparse.save_npz(path, sparse.csr_matrix(X)),
    "array.npz": lambda path, X: sparse.save_npz(path, sparse.csc_array(X)),
    "sparse.mtx": lambda path, X: io.mmwrite(path, sparse.coo_matrix(X, dtype=float), precision=17),
    "dense.mtx": lambda path, X: io.mmwrite(path, X.astype(float), precision=17),
    "rows.csv": lambda path, X: frame(X).to_csv(path),
    "rows.csv.gz": lambda path, X: frame(X).to_csv(path),
    "rows.tsv": lambda path, X: frame(X).to_csv(path, sep="\t", index_label="cell"),
    "rows.parquet": lambda path, X: frame(X).to_parquet(path),
    "dense.h5ad": lambda path, X: annotated(X).write_h5ad(path),
    "csr.h5ad": lambda path, X: annotated(sparse.csr_matrix(X)).write_h5ad(path),
    "csc.h5ad": lambda path, X: annotated(sparse.csc_matrix(X)).write_h5ad(path),
    "dense.zarr": lambda path, X: annotated(X).write_zarr(path),
    "csr.zarr": lambda path, X: annotated(sparse.csr_matrix(X)).write_zarr(path),
    "plain.zarr": lambda path, X: zarr.save_array(str(path), X),
    "group.zarr": lambda path, X: zarr.save_group(str(path), counts=X, one=X[0]),
}
NAMED = [name for name in WRITERS if name.startswith("rows") or name.endswith(("h5ad", "dense.npz", "dense.zarr"))]


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_round_trip_of_values(tmp_path, name, dtype):
    X = values(dtype=dtype)
    WRITERS[name](tmp_path / name, X)
    table = load.read(tmp_path / name)
    np.testing.assert_array_equal(dense(table.X).astype(dtype), X)
    assert table.shape == (N, M)
    assert table.source == str(tmp_path / name)


@pytest.mark.parametrize("name", NAMED)
def test_round_trip_of_names_and_obs(tmp_path, name):
    WRITERS[name](tmp_path / name, values())
    table = load.read(tmp_path / name)
    assert table.feature_names == FEATURES
    assert table.row_names == ROWS
    np.testing.assert_array_equal(table.column("site"), SITE)


@pytest.mark.parametrize("suffix", ["npy", "npz", "mtx", "csv", "tsv.gz", "parquet"])
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 99), n=st.integers(1, 9), m=st.integers(3, 6))
def test_round_trip_of_any_shape(tmp_path, suffix, seed, n, m):
    X, path = values(seed, n=n, m=m), tmp_path / f"x.{suffix}"
    table = pd.DataFrame(X, columns=[f"f{i}" for i in range(m)])
    {
        "npy": lambda: np.save(path, X),
        "npz": lambda: np.savez(path, X),
        "mtx": lambda: io.mmwrite(path, sparse.coo_matrix(X), precision=17),
        "csv": lambda: np.savetxt(path, X, delimiter=",", fmt="%.17g"),
        "tsv.gz": lambda: table.to_csv(path, sep="\t", index=seed % 2 == 0),
        "parquet": lambda: table.to_parquet(path),
    }[suffix]()
    np.testing.assert_array_equal(dense(load.read(path).X), X)


@pytest.mark.parametrize("name", ["sparse.npz", "array.npz", "sparse.mtx", "csr.h5ad", "csc.h5ad", "csr.zarr"])
def test_sparse_stays_csr(tmp_path, name):
    WRITERS[name](tmp_path / name, values())
    assert load.read(tmp_path / name).X.format == "csr"


def test_npy_is_mapped(tmp_path):
    np.save(tmp_path / "x.npy", values())
    assert isinstance(load.read(tmp_path / "x.npy").X, np.memmap)


def test_large_files_become_row_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("cofactor.data.formats.table.LAZY_BYTES", 10)
    for name in ("dense.npy", "dense.h5ad", "csr.h5ad", "plain.zarr", "rows.parquet"):
        WRITERS[name](tmp_path / name, values())
        assert isinstance(load.read(tmp_path / name).X, load.RowBlocks)
        assert not isinstance(load.read(tmp_path / name, blocks=False).X, load.RowBlocks)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("genes", ["features.tsv", "genes.tsv"])
def test_10x_folder_is_transposed(tmp_path, zipped, genes):
    X = values().round()
    folder = write_10x(tmp_path / "sample", X, zipped=zipped, genes=genes)
    matrix = folder / ("matrix.mtx.gz" if zipped else "matrix.mtx")
    for path in (folder, matrix):
        table = load.read(path)
        np.testing.assert_array_equal(table.X.toarray(), X)
        assert (table.feature_names, table.row_names) == (FEATURES, ROWS)


def test_10x_files_with_a_prefix(tmp_path):
    write_10x(tmp_path, values(), prefix="GSM1_")
    assert load.read(tmp_path / "GSM1_matrix.mtx.gz").feature_names == FEATURES


def test_10x_symbols_that_several_genes_share_get_their_identifier(tmp_path):
    folder = write_10x(tmp_path / "sample", values(), zipped=False)
    (folder / "features.tsv").write_text("E1\tA\tGene\nE2\tB\tGene\nE3\tA\tGene\nE4\tC\tGene\n")
    assert load.read(folder).feature_names == ["A_E1", "B", "A_E3", "C"]


def test_10x_folder_with_a_file_missing_or_short(tmp_path):
    folder = write_10x(tmp_path / "sample", values(), zipped=False)
    (folder / "barcodes.tsv").write_text("one\n")
    with pytest.raises(DataError, match=r"barcodes.tsv: expected 7 lines, one per cell of matrix.mtx, found 1"):
        load.read(folder)
    (folder / "features.tsv").unlink()
    with pytest.raises(DataError, match=r"expected features.tsv"):
        load.read(folder)
    shutil.rmtree(folder)
    folder.mkdir()
    with pytest.raises(DataError, match="expected a 10x folder"):
        load.read(folder)


@pytest.mark.parametrize("suffix", ["h5ad", "zarr"])
@pytest.mark.parametrize("kind", KIND)
def test_layers(tmp_path, suffix, kind):
    X, path = values(), tmp_path / f"x.{suffix}"
    data = annotated(-X, layers={"counts": KIND[kind](X)})
    (data.write_h5ad if suffix == "h5ad" else data.write_zarr)(path)
    np.testing.assert_array_equal(dense(load.read(path, layer="counts").X), X)
    with pytest.raises(DataError, match=r"expected a layer 'count', found \['counts'\]; did you mean 'counts'"):
        load.read(path, layer="count")


def test_raw_has_its_own_features(tmp_path):
    data = annotated(values())
    data.raw = data.copy()
    data[:, :2].copy().write_h5ad(tmp_path / "x.h5ad")
    assert load.read(tmp_path / "x.h5ad").shape == (N, 2)
    raw = load.read(tmp_path / "x.h5ad", layer="raw")
    assert raw.feature_names == FEATURES
    np.testing.assert_array_equal(dense(raw.X), values())


def test_h5ad_without_x(tmp_path):
    annotated(None, layers={"counts": values()}).write_h5ad(tmp_path / "x.h5ad")
    with pytest.raises(DataError, match=r"found none; choose one of the layers \['counts'\]"):
        load.read(tmp_path / "x.h5ad")


def test_npz_key_and_labels(tmp_path):
    path, X = tmp_path / "x.npz", values()
    np.savez(path, a=X, b=2 * X, terms=FEATURES, y=np.arange(N))
    with pytest.raises(DataError, match=r"expected a 2-D array 'X' or exactly one 2-D array, found 'a' \(7, 4\)"):
        load.read(path)
    table = load.read(path, key="b")
    np.testing.assert_array_equal(table.X, 2 * X)
    assert table.feature_names == FEATURES
    assert table.column("y").tolist() == list(range(N))
    with pytest.raises(DataError, match="expected a column 'z' to group by, found 'y'"):
        table.column("z")


def test_npz_with_python_objects(tmp_path):
    np.savez(tmp_path / "x.npz", X=values(), feature_names=np.array(FEATURES, dtype=object))
    with pytest.raises(DataError, match=r"expected text in 'feature_names', found Python objects; .*astype\(str\)"):
        load.read(tmp_path / "x.npz")


def test_parquet_types(tmp_path):
    data = pd.DataFrame({"id": ["p", "q"], "a": [1, 2], "b": [0.5, None], "c": [True, False], "site": [3, 4]})
    data["kind"] = pd.Categorical(["u", "v"])
    data.to_parquet(tmp_path / "x.parquet", index=False)
    table = load.read(tmp_path / "x.parquet", obs=["site"])
    np.testing.assert_array_equal(table.X, [[1, 0.5, 1], [2, np.nan, 0]])
    assert (table.feature_names, table.row_names) == (["a", "b", "c"], ["p", "q"])
    assert {name: column.tolist() for name, column in table.obs.items()} == {
        "id": ["p", "q"],
        "site": [3, 4],
        "kind": ["u", "v"],
    }
    with pytest.raises(DataError, match="expected a column 'sites', found 6 others; did you mean 'site'"):
        load.read(tmp_path / "x.parquet", obs=["sites"])


def test_a_folder_of_files_says_to_give_the_files(tmp_path):
    with pytest.raises(DataError, match=r"found neither: it holds no file\."):
        load.read(tmp_path)
    for name in ("a.csv", "b.csv", ".hidden"):
        (tmp_path / name).write_text("x,y\n1,2\n")
    with pytest.raises(DataError, match=r"but a.csv and others; give the files, each a client: .*/\*\.csv"):
        load.read(tmp_path)
