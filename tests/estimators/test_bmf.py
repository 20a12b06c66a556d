"""FederatedBMF: bits in, bits out, clear errors."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from cofactor import FederatedBMF, FederatedNMF, boolean
from cofactor.data import synthetic
from cofactor.kinds.kind import Score
from cofactor.methods import catalog
from cofactor.privacy import Privacy
from cofactor.types import CofactorError, DataError


@pytest.fixture(scope="module")
def data():
    return synthetic.tiles(240, 50, 4, noise=0.02, seed=3)


@pytest.fixture(scope="module")
def clients(data):
    return np.array_split(data.X, 3)


@pytest.mark.parametrize("method", catalog.names("boolean"))
def test_every_method_gives_bits(method, clients):
    model = FederatedBMF(4, method=method, random_state=0).fit(clients)
    assert model.components_.shape == (4, 50)
    assert model.components_.dtype == np.uint8
    assert set(np.unique(model.components_)) <= {0, 1}
    assert [W.shape for W in model.codes_] == [(80, 4)] * 3
    assert all(W.dtype == np.uint8 and W.max(initial=0) <= 1 for W in model.codes_)
    assert model.n_rounds_ == len(model.history_)
    assert model.score(clients) == pytest.approx(1 - model.reconstruction_err_)


def test_default_finds_the_planted_tiles(data, clients):
    model = FederatedBMF(4, random_state=0).fit(clients)
    planted = boolean.loss(data.X, boolean.greedy_refit(data.X, data.factor), data.factor)
    assert model.reconstruction_err_ <= planted + 0.005
    assert model.n_rounds_ == 5  # one upload, one choice, three sweeps


def test_transform_and_inverse_are_the_codes_and_the_product(data, clients):
    model = FederatedBMF(4, random_state=0).fit(clients)
    W = model.transform(data.X)
    np.testing.assert_array_equal(W, np.vstack(model.codes_))
    np.testing.assert_array_equal(model.inverse_transform(W), W.astype(int) @ model.components_ > 0)
    assert model.score(data.X) == pytest.approx(1 - np.sum(model.inverse_transform(W) != data.X) / data.X.sum())
    assert [len(V) for V in model.transform(clients)] == [80, 80, 80]


@pytest.mark.parametrize(
    "kind", [np.asarray, lambda X: X.astype(bool), sparse.csr_matrix, sparse.csc_array, pd.DataFrame]
)
def test_every_kind_of_matrix_gives_the_same_bits(kind, clients):
    a, b = (FederatedBMF(4, random_state=0).fit(Xs) for Xs in (clients, [kind(X) for X in clients]))
    np.testing.assert_array_equal(a.components_, b.components_)


def test_groups_equal_a_list_and_keep_the_order_of_rows(data, clients):
    site = np.repeat([2, 0, 1], 80)
    model = FederatedBMF(4, random_state=0)
    codes = model.fit_transform(data.X, groups=site)
    listed = FederatedBMF(4, random_state=0).fit([clients[1], clients[2], clients[0]])
    np.testing.assert_array_equal(model.components_, listed.components_)
    np.testing.assert_array_equal(codes[80:160], listed.codes_[0])
    assert model.clients_ == [0, 1, 2]


def test_threshold_makes_bits_of_numbers(clients):
    a = FederatedBMF(4, random_state=0).fit(clients)
    b = FederatedBMF(4, random_state=0, threshold=3.5).fit([X * 5.0 for X in clients])
    np.testing.assert_array_equal(a.components_, b.components_)


def test_options_reach_the_method(clients):
    vote = FederatedBMF(4, method="asso", aggregate="or", align=None, sweeps=0, random_state=0).fit(clients)
    assert vote.n_rounds_ == 1
    felb = FederatedBMF(4, method="felb", align="every", rounds=8, sweeps=2, options={"steps": 3}).fit(clients)
    assert felb.n_rounds_ == 8


@pytest.mark.parametrize(
    ("model", "X", "text"),
    [
        ({}, [[0, 1], [1, 0.5]], r"Found 0.5 in row 1, column 1 at client 0; make bits .*binarize=0.5 is 1 above 0.5"),
        ({}, [[[0, 1]], [[1, 3]]], r"Found 3 in row 0, column 1 at client 1; make bits .*binarize=0.5 is 1 above 0.5"),
        ({}, [[0, 1], [1, -1]], "Found -1 in row 1, column 1"),
        ({}, [[0, np.nan], [1, 0]], "client 0: .* found 1 NaN or infinity"),
        ({"threshold": 0.5}, [[0, np.nan], [1, 0]], "1 NaN or infinity"),
        ({"n_components": 3}, [[0, 1], [1, 0], [1, 1]], "whole number from 1 to 2 .*n_features=2.*found 3"),
        (
            {"method": "exact"},
            [[0, 1], [1, 0]],
            r"use FederatedNMF\(method=...\), or one of: boolean-oneshot",
        ),
        ({"align": "always", "method": "felb"}, [[0, 1], [1, 0]], "align: expected 'every', 'first' or None"),
        ({"aggregate": "mean", "method": "asso"}, [[0, 1], [1, 0]], "expected one of vote, round, or; found 'mean'"),
        ({"align": "every"}, [[0, 1], [1, 0]], "unknown option of method 'boolean-oneshot' 'align'"),
        ({"sweeps": 5, "rounds": 5, "method": "felb"}, [[0, 1], [1, 0]], "0 to 4 of the 5 rounds, found 5"),
    ],
)
def test_bad_input_is_a_clear_error(model, X, text):
    with pytest.raises(CofactorError, match=text):
        FederatedBMF(**model).fit(X)


def test_bad_codes_are_a_clear_error(clients):
    model = FederatedBMF(4, random_state=0).fit(clients)
    with pytest.raises(DataError, match="Found 2 in row 0, column 0"):
        model.inverse_transform([[2, 0, 0, 0]])
    with pytest.raises(CofactorError, match="expected 4 columns, found 2"):
        model.inverse_transform([[1, 0]])


@pytest.mark.parametrize("method", catalog.names("boolean"))
def test_an_all_zero_client_does_not_spoil_the_others(method, clients):
    model = FederatedBMF(4, method=method, random_state=0).fit([*clients, np.zeros((30, 50), int)])
    assert not model.codes_[3].any()
    assert np.isfinite(model.reconstruction_err_)


def test_an_empty_model_warns():
    X = np.random.default_rng(0).random((40, 30)) < 0.02
    with pytest.warns(UserWarning, match="model is empty.* swamps the signal"):
        FederatedBMF(3, method="asso", align=None, sweeps=0, random_state=0).fit(np.array_split(X, 8))


def test_whether_an_empty_private_model_warns_does_not_depend_on_rows():
    model = FederatedBMF(2, method="asso", privacy=Privacy(1, 1e-3, "client"))
    model.components_ = np.zeros((2, 5), np.uint8)
    for error in (0.0, 1.0):
        with pytest.warns(UserWarning, match="model is empty"):
            model._conclude(Score(error, None), None)


def test_data_without_ones_do_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = FederatedBMF(2, random_state=0).fit([np.zeros((10, 5), int)] * 2)
    assert model.reconstruction_err_ == 0


def test_tiles_have_features_support_and_precision(data, clients):
    names = [f"f{i}" for i in range(50)]
    frames = [pd.DataFrame(X, columns=names) for X in clients]
    model = FederatedBMF(4, random_state=0).fit(frames)
    W = np.vstack(model.codes_)
    for tile, h, w in zip(model.tiles(frames), model.components_, W.T, strict=True):
        assert tile.features == [names[i] for i in np.flatnonzero(h)]
        assert (tile.support, tile.rows) == (w.sum(), 240)
        assert tile.precision == pytest.approx(data.X[np.ix_(w > 0, h > 0)].mean())
    assert model.tiles(frames[0])[0].rows == 80


def test_the_public_part_of_bits_is_saved_and_transforms(clients, tmp_path):
    model = FederatedBMF(4, random_state=0).fit(clients)
    model.save(tmp_path / "bits.npz")
    again = FederatedBMF.load(tmp_path / "bits.npz")
    np.testing.assert_array_equal(again.transform(clients[1]), model.transform(clients[1]))
    with pytest.raises(CofactorError, match=r"found one of zeros and ones: use FederatedBMF\.load"):
        FederatedNMF.load(tmp_path / "bits.npz")
    FederatedNMF(2, random_state=0).fit(clients).save(tmp_path / "numbers.npz")
    with pytest.raises(CofactorError, match=r"found one of numbers: use FederatedNMF\.load"):
        FederatedBMF.load(tmp_path / "numbers.npz")
    with pytest.raises(CofactorError, match=r"expected a folder .* to write into, found none"):
        model.save(tmp_path / "no" / "bits.npz")
