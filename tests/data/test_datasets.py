"""Datasets load from small stand-in files of the documented formats; the real ones are not needed."""

import dataclasses

import numpy as np
import pytest
from scipy import sparse

from cofactor.data import datasets
from cofactor.types import CofactorError, DataError


def write_sparse(path, X, **extra):
    X = sparse.csr_matrix(X)
    np.savez(path, format="csr", shape=X.shape, indptr=X.indptr, indices=X.indices, data=X.data, **extra)


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    y = np.array([0, 1, 1], dtype=np.uint8)
    pixels = rng.integers(0, 256, (3, 784), dtype=np.uint8)
    pixels[0, 0] = 255
    np.savez(tmp_path / "mnist.npz", X=pixels, y=y)
    faces = np.arange(2 * 361).reshape(2, 361) % 256
    np.savez(tmp_path / "cbcl_faces.npz", X=(256 - faces).astype(np.float32) / 256, pixels=faces.astype(np.uint8))
    counts = np.array([[0, 300, 1], [2, 0, 0], [0, 0, 40000]], dtype=np.uint16)
    write_sparse(tmp_path / "bbc_news.npz", counts, terms=["a", "b", "c"], y=y, class_names=["sport", "tech"])
    write_sparse(tmp_path / "adult_onehot.npz", np.eye(3, dtype=np.uint8), feature_names=["a=1", "a=2", "b=1"])
    write_sparse(tmp_path / "movielens_latest_small.npz", np.eye(2, dtype=np.float32) * 3.5, movie_id=[7, 9])
    np.savez(tmp_path / "bmf_benchmarks.npz", dna=np.eye(4, dtype=np.uint8), apj=np.ones((2, 5), np.uint8))
    expression = np.arange(10, dtype=np.float32).reshape(5, 2)
    np.savez(tmp_path / "gene_all_aml.npz", X=expression, samples=["ALL_1", "AML_1"], genes=list("abcde"))
    return tmp_path


def test_pixels_become_floats_in_0_1(folder):
    data = datasets.load("mnist", folder)
    assert data.X.dtype == np.float32
    assert data.X.max() == pytest.approx(1.0)
    assert data.labels.tolist() == [0, 1, 1]
    assert data.feature_names is None
    assert data.pictures(data.X).shape == (3, 28, 28)


def test_column_major_faces_are_turned_upright(folder):
    data = datasets.load("cbcl_faces", folder)
    assert (data.image_shape, data.order) == ((19, 19), "F")
    np.testing.assert_array_equal(data.pictures(data.X)[1], data.X[1].reshape(19, 19, order="F"))
    negative = datasets.load("cbcl_faces_negative", folder)
    np.testing.assert_allclose(255 * data.X + 256 * negative.X, 256, rtol=1e-5)


def test_counts_stay_sparse_and_do_not_overflow(folder):
    data = datasets.load("bbc_news", folder)
    assert sparse.issparse(data.X)
    assert (data.X.format, data.X.dtype) == ("csr", np.float32)
    assert (data.X @ data.X.T).max() == pytest.approx(40000.0**2)
    assert data.feature_names.tolist() == ["a", "b", "c"]
    assert data.labels.tolist() == ["sport", "tech", "tech"]


def test_zeros_and_ones_stay_bytes(folder):
    assert datasets.load("adult_onehot", folder).X.dtype == np.uint8
    assert datasets.load("dna", folder).X.shape == (4, 4)
    assert datasets.load("apj", folder).X.dtype == np.uint8


def test_feature_names_are_text(folder):
    assert datasets.load("movielens_latest_small", folder).feature_names.tolist() == ["7", "9"]


def test_genes_are_features(folder):
    data = datasets.load("gene_all_aml", folder)
    assert data.X.shape == (2, 5)
    assert data.X[0].tolist() == [0, 2, 4, 6, 8]
    assert data.labels.tolist() == ["ALL_1", "AML_1"]


def test_the_variable_names_the_folder(folder, monkeypatch):
    monkeypatch.setenv("COFACTOR_DATA", str(folder))
    assert datasets.load("mnist").name == "mnist"


@pytest.mark.parametrize("name", ["digits", "breast_cancer", "wine", "iris"])
def test_bundled_datasets_need_no_folder(name, monkeypatch):
    monkeypatch.delenv("COFACTOR_DATA", raising=False)
    data = datasets.load(name)
    assert data.name == name
    assert data.X.dtype == np.float32
    assert data.X.shape == (len(data.labels), len(data.feature_names))
    assert data.X.min() >= 0


def test_digits_are_pictures_in_0_1():
    data = datasets.digits()
    assert data.X.max() == 1.0
    assert data.pictures(data.X[:5]).shape == (5, 8, 8)


def test_names_are_unique_and_start_with_the_bundled_ones():
    names = datasets.names()
    assert names[:4] == ["digits", "breast_cancer", "wine", "iris"]
    assert len(names) == len(set(names))


def test_a_dataset_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        datasets.load("iris").name = "other"


def test_no_folder_names_the_variable(monkeypatch):
    monkeypatch.delenv("COFACTOR_DATA", raising=False)
    with pytest.raises(DataError, match=r"COFACTOR_DATA\. Found neither\. Set COFACTOR_DATA .*mnist\.npz"):
        datasets.load("mnist")


def test_a_missing_file_is_named_with_what_is_there(folder):
    with pytest.raises(DataError, match=r"yaleb_32x32\.npz\. Found adult_onehot\.npz, .*mnist\.npz, .* there\. Put it"):
        datasets.load("yaleb_32x32", folder)


def test_a_foreign_file_is_refused(tmp_path):
    np.savez(tmp_path / "mushroom.npz", other=np.ones(3))
    with pytest.raises(DataError, match=r"Expected an array 'X' in .*mushroom\.npz\. Found \['other'\]"):
        datasets.load("mushroom", tmp_path)


def test_unknown_names_get_near_misses():
    with pytest.raises(CofactorError, match=r"Found 'minst'\. Did you mean 'mnist'"):
        datasets.load("minst")
    with pytest.raises(CofactorError, match="Known names: digits, "):
        datasets.load("zzzzzzzz")


def test_pictures_of_a_table_are_refused():
    data = datasets.load("iris")
    with pytest.raises(DataError, match="Found 'iris', which has no image_shape"):
        data.pictures(data.X)
