"""Starts at singular vectors of all rows, from sums or by one client alone, from every seed the same."""

import numpy as np
import pytest
from scipy import sparse

from cofactor import FederatedNMF, run
from cofactor.data import load
from cofactor.data.formats.row_blocks import RowBlocks
from cofactor.engines.checkpoint import Checkpoint
from cofactor.local.stats import normalize
from cofactor.methods import catalog
from cofactor.methods.build import Facts, build
from cofactor.methods.spanned import Own, Spanned
from cofactor.methods.summed import NARROW
from cofactor.plan import Plan
from cofactor.types import CofactorError


@pytest.fixture
def X(rng):
    return rng.uniform(size=(60, 5)) ** 3 @ rng.uniform(size=(5, 30)) ** 3


def parts(X, k):
    """NNDSVD of the singular vectors that numpy finds, rows at norm 1."""
    U, _, V = np.linalg.svd(X, full_matrices=False)
    H = [np.abs(V[0])]
    for u, v in zip(U.T[1:k], V[1:k], strict=True):
        sides = [(np.maximum(sign * u, 0), np.maximum(sign * v, 0)) for sign in (1, -1)]
        H.append(max(sides, key=lambda side: np.linalg.norm(side[0]) * np.linalg.norm(side[1]))[1])
    return normalize(np.array(H))


def test_it_is_the_parts_of_the_singular_vectors(X):
    """Data of fewer dimensions than there are directions: what they span is all there is."""
    assert run(Spanned(5), [X[:20], X[20:]]).factor == pytest.approx(parts(X, 5), abs=1e-8)


@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_matrix, sparse.csc_matrix, lambda X: X.astype(np.float32)])
@pytest.mark.parametrize("shape", [slice(None), slice(12), slice(4)])
def test_one_client_finds_by_itself_what_sums_say(X, convert, shape):
    rows = convert(X[shape])
    found = run(Own(4), [rows])
    single = rows.dtype == np.float32
    assert found.factor == pytest.approx(parts(X[shape], 4), abs=1e-4 if single else 1e-8)
    assert found.factor.dtype == rows.dtype
    assert len(found.history) == 1


def test_it_looks_at_some_rows_first_and_comes_as_near_on_noisy_data(rng):
    """Also where most of what there is lies in a few rows."""
    X = rng.uniform(size=(4000, 6)) ** 3 @ rng.uniform(size=(6, 150)) ** 3 + 0.1 * rng.uniform(size=(4000, 150))
    X[:40] *= 10
    assert np.einsum("km,km->k", run(Own(6), [X]).factor, parts(X, 6)).min() > 0.99


def test_what_several_clients_find_by_themselves_does_not_add_up(X):
    with pytest.raises(CofactorError, match="start 'own' is for one client"):
        run(catalog.make("exact", 3, start="own"), [X[:30], X[30:]])


def test_under_masks_one_client_sends_what_it_sent():
    made = build("exact", 4, Plan(secure=True), Facts(1, NARROW, 900))[0]
    assert made == catalog.make("exact", 4, start="moments")


@pytest.mark.parametrize("end", [0, 1])
def test_a_run_goes_on_after_it_to_the_same_result(X, tmp_path, end):
    method, saved = catalog.make("exact", 4, start="own"), Checkpoint(tmp_path / "saved")
    run(method, [X], rounds=5, checkpoint=saved, callbacks=[lambda line, shared: line.round == end])
    assert np.array_equal(run(method, [X], rounds=5, checkpoint=saved).factor, run(method, [X], rounds=5).factor)


def test_of_rows_on_disk_it_finds_the_same(rng, tmp_path):
    X = rng.uniform(size=(1200, 6)) ** 3 @ rng.uniform(size=(6, 40)) ** 3
    np.save(tmp_path / "rows.npy", X)
    held = RowBlocks(load.read(str(tmp_path / "rows.npy"), blocks=True).X.source, block_bytes=1 << 16)
    assert run(Own(4), [held]).factor == pytest.approx(run(Own(4), [X]).factor, abs=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("unit", [1e-10, 1.0, 1e10])
def test_units_do_not_matter_to_it(X, dtype, unit):
    found = run(Own(5), [(unit * X).astype(dtype)]).factor
    assert found == pytest.approx(parts(X, 5), abs=1e-3)


def test_directions_come_near_the_singular_vectors_of_noisy_data(rng):
    X = 3 * rng.uniform(size=(300, 5)) ** 3 @ rng.uniform(size=(5, 200)) ** 3 + rng.uniform(size=(300, 200))
    found, expected = run(Spanned(5), [X[:120], X[120:]]).factor, parts(X, 5)
    assert np.einsum("km,km->k", found, expected).min() > 0.99


@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_matrix, lambda X: X.astype(np.float32)])
def test_how_rows_are_spread_does_not_matter(X, convert):
    whole = run(Spanned(4), [convert(X)], seed=0).factor
    parts = run(Spanned(4), [convert(X[rows]) for rows in np.split(np.arange(60), [3, 40])], seed=7).factor
    assert np.allclose(whole, parts, atol=1e-4 if whole.dtype == np.float32 else 1e-9)


def test_one_client_gives_the_same_components_from_every_seed(X):
    a, b = (FederatedNMF(4, random_state=seed).fit(X + 0.1).components_ for seed in (0, 1))
    assert np.array_equal(a, b)


def test_directions_that_are_not_there_are_drawn():
    """Rank one: every other direction is rounding, and none is empty."""
    X = np.outer(np.arange(1.0, 9.0), np.ones(6))
    for start in (Spanned, Own):
        for dtype in (np.float32, np.float64):
            found = run(start(6), [X.astype(dtype)]).factor
            assert found.any(axis=1).all()
            assert found[0] == pytest.approx(np.full(6, 6**-0.5))
            assert (found[1:].std(axis=1) > 0.05).all()
        assert run(start(3), [np.zeros((8, 6))]).factor.any(axis=1).all()
        assert run(start(8), [X]).factor.shape == (8, 6)
    assert FederatedNMF(1, random_state=0).fit(X).reconstruction_err_ < 1e-6


@pytest.mark.parametrize(
    ("clients", "rows", "features", "options"),
    [
        (1, 900, NARROW - 1, {"restarts": 8}),
        (1, 900, NARROW, {"start": "own"}),
        (1, 15, 50, {"start": "own"}),
        (3, 9, 4000, {}),
    ],
)
def test_it_is_the_start_of_one_client_unless_data_are_narrow_and_rows_many(clients, rows, features, options):
    made = build("exact", 4, Plan(), Facts(clients, features, rows))[0]
    assert made == catalog.make("exact", 4, **options)


@pytest.mark.parametrize(("start", "rounds"), [("own", 1), *(("svd", rounds) for rounds in range(1, 7))])
def test_a_run_that_ends_in_the_start_has_a_factor_all_the_same(X, start, rounds):
    found = FederatedNMF(4, method="exact", options={"start": start}, rounds=rounds, tol=0).fit(X)
    assert found.components_.any(axis=1).all()
    assert found.reconstruction_err_ < 0.5
