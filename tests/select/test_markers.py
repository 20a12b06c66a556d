"""Markers: the regression of cNMF, from sums alone, whoever holds which rows."""

import os
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from cofactor import FederatedNMF
from cofactor.data import synthetic
from cofactor.engines.inline import Inline
from cofactor.engines.totals import totals
from cofactor.local.columns import SomeColumns, column_sums, groups
from cofactor.methods import catalog
from cofactor.select.markers import Regressed, table, to_tsv
from cofactor.types import CofactorError

EXACT = catalog.make("exact", 3)


@pytest.fixture(scope="module")
def Xs():
    return [X + 0.1 for X in synthetic.blocks(3, [20, 31, 12], features=15, rank=3, seed=1).Xs]


@pytest.fixture(scope="module")
def factor(Xs):
    return FederatedNMF(3, random_state=0, rounds=5, tol=0).fit(Xs).components_


def plain(X, factor):
    """The scores as cNMF writes them, on pooled rows, with codes at root mean square 1."""
    W = EXACT.refit(X, factor)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    return np.linalg.pinv(W / np.sqrt((W**2).mean(axis=0))) @ Z


def scores(Xs, factor, m=15, **how):
    question = Regressed(EXACT.refit, factor, how.pop("groups", None))
    return question.scores(totals(question, Xs, m, **how))


def test_sums_of_clients_give_the_regression_on_pooled_rows(Xs, factor):
    assert np.allclose(scores(Xs, factor), plain(np.vstack(Xs), factor), atol=1e-10)
    assert np.allclose(scores([sparse.csr_array(X) for X in Xs], factor), scores(Xs, factor), atol=1e-10)


def test_masked_sums_give_the_same_scores(Xs, factor):
    assert np.allclose(scores(Xs, factor, secure=True), scores(Xs, factor), atol=1e-5)


def test_what_is_sent_has_sizes_that_rows_do_not_change_and_nothing_else_is_sent(Xs, factor):
    seen = []
    scores(Xs, factor, watch=lambda t, answers: seen.extend(answers), engine=Inline())
    sent = {name: np.shape(a) for answer in seen for name, a in answer.message.arrays.items()}
    assert len(seen) == 3
    assert sent == Regressed(EXACT.refit, factor).schema(15)
    assert all(answer.message.weight == 1 for answer in seen)


def test_a_feature_that_some_clients_lack_is_scored_by_those_that_have_it(Xs, factor):
    known = [np.arange(15), np.arange(4, 15), np.arange(15)]
    some = [SomeColumns(X[:, index], index, 15) for X, index in zip(Xs, known, strict=True)]
    found = scores(some, factor, groups=groups(known, 15))
    W = [EXACT.refit(X, factor) for X in some]
    for first, rows in ((slice(4), (0, 2)), (slice(4, 15), (0, 1, 2))):
        X, codes = (np.vstack([part[j] for j in rows]) for part in (Xs, W))
        Z = (X - X.mean(axis=0)) / X.std(axis=0)
        expected = np.linalg.pinv(codes / np.sqrt((codes**2).mean(axis=0))) @ Z
        assert np.allclose(found[:, first], expected[:, first], atol=1e-10)


def test_features_that_do_not_vary_and_components_that_nobody_has_score_nothing(factor):
    X = np.random.default_rng(0).uniform(size=(30, 15))
    X[:, 3] = 7.0
    dead = factor.copy()
    dead[1] = 0
    found = scores([X], dead)
    assert np.isfinite(found).all()
    assert not found[:, 3].any()
    assert np.abs(found[1]).max() < 1e-12


def test_column_sums_of_every_form_agree(Xs):
    X = Xs[0]
    forms = [X, sparse.csr_array(X), sparse.csc_array(X), SomeColumns(X, np.arange(15), 15)]
    for form in forms:
        assert np.allclose(column_sums(form), [X.sum(axis=0), (X**2).sum(axis=0)])


def test_the_table_is_best_first_and_says_what_is_wrong():
    S, H = np.array([[0.5, -1, 2.0], [0, 0, 0]]), np.array([[1.0, 2, 3], [4, 5, 6]])
    lines = table(S, H, ["a", "b", "c"], top=3)
    assert [(m.component, m.place, m.feature, m.weight) for m in lines] == [(0, 1, "c", 3.0), (0, 2, "a", 1.0)]
    assert to_tsv(lines).splitlines()[1] == "0\t1\tc\t2\t3"
    with pytest.raises(CofactorError, match=r"top: expected a whole number of at least 1, found 0"):
        table(S, H, top=0)
    with pytest.raises(CofactorError, match=r"names: expected one for each of 3 features, found 1"):
        table(S, H, ["a"])


@pytest.mark.skipif("COFACTOR_DATA" not in os.environ, reason="needs the stored datasets")
def test_blood_cells_show_their_biology():
    file = Path(os.environ["COFACTOR_DATA"]) / "scrna_pbmc68k_reduced.npz"
    X, genes = sparse.load_npz(file), np.load(file)["genes"]
    parts = [X[i::3] for i in range(3)]
    model = FederatedNMF(10, random_state=0).fit(parts)
    question = Regressed(catalog.make("exact", 10).refit, model.components_)
    lines = table(question.scores(totals(question, parts, X.shape[1])), model.components_, genes, top=10)
    found = [{m.feature for m in lines if m.component == i} for i in range(10)]
    assert any({"GNLY", "GZMB", "NKG7", "PRF1"} <= top for top in found)
    assert any({"MS4A1", "CD79A", "CD79B"} <= top for top in found)
