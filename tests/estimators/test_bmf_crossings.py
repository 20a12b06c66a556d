"""Boolean fits of odd clients: one row, no ones, a feature of all, more components than the data carry, rows twice."""

import warnings

import numpy as np
import pytest
from scipy import sparse

from cofactor import FederatedBMF, boolean
from cofactor.data import synthetic

METHODS = pytest.mark.parametrize("method", ["boolean-oneshot", "boolean-exact", "felb", "asso"])
PLANTED = synthetic.tiles(48, 20, 3, density=1.0, noise=0.0, width=(0.2, 0.4), seed=1).X.astype(np.float32)


def fitted(method, Xs, k=3, **how):
    return FederatedBMF(k, method=method, random_state=0, **how).fit(Xs)


@pytest.mark.parametrize("share", [1.0, 0.25])
def test_clients_of_one_row_are_factorized_from_sums(share):
    model = fitted("boolean-exact", list(PLANTED[:, None]), participation=share)
    assert model.reconstruction_err_ == 0
    assert [W.shape for W in model.codes_] == [(1, 3)] * 48


@METHODS
def test_a_client_of_one_row_or_without_ones_has_codes_and_does_no_harm(method):
    empty = np.zeros((10, 20), np.float32)
    model = fitted(method, [PLANTED[:1], PLANTED[1:24], empty, PLANTED[24:]])
    assert model.reconstruction_err_ == 0
    assert not model.codes_[2].any()


@METHODS
def test_data_without_ones_have_no_codes_and_no_error(method):
    model = fitted(method, [np.zeros((5, 20), np.float32)] * 3)
    assert model.reconstruction_err_ == 0
    assert not np.vstack(model.codes_).any()


@METHODS
def test_a_feature_that_all_rows_have_is_covered_in_all(method):
    X = PLANTED.copy()
    X[:, 4] = 1
    model = fitted(method, np.array_split(X, 3), k=4)
    assert model.reconstruction_err_ == 0
    assert model.inverse_transform(np.vstack(model.codes_))[:, 4].all()


@METHODS
def test_components_beyond_what_the_data_carry_are_named(method):
    X = np.kron(np.eye(2), np.ones((9, 4))).astype(np.float32)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = fitted(method, np.array_split(X, 3), k=5)
    assert model.reconstruction_err_ == 0
    used = np.vstack(model.codes_).any(axis=0) & model.components_.any(axis=1)
    names = ", ".join(str(i) for i in np.flatnonzero(~used))
    assert any(f"nothing is made of components {names}" in str(w.message) for w in caught)


def test_rows_twice_give_the_same_sweeps():
    """Counts double, so that no flip is decided otherwise."""
    X = PLANTED.copy()
    X[np.random.default_rng(0).random(X.shape) < 0.1] = 1
    start = (np.random.default_rng(1).random((3, 20)) < 0.3).astype(np.uint8)
    (W, H), (twice, same) = (boolean.polish(rows, start) for rows in (X, np.repeat(X, 2, axis=0)))
    np.testing.assert_array_equal(H, same)
    np.testing.assert_array_equal(np.repeat(W, 2, axis=0), twice)


@pytest.mark.parametrize("share", [1.0, 0.5])
@pytest.mark.parametrize("method", ["boolean-oneshot", "asso"])
def test_sparse_flags_and_numbers_are_the_same_bits(method, share):
    Xs = np.array_split(PLANTED, 4)
    forms = [Xs, [X.astype(bool) for X in Xs], [X.astype(int) for X in Xs], [sparse.csr_array(X) for X in Xs]]
    first, *others = (fitted(method, form, participation=share).components_ for form in forms)
    for H in others:
        np.testing.assert_array_equal(H, first)
