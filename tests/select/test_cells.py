"""Held-out cells: how they are drawn, that nothing is learned from them, that codes are solved without them."""

import numpy as np
import pytest
from scipy import sparse

from cofactor.data import synthetic
from cofactor.select import cells, holdout

STORED = {"dense": np.asarray, "csr": sparse.csr_matrix, "csr_array": sparse.csr_array, "csc": sparse.csc_matrix}


def codes(X, H, held, *, ridge=0.0, sweeps=cells.SWEEPS, tol=cells.TOL):
    return cells._solve(holdout.kept(X, held), H, held, ridge=ridge, sweeps=sweeps, tol=tol)[0]


def thin(rng, shape=(60, 40), density=0.08):
    return rng.random(shape) * (rng.random(shape) < density)


@pytest.mark.parametrize("density", [1.0, 0.5, 0.08])
def test_every_way_to_store_the_data_hides_the_same_cells(density):
    X = thin(np.random.default_rng(1), density=density)
    drawn = [holdout.draw(store(X), 0.1, np.random.default_rng(3)) for store in STORED.values()]
    for other in drawn[1:]:
        for a, b in zip(drawn[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("density", [1.0, 0.08])
def test_weights_stand_for_all_cells(rng, density):
    X = thin(rng, (200, 100), density)
    held = holdout.draw(X, 0.2, rng)
    assert held.weights.sum() == pytest.approx(X.size)
    assert np.sum(held.weights * holdout.values(X, held) ** 2) == pytest.approx(np.sum(X**2), rel=0.1)
    assert len(np.unique(held.rows * 100 + held.columns)) == len(held.rows)
    assert (np.diff(held.rows) >= 0).all()


def test_dense_rows_hide_the_share_and_keep_a_cell(rng):
    held = holdout.draw(np.ones((500, 3)), 0.5, rng)
    count = np.bincount(held.rows, minlength=500)
    assert count.max() <= 2
    assert count.mean() == pytest.approx(1.5, abs=0.1)


def test_sparse_data_hide_work_that_follows_the_nonzeros(rng):
    X = sparse.random(2000, 3000, 0.002, format="csr", random_state=0)
    held = holdout.draw(X, 0.1, rng)
    assert len(held.rows) < 0.6 * X.nnz
    assert (holdout.values(X, held) > 0).sum() == pytest.approx(0.1 * X.nnz, rel=0.15)


@pytest.mark.parametrize("store", STORED.values(), ids=STORED)
def test_held_out_and_kept_cells_are_disjoint(rng, store):
    X = thin(rng, density=0.5) + 0
    held = holdout.draw(X, 0.1, rng)
    inside = np.zeros(X.shape, bool)
    inside[held.rows, held.columns] = True
    known = holdout.kept(store(X), held)
    dense = known.toarray() if sparse.issparse(known) else known
    np.testing.assert_array_equal(dense, np.where(inside, 0, X))
    filled = holdout.fill(store(X), held, np.arange(1.0, len(held.rows) + 1))
    dense = filled.toarray() if sparse.issparse(filled) else filled
    np.testing.assert_allclose(dense[held.rows, held.columns], np.arange(1.0, len(held.rows) + 1))
    np.testing.assert_array_equal(dense[~inside], X[~inside])


@pytest.mark.parametrize("store", STORED.values(), ids=STORED)
def test_nothing_held_out_is_no_values(store):
    none = np.zeros(0, int)
    assert holdout.values(store(np.eye(3)), holdout.Holdout(none, none, np.zeros(0))).shape == (0,)


@pytest.mark.parametrize("sizes", [(0, 0), (0, 3), (3, 0), (3, 5)])
def test_cells_of_two_holdouts_are_those_of_sets(rng, sizes):
    flat = [np.sort(rng.choice(12, size, replace=False)) for size in sizes]
    both, only = holdout.union(*(holdout.Holdout(f // 4, f % 4, np.ones(len(f))) for f in flat), (3, 4))
    np.testing.assert_array_equal(both.rows * 4 + both.columns, np.union1d(*flat))
    np.testing.assert_array_equal(only, ~np.isin(np.union1d(*flat), flat[0]))


def test_two_holdouts_join(rng):
    X = rng.random((30, 20))
    a, b = (holdout.draw(X, 0.2, rng) for _ in range(2))
    both, only_b = holdout.union(a, b, X.shape)
    flat_a, flat_b, flat = (set(zip(h.rows.tolist(), h.columns.tolist(), strict=True)) for h in (a, b, both))
    assert flat == flat_a | flat_b
    found = set(zip(both.rows[only_b].tolist(), both.columns[only_b].tolist(), strict=True))
    assert found == flat_b - flat_a


@pytest.mark.parametrize("store", [np.asarray, sparse.csr_matrix], ids=["dense", "sparse"])
@pytest.mark.parametrize("density", [1.0, 0.15])
def test_masked_codes_are_the_nnls_of_the_kept_cells(rng, solve_nnls, store, density):
    X, H = thin(rng, (25, 30), density), rng.random((5, 30))
    held = holdout.draw(X, 0.3, rng)
    found = codes(store(X), H, held, sweeps=20000, tol=1e-12)
    for i, x in enumerate(X):
        keep = np.setdiff1d(np.arange(30), held.columns[held.rows == i])
        np.testing.assert_allclose(found[i], solve_nnls(x[None, keep], H[:, keep])[0], atol=1e-7)


def test_ridge_is_put_on_what_was_lost(rng, solve_nnls):
    X, H = rng.random((10, 12)), rng.random((3, 12))
    held = holdout.draw(X, 0.3, rng)
    found = codes(X, H, held, ridge=0.5, sweeps=20000, tol=1e-12)
    for i, x in enumerate(X):
        lost = held.columns[held.rows == i]
        keep = np.setdiff1d(np.arange(12), lost)
        extra = np.diag(np.sqrt(0.5 * np.sum(H[:, lost] ** 2, axis=1)))
        rows = np.concatenate([x[keep], np.zeros(3)])[None]
        np.testing.assert_allclose(found[i], solve_nnls(rows, np.hstack([H[:, keep], extra]))[0], atol=1e-7)


def test_a_component_wholly_held_out_gets_no_code():
    X, H = np.array([[1.0, 2.0, 3.0]]), np.array([[1.0, 0, 0], [0, 1.0, 1.0]])
    held = holdout.Holdout(np.array([0]), np.array([0]), np.array([3.0]))
    assert codes(X, H, held)[0, 0] == 0
    assert codes(X, H, held)[0, 1] == pytest.approx(2.5)


@pytest.mark.parametrize("store", [np.asarray, sparse.csr_matrix], ids=["dense", "sparse"])
def test_scores_are_the_errors_of_the_definition(rng, store):
    X, H = thin(rng, (25, 30), 0.6), rng.random((4, 30))
    held = holdout.draw(X, 0.2, rng)
    W = codes(X, H, held, ridge=cells.RIDGE)
    missed = (X - W @ H) ** 2
    inside = np.zeros(X.shape, bool)
    inside[held.rows, held.columns] = True
    score = cells.scores(store(X), [H], held)[0]
    assert score.heldout.sum() == pytest.approx(np.sum(held.weights * missed[held.rows, held.columns]), rel=1e-6)
    assert score.training == pytest.approx(missed[~inside].sum(), rel=1e-6)
    assert len(score.heldout) == cells.GROUPS


def test_masked_factorization_predicts_what_it_did_not_see():
    X = synthetic.lowrank(80, 40, 4, noise=0.0, seed=2).X
    held = holdout.draw(X, 0.1, np.random.default_rng(0))
    W, H = cells.factorize(cells.masked(X, held), 4, np.random.default_rng(0))
    truth = holdout.values(X, held)
    first = np.sum((truth - holdout.first_guess(holdout.kept(X, held), held)) ** 2)
    assert np.sum((truth - cells.predict(W, H, held)) ** 2) < 0.03 * first


def test_a_component_too_many_is_not_spent_on_what_was_guessed():
    X = synthetic.lowrank(120, 40, 3, noise=0.0, seed=4).X
    held = holdout.draw(X, 0.1, np.random.default_rng(0))
    truth = holdout.values(X, held)
    for rank in (3, 4):
        _, H = cells.factorize(cells.masked(X, held), rank, np.random.default_rng(0))
        rest = truth - cells.predict(codes(X, H, held), H, held)
        assert np.sum(rest**2) < 1e-2 * np.sum(truth**2)


def test_own_rank_is_near_the_planted_one():
    X = synthetic.blocks(1, 120, features=50, rank=5, seed=0).Xs[0]
    held = holdout.draw(X, 0.1, np.random.default_rng(0))
    assert cells.own_rank(X, 20, held=held, share=0.1, rng=np.random.default_rng(1)) in range(4, 9)
