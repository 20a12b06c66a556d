"""Tensors of torch in, tensors out; a device; and scikit-learn's own checks of the array API, in their own process."""

import os
import subprocess
import sys

import numpy as np
import pytest

from cofactor import FederatedBMF, FederatedKMeans, FederatedNMF
from cofactor.engines.inline import Inline
from cofactor.types import CofactorError

torch = pytest.importorskip("torch")
rng = np.random.default_rng(0)
X = rng.uniform(size=(60, 4)) ** 3 @ rng.uniform(size=(4, 20)) ** 3

CHECKS = """
from sklearn.utils.estimator_checks import check_array_api_input
from cofactor import FederatedBMF, FederatedKMeans, FederatedNMF
for estimator in (FederatedNMF(random_state=0), FederatedNMF(2, method="oneshot"),
                  FederatedNMF(3, method="fnmf-lap", rounds=3)):
    for space, device, dtype in (("numpy", None, None), ("torch", "cpu", "float64"), ("torch", "cpu", "float32")):
        check_array_api_input("x", estimator, space, device, dtype, check_values=True)
        print("passed")
for estimator in (FederatedBMF(threshold=0.5, random_state=0), FederatedKMeans(3, random_state=0),
                  FederatedBMF(2, threshold=0.5, method="felb", rounds=5, sweeps=1),
                  FederatedBMF(threshold=0.5, method="boolean-exact", rounds=5, sweeps=0),
                  FederatedKMeans(3, method="simplex", random_state=0)):
    check_array_api_input("x", estimator, "numpy", expect_only_array_outputs=False)
    print("passed")
"""


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("many", [False, True])
def test_tensors_in_tensors_out(device, many):
    tensor, data = torch.from_numpy(X), X
    if many:
        tensor, data = [tensor[:20], tensor[20:]], [X[:20], X[20:]]
    here = FederatedNMF(4, random_state=0, rounds=8).fit(data)
    there = FederatedNMF(4, random_state=0, rounds=8, device=device).fit(tensor)
    assert isinstance(there.components_, torch.Tensor)
    np.testing.assert_allclose(there.components_.numpy(), here.components_, atol=1e-5)
    assert there.score(tensor) == pytest.approx(here.score(data), abs=1e-6)
    codes, wanted = there.transform(tensor), here.transform(data)
    for a, b in zip(codes, wanted, strict=True) if many else [(codes, wanted)]:
        assert isinstance(a, torch.Tensor)
        np.testing.assert_allclose(a.numpy(), b, atol=1e-5 * b.max())
    back = there.inverse_transform(codes)
    assert isinstance(back[0] if many else back, torch.Tensor)


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("form", ["csr", "csc", "coo", "parts"])
def test_sparse_tensors_stay_sparse(form, device, monkeypatch):
    """One of 200 000 x 20 000 cells, a thousandth of them stored, was made dense: 32 GB."""
    monkeypatch.setattr(torch.Tensor, "to_dense", None)
    few = torch.from_numpy(X * (X > 0.5))
    given = few.to_sparse_csr() if form == "csr" else few.to_sparse_csc() if form == "csc" else few.to_sparse_coo()
    if form == "parts":
        given = torch.sparse_coo_tensor(
            torch.cat([given.indices()] * 2, 1), torch.cat([given.values() / 2] * 2), few.shape
        )
    here = FederatedNMF(4, random_state=0, rounds=8).fit(few.numpy())
    there = FederatedNMF(4, random_state=0, rounds=8, device=device).fit(given)
    np.testing.assert_allclose(there.components_.numpy(), here.components_, atol=1e-5)
    assert there.score(given) == pytest.approx(here.score(few.numpy()), abs=1e-6)


@pytest.mark.parametrize("device", [None, "cpu"])
def test_narrow_tensors_that_numpy_does_not_know(device):
    narrow = torch.from_numpy(X).bfloat16()
    here, there = (FederatedNMF(4, random_state=0, rounds=8, device=device).fit(a) for a in (narrow.float(), narrow))
    np.testing.assert_array_equal(there.components_.numpy(), here.components_.numpy())
    assert there.transform(narrow).dtype == torch.float32


@pytest.mark.parametrize("change", [torch.Tensor.requires_grad_, torch.Tensor.bfloat16], ids=["gradient", "narrow"])
def test_what_is_given_besides_rows_may_be_tensors(change):
    start, weights = torch.from_numpy(X[:4].round(1)), torch.ones(60)
    tensor, model = torch.from_numpy(X), FederatedNMF(4, random_state=0, rounds=3)
    for given in ({"H": start}, {"sample_weight": weights}, {"cell_weight": torch.ones(60, 20)}):
        here = model.fit(tensor, **given).components_
        there = model.fit(tensor, **{name: change(value) for name, value in given.items()}).components_
        np.testing.assert_allclose(there.numpy(), here.numpy(), atol=2e-2)
    assert model.inverse_transform(change(torch.ones(3, 4))).shape == (3, 20)


def test_tensors_without_numbers_are_refused():
    with pytest.raises(CofactorError, match="found 'meta'"):
        FederatedNMF(2).fit(torch.ones(5, 4, device="meta"))


def test_bits_of_tensors():
    bits = (X > 0.3).astype(float)
    here, there = (FederatedBMF(3, random_state=0).fit(a) for a in (bits, torch.from_numpy(bits)))
    np.testing.assert_array_equal(there.components_.numpy(), here.components_)


def test_new_rows_of_clusters_may_be_tensors():
    """Those that know their gradient were refused by all but transform."""
    model, rows = FederatedKMeans(3, random_state=0).fit(X), torch.from_numpy(X).requires_grad_()
    np.testing.assert_array_equal(model.predict([rows])[0], model.predict(X))
    assert model.score(rows) == model.score(X)


def test_bits_on_a_device():
    data = [(X[:20] > 0.3).astype(float), (X[20:] > 0.3).astype(float)]
    here, there = (FederatedBMF(3, random_state=0, device=device).fit(data) for device in (None, "cpu"))
    np.testing.assert_array_equal(there.components_, here.components_)
    assert there.reconstruction_err_ == here.reconstruction_err_
    for a, b in zip(there.transform(data), here.transform(data), strict=True):
        np.testing.assert_array_equal(a, b)
    assert there.score(data) == here.score(data)
    assert there.tiles(data) == here.tiles(data)


def test_a_device_goes_without_an_engine():
    with pytest.raises(CofactorError, match=r"Inline\(device"):
        FederatedNMF(4, device="cpu", engine=Inline()).fit(X)


def test_scikit_learns_checks_of_the_array_api_pass():
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CHECKS], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["passed"] * 14, done.stdout + done.stderr
