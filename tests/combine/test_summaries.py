"""Mergeable summaries: saved, merged, re-summarized, and fitted at any rank."""

import numpy as np
import pytest

from cofactor import metrics, summaries
from cofactor.combine.summaries import search
from cofactor.data import synthetic
from cofactor.engines.over import SURE
from cofactor.kinds.matching import cosines
from cofactor.local.refit import refit
from cofactor.methods.alone import Alone
from cofactor.methods.summed import Summed
from cofactor.types import CofactorError


def summarize(X, rank, seed=0):
    W, H = Alone(Summed(rank))(X, rank, np.random.default_rng(seed))
    return summaries.summarize(W, H, square=float(np.sum(X**2)))


@pytest.fixture(scope="module")
def Xs():
    return synthetic.blocks(6, 60, features=40, rank=5, patterns=3, seed=3).Xs


@pytest.fixture(scope="module")
def union(Xs):
    return [summarize(X, 5, seed=j) for j, X in enumerate(Xs)]


def sum_rmsd(Xs, H):
    return metrics.sum_rmsd(Xs, [refit(X, H) for X in Xs], H)


def dense_loss(union, H, solve_nnls):
    """The definition with W_j any root of G_j: |R_j H_j - R_j C_j H|^2, C_j >= 0, as one NNLS per client."""
    total = 0.0
    for s in union:
        values, vectors = np.linalg.eigh(s.gram)
        root = np.sqrt(np.maximum(values, 0))[:, None] * vectors.T
        design = np.kron(root, H.T)
        C = solve_nnls((root @ s.factor).reshape(1, -1), design.T)
        total += float(np.sum((root @ s.factor - (design @ C[0]).reshape(len(root), -1)) ** 2))
    return total


def test_summary_is_factor_gram_rows_and_square(Xs, union):
    s = union[0]
    assert s.factor.shape == (5, 40)
    np.testing.assert_allclose(np.linalg.norm(s.factor, axis=1), 1)
    assert s.gram.shape == (5, 5)
    assert np.linalg.eigvalsh(s.gram)[0] >= -1e-9
    assert s.rows == 60
    assert s.square == pytest.approx(np.sum(Xs[0] ** 2))


def test_loss_is_what_the_definition_says(union, solve_nnls):
    few, H = union[:2], np.random.default_rng(0).uniform(size=(4, 40))
    assert summaries.loss(few, H) == pytest.approx(dense_loss(few, H, solve_nnls), rel=1e-4)


def test_loss_of_the_own_factor_is_zero(union):
    assert summaries.loss(union[:1], union[0].factor) == pytest.approx(0, abs=1e-5 * union[0].square)


def test_fit_returns_unit_rows_and_codes_that_explain_the_union(union):
    H, C = summaries.fit(union, 5)
    assert H.shape == (5, 40)
    assert C.shape == (6, 5, 5)
    assert min(H.min(), C.min()) >= 0
    np.testing.assert_allclose(np.linalg.norm(H, axis=1), 1)
    rest = [s.factor - c @ H for s, c in zip(union, C)]
    left = sum(np.einsum("rm,rs,sm->", R, s.gram, R) for s, R in zip(union, rest))
    assert left < 0.02 * sum(s.square for s in union)


def test_fit_is_reproducible_and_seeded(union):
    a, b, c = (summaries.fit(union, 5, seed=s)[0] for s in (1, 1, 2))
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)


def test_order_of_arrival_does_not_matter_for_the_result(Xs, union):
    forward, backward = (sum_rmsd(Xs, summaries.fit(u, 5)[0]) for u in (union, union[::-1]))
    assert backward == pytest.approx(forward, rel=0.01)


def test_save_and_load_are_exact(tmp_path, union):
    path = tmp_path / "union.npz"
    summaries.save(path, union)
    for saved, loaded in zip(union, summaries.load(path), strict=True):
        np.testing.assert_array_equal(saved.factor, loaded.factor)
        np.testing.assert_array_equal(saved.gram, loaded.gram)
        assert saved.factor.dtype == loaded.factor.dtype
        assert (saved.rows, saved.square) == (loaded.rows, loaded.square)


def test_more_than_ten_summaries_keep_their_order(tmp_path, union):
    many = [s._replace(rows=float(i)) for i, s in enumerate(union * 2)]
    summaries.save(tmp_path / "many.npz", many)
    assert [s.rows for s in summaries.load(tmp_path / "many.npz")] == list(range(12))


def test_loading_another_file_says_what_was_expected(tmp_path):
    np.savez(tmp_path / "other.npz", X=np.ones(3))
    with pytest.raises(CofactorError, match=r"expected saved summaries .*found \['X'\]"):
        summaries.load(tmp_path / "other.npz")


def test_saved_halves_join_to_the_same_fit(tmp_path, union):
    summaries.save(tmp_path / "a.npz", union[:3])
    summaries.save(tmp_path / "b.npz", union[3:])
    joined = summaries.load(tmp_path / "a.npz") + summaries.load(tmp_path / "b.npz")
    np.testing.assert_array_equal(summaries.fit(joined, 5)[0], summaries.fit(union, 5)[0])


def test_merged_summaries_fit_nearly_as_well_as_the_union(Xs, union):
    direct = sum_rmsd(Xs, summaries.fit(union, 5)[0])
    merged = [summaries.merge(union[:3], 5), summaries.merge(union[3:], 5)]
    assert [s.rows for s in merged] == [180, 180]
    assert sum(s.square for s in merged) == pytest.approx(sum(s.square for s in union))
    assert sum_rmsd(Xs, summaries.fit(merged, 5)[0]) <= 1.03 * direct


def test_tree_of_merges_fits_nearly_as_well_as_the_union(Xs, union):
    direct = sum_rmsd(Xs, summaries.fit(union, 5)[0])
    leaves = [summaries.merge(union[i : i + 2], 5) for i in (0, 2, 4)]
    root = summaries.merge([summaries.merge(leaves[:2], 5), leaves[2]], 5)
    assert root.rows == 360
    assert root.factor.shape == (5, 40)
    assert sum_rmsd(Xs, root.factor) <= 1.03 * direct
    assert sum_rmsd(Xs, summaries.fit([root], 5)[0]) <= 1.03 * direct


def test_merge_of_one_summary_keeps_its_energy(union):
    merged = summaries.merge(union[:1], 5)
    energy = [np.einsum("rm,rs,sm->", s.factor, s.gram, s.factor) for s in (union[0], merged)]
    assert energy[1] == pytest.approx(energy[0], rel=1e-3)


@pytest.mark.parametrize("rank", [1, 2, 3, 5, 8])
def test_every_rank_comes_from_the_same_upload(rank, union):
    H, C = summaries.fit(union, rank, restarts=3)
    assert H.shape == (rank, 40)
    assert C.shape == (6, 5, rank)
    assert np.isfinite(H).all()


def test_higher_ranks_miss_less(union):
    missed = [summaries.loss(union, summaries.fit(union, rank)[0]) for rank in (1, 3, 5)]
    assert missed[0] > missed[1] > missed[2]


def test_more_restarts_miss_no_more():
    """All restarts share their first seeds, so eight contain the one; halving may lose a per mille."""
    union = [
        summarize(X, 8, seed=j)
        for j, X in enumerate(synthetic.blocks(5, 50, features=30, rank=8, patterns=3, scale=0.3, seed=5).Xs)
    ]
    missed = [[summaries.loss(union, summaries.fit(union, 8, seed=s, restarts=r)[0]) for s in range(5)] for r in (1, 8)]
    assert all(many <= 1.05 * one for one, many in zip(*missed))
    assert np.mean(missed[1]) < np.mean(missed[0])


def test_ranks_of_clients_may_differ(Xs):
    union = [summarize(X, r, seed=r) for X, r in zip(Xs, (3, 5, 4, 6, 3, 5))]
    reference = sum_rmsd(Xs, summaries.fit([summarize(X, 5) for X in Xs], 5)[0])
    assert sum_rmsd(Xs, summaries.fit(union, 5)[0]) <= 1.05 * reference


def test_empty_summaries_say_nothing_and_change_nothing(union):
    empty = summaries.Summary(np.zeros((5, 40)), np.zeros((5, 5)), 1.0, 2.0)
    a, b = (summaries.loss(u, summaries.fit(u, 5)[0]) for u in (union, [*union, empty]))
    assert b == pytest.approx(a, rel=0.05)


def test_only_empty_summaries_are_a_clear_error():
    empty = summaries.Summary(np.zeros((5, 40)), np.zeros((5, 5)), 1.0, 2.0)
    with pytest.raises(CofactorError, match=r"expected at least one summary .*found only empty ones.*one sample"):
        summaries.fit([empty, empty], 5)


def test_no_summaries_are_a_clear_error():
    with pytest.raises(CofactorError, match="expected at least one summary"):
        summaries.fit([], 5)


def test_summaries_of_different_features_are_a_clear_error(union):
    other = summaries.Summary(np.ones((5, 39)), np.eye(5), 10.0, 1.0)
    with pytest.raises(CofactorError, match=r"40.*39|39.*40"):
        summaries.fit([*union, other], 5)


def test_components_that_other_seeds_do_not_find_are_named_and_few_others():
    """Few rows of noise at so many components: some come back from every seed, others from hardly any."""
    Xs = np.array_split(np.random.default_rng(0).exponential(size=(80, 40)), 2)
    union = [summarize(X, 20, seed=j) for j, X in enumerate(Xs)]
    found = [search(union, 10, seed=seed) for seed in range(6)]
    named = np.array([f.stability < SURE for f in found])
    lost = np.array([np.min([cosines(f.factor, g.factor) for g in found], axis=0) < SURE for f in found])
    assert 10 <= lost.sum() <= 50
    assert (named & lost).sum() >= 0.8 * lost.sum()
    assert (named & ~lost).sum() <= 0.4 * (~lost).sum()
