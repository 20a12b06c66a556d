"""Sparse and dense inputs give the same zeros and ones."""

import numpy as np
import pytest
from scipy import sparse

from cofactor.data import binarize
from cofactor.types import CofactorError, DataError

KINDS = [sparse.csr_matrix, sparse.csc_matrix, sparse.coo_array]


@pytest.fixture
def X():
    rng = np.random.default_rng(0)
    return np.where(rng.random((40, 7)) < 0.3, rng.integers(1, 11, (40, 7)) / 2, 0.0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("value", "strict"), [(3.5, False), (3.5, True), (0.0, True), (0.0, False), (-1.0, True)])
def test_threshold_agrees_on_sparse_and_dense(X, kind, value, strict):
    dense, out = (binarize.threshold(data, value, strict=strict) for data in (X, kind(X)))
    np.testing.assert_array_equal(dense, (np.greater if strict else np.greater_equal)(X, value))
    assert sparse.issparse(out) == (value > 0 or (value == 0 and strict))
    np.testing.assert_array_equal(out.toarray() if sparse.issparse(out) else out, dense)
    assert out.dtype == dense.dtype == np.uint8


def test_threshold_stores_no_zeros_and_leaves_its_input_alone(X):
    data = sparse.csr_matrix(X)
    out = binarize.threshold(data, 3.5)
    assert out.nnz == (X >= 3.5).sum()
    assert not np.shares_memory(out.indices, data.indices)
    np.testing.assert_array_equal(data.toarray(), X)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("q", [0.0, 0.5, 0.8, 1.0])
def test_quantile_agrees_on_sparse_and_dense(X, kind, q):
    dense, out = binarize.quantile(X, q), binarize.quantile(kind(X), q)
    assert sparse.issparse(out)
    np.testing.assert_array_equal(out.toarray(), dense)


def test_quantile_of_negative_sparse_columns_is_dense(X):
    np.testing.assert_array_equal(binarize.quantile(sparse.csr_matrix(-X), 0.1), binarize.quantile(-X, 0.1))


def test_quantile_keeps_the_top_share_of_each_column():
    X = np.random.default_rng(1).random((100, 3)) * [1, 10, 100]
    assert binarize.quantile(X, 0.8).sum(axis=0).tolist() == [20, 20, 20]


def test_quantile_of_many_columns_is_done_in_slabs():
    X = sparse.random(20, 600, density=0.4, random_state=np.random.default_rng(2), format="csr")
    np.testing.assert_array_equal(binarize.quantile(X, 0.7).toarray(), binarize.quantile(X.toarray(), 0.7))


def test_one_hot_has_one_one_per_column():
    columns = [["red", "blue", "red"], [3, 1, 2], np.array(["x", None, 1], dtype=object), [18.0, 17.9, 99]]
    X, features = binarize.one_hot(columns, ["colour", "size", "odd", "age"], bins={"age": [18, 40]})
    assert sparse.issparse(X)
    assert X.format == "csr"
    assert X.dtype == np.uint8
    assert X.sum(axis=1).ravel().tolist() == [[4, 4, 4]]
    assert features[:5].tolist() == ["colour=blue", "colour=red", "size=1", "size=2", "size=3"]
    assert features[5:].tolist() == ["odd=1", "odd=None", "odd=x", "age<18", "18<=age<40", "40<=age"]
    assert features[X.toarray()[0] == 1].tolist() == ["colour=red", "size=3", "odd=x", "18<=age<40"]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: binarize.quantile(np.ones((2, 2)), 90), CofactorError, r"q must be in \[0, 1\]. Found 90"),
        (lambda: binarize.one_hot([[1], [2]], ["a"]), DataError, "Found 2 columns .* and 1 names"),
        (lambda: binarize.one_hot([[1], [2, 3]], ["a", "b"]), DataError, "equally long"),
        (lambda: binarize.one_hot([], []), DataError, "Found 0 columns"),
        (lambda: binarize.one_hot([[1.0, np.nan]], ["a"], bins={"a": [0]}), DataError, "'a' .* Found 1 NaN"),
        (lambda: binarize.one_hot([[1]], ["a"], bins={"a": [2, 1]}), CofactorError, "rising edges. Found"),
        (lambda: binarize.one_hot([[1]], ["a"], bins={"b": [1]}), CofactorError, r"Found \['b'\]"),
    ],
)
def test_errors_say_what_was_expected_and_found(call, error, text):
    with pytest.raises(error, match=text):
        call()
