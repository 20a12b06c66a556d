"""Data on a device: stored narrowly, streamed, sparse; sweeps there; and what cannot be put there."""

import numpy as np
import pytest
from scipy import sparse

from cofactor import FederatedNMF, run
from cofactor.engines.inline import Inline
from cofactor.local import arrays, devices, divergence, sketch
from cofactor.local.kernels import descent
from cofactor.local.placed import Placed, placed, to_host
from cofactor.local.streamed import Streamed
from cofactor.local.updates import HALS, ProximalCD
from cofactor.methods import catalog
from cofactor.privacy import Privacy
from cofactor.types import CofactorError, DataError, Stats

torch = pytest.importorskip("torch")
rng = np.random.default_rng(1)
PIXELS = rng.integers(0, 256, size=(40, 30)).astype(np.float32)
REAL = rng.uniform(size=(40, 30)).astype(np.float32)
W, H = rng.uniform(size=(40, 3)).astype(np.float32), rng.uniform(size=(3, 30)).astype(np.float32)


@pytest.mark.parametrize(
    ("X", "stored"),
    [
        (PIXELS, "bfloat16"),
        (PIXELS.astype(np.uint8), "bfloat16"),
        (PIXELS > 100, "bfloat16"),
        (REAL, "float32"),
        (PIXELS.astype(np.float64), "float64"),
        (np.asfortranarray(PIXELS), "bfloat16"),
        (REAL[::2], "float32"),
        (sparse.csr_array(PIXELS), "csr float32"),
    ],
)
def test_data_are_stored_narrowly_and_multiplied_nearly_exactly(X, stored):
    found = devices.place(X, "cpu")
    assert found.stored == stored
    dense = np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=np.float64)
    n = len(dense)
    np.testing.assert_allclose(to_host(arrays.times_factor(found, H)), dense @ H.T, rtol=3e-5)
    np.testing.assert_allclose(to_host(arrays.times_codes(found, W[:n])), dense.T @ W[:n], rtol=3e-5)
    np.testing.assert_allclose(arrays.row_squares(found), (dense**2).sum(1), rtol=1e-6)


def test_a_number_that_bfloat16_does_not_hold_widens_all_rows(monkeypatch):
    monkeypatch.setattr("cofactor.local.resident.BLOCK_BYTES", 30 * 4 * 8)  # blocks of eight rows
    X = PIXELS.copy()
    X[35, 3] = 257.0
    found = devices.place(X, "cpu")
    assert found.stored == "float32"
    np.testing.assert_array_equal(found.row_block(slice(0, 40)), X)


@pytest.mark.parametrize("X", [REAL, np.asfortranarray(REAL), PIXELS[:, ::-1]])
def test_streamed_rows_give_the_products_of_all_rows(monkeypatch, X):
    monkeypatch.setattr("cofactor.local.resident.BLOCK_BYTES", 30 * 4 * 8)
    found = Streamed(X, torch.device("cpu"), np.dtype(np.float32))
    np.testing.assert_allclose(to_host(found.times_factor(H)), X @ H.T, rtol=1e-5)
    np.testing.assert_allclose(to_host(found.times_codes(W)), X.T @ W, rtol=1e-5)
    np.testing.assert_allclose(found.row_squares(), (X.astype(np.float64) ** 2).sum(1))


def test_data_that_do_not_fit_are_streamed_with_a_warning(monkeypatch):
    def full(*_):
        raise torch.OutOfMemoryError

    monkeypatch.setattr("cofactor.local.devices.resident", full)
    with pytest.warns(UserWarning, match="do not fit on cpu .*streamed"):
        found = devices.place(REAL, "cpu")
    assert isinstance(found, Streamed)
    assert found.source is REAL


@pytest.mark.parametrize("k", [1, 5, 300])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("update", [HALS(2), HALS(200, tol=1e-6), ProximalCD(0.1, 2)])
def test_sweeps_on_a_device_are_those_in_memory(k, dtype, update):
    own = np.random.default_rng(k)
    B = own.uniform(size=(k, 2 * k + 3)).astype(dtype)
    F = own.uniform(size=(9, k)).astype(dtype)
    B[0] *= k > 1  # a component that nothing is made of keeps its codes
    stats = Stats(B @ B.T, own.uniform(size=(9, 2 * k + 3)).astype(dtype) @ B.T)
    there = Stats(*(placed(a, torch.device("cpu")) for a in stats))
    wanted, found = update(F, stats), to_host(update(F, there))
    assert found.dtype == dtype
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=2e-3 if k == 300 else 2e-5)


def test_extrapolation_on_a_device_is_that_in_memory():
    a, b = rng.normal(size=(2, 6, 4)).astype(np.float32)
    found = descent.extrapolate(*(placed(x, torch.device("cpu")) for x in (a, b)), 0.3)
    np.testing.assert_allclose(to_host(found), descent.extrapolate(a, b, 0.3), rtol=1e-6)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_no_cuda_names_what_torch_found():
    with pytest.raises(CofactorError, match=rf"'cuda'.*found torch {torch.__version__.split('+')[0]}.*sees 0"):
        devices.find("cuda")


@pytest.mark.parametrize("name", ["gpu", "mps", "meta", "xpu"])
def test_a_device_that_there_is_not_is_named(name):
    with pytest.raises(CofactorError, match=f"expected 'cuda', 'cuda:1' or 'cpu', found '{name}'"):
        devices.find(name)


@pytest.mark.parametrize("kind", sketch.catalog().values(), ids=sketch.catalog())
@pytest.mark.parametrize("side", [30, 40])
def test_sketches_of_what_is_on_a_device_are_those_in_memory(kind, side):
    X = REAL if side == 30 else REAL.T
    drawn = kind(12).draw(side, 3, np.random.default_rng(0))
    there = placed(X, torch.device("cpu"))
    np.testing.assert_allclose(to_host(drawn.right(there)), drawn.right(X), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(to_host(sketch.left(drawn, there.T)), sketch.left(drawn, X.T), rtol=1e-4, atol=1e-5)


def test_a_bad_value_among_those_that_are_stored_is_found():
    X = sparse.csr_array(REAL * (REAL > 0.5))
    X.data[77] = -1
    row, column = np.argwhere(X.toarray() < 0)[0]
    with pytest.raises(DataError, match=rf"found -1.0 at row {row}, column {column};"):
        devices.place(X, "cpu").check()


def test_cells_that_are_stored_in_parts_are_their_sum():
    parts = sparse.coo_array(([3.0, -1.0, 2.0], ([0, 0, 1], [2, 2, 1])), shape=(2, 4))
    held = sparse.csr_array((parts.data, parts.coords[1], [0, 2, 3]), shape=(2, 4))
    found = devices.place(held, "cpu").check()
    np.testing.assert_array_equal(found.row_squares(), [4, 4])


@pytest.mark.parametrize(
    ("value", "cell"), [(np.nan, "nan at row 3, column 4"), (-1.0, "-1.0 at row 3"), (np.inf, "inf")]
)
def test_values_are_checked_on_the_device(value, cell):
    X = REAL.copy()
    X[3, 4] = value
    with pytest.raises(DataError, match=cell):
        devices.place(X, "cpu").check(client=2)


def test_texts_and_vectors_are_refused():
    with pytest.raises(DataError, match="dtype"):
        devices.place(np.array([["a"]]), "cpu")
    with pytest.raises(DataError, match=r"shape \(3,\)"):
        devices.place(np.ones(3), "cpu")


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("X", [PIXELS, REAL, PIXELS.astype(np.float64)], ids=["narrow", "float32", "float64"])
def test_kullback_leibler_there_is_that_of_the_host(monkeypatch, X, form):
    """Also where there are many blocks, of which none is whole."""
    monkeypatch.setattr("cofactor.local.kernels.tensor_counts.CELLS", 30 * 7)
    X = np.where(X > np.median(X), X, 0)
    held, F, G = form(X), W.astype(X.dtype), H.astype(X.dtype)
    there = devices.place(held, "cpu")
    codes, expected = divergence.for_codes(there, F, G, 1), divergence.for_codes(held, F, G, 1)
    factor, sums = divergence.for_factor(there, F, G, 1), divergence.for_factor(held, F, G, 1)
    for found, right in zip((*codes, *factor), (*expected, *sums), strict=True):
        np.testing.assert_allclose(to_host(found), right, rtol=1e-5)
    np.testing.assert_allclose(to_host(divergence.flat_codes(there, G)), divergence.flat_codes(held, G), rtol=3e-5)
    solved, least = (divergence.solve_codes(data, G, 1) for data in (there, held))
    assert isinstance(solved, Placed)
    np.testing.assert_allclose(to_host(solved), least, rtol=1e-3, atol=1e-5 * least.max())


def test_rounds_of_kullback_leibler_keep_rows_and_codes_there():
    X = rng.poisson(3 * W @ H).astype(np.float32)
    method = catalog.make("exact-beta", 3, start="random", momentum=False)
    here, there = (run(method, [X[:20], X[20:]], rounds=20, engine=Inline(device=d)) for d in (None, "cpu"))
    assert there.history[-1].loss == pytest.approx(here.history[-1].loss, rel=1e-6)
    for a, b in zip(here.codes, there.codes, strict=True):  # those of both are at the minimum
        np.testing.assert_allclose(b @ there.factor, a @ here.factor, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "beta"), [("exact", 0), ("exact-beta", 1)])
@pytest.mark.parametrize("clients", [1, 3])
def test_a_default_start_there_is_that_in_memory(name, beta, clients):
    """It takes the best of many restarts, several of which are as good as each other."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        M = 3 * rng.gamma(0.3, 1, (600, 12)) @ rng.gamma(0.3, 1, (12, 150))
        X = (rng.poisson(M) if beta else M * rng.gamma(10, 0.1, M.shape)).astype(np.float32)
        Xs = np.array_split(X, clients)
        here, there = (run(catalog.make(name, 12), Xs, rounds=2, engine=Inline(device=d)) for d in (None, "cpu"))
        assert np.linalg.norm(there.factor - here.factor) < 1e-4 * np.linalg.norm(here.factor)


def test_rows_of_a_private_run_are_in_memory():
    """Whether they fit on a device, and in which type they are held there, depends on them."""
    X = np.random.default_rng(0).random((20, 5))
    with pytest.raises(DataError, match="client 0: expected rows in memory in a private run, found some on a device"):
        FederatedNMF(2, privacy=Privacy(1, 1e-6)).fit(devices.place(X, "cpu"))
