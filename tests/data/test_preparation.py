"""Preparation: each step against an outside reference on pooled rows, whoever holds which rows."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.feature_extraction.text import TfidfTransformer

from cofactor.data.formats.row_blocks import RowBlocks
from cofactor.data.preparation import Preparation, hint
from cofactor.data.steps import Binarize, HighlyVariable, LibrarySize, Log1p, Scale, TfIdf
from cofactor.data.variable import dispersions, mean_variance, moments, most_variable
from cofactor.engines.totals import totals
from cofactor.local.columns import SomeColumns
from cofactor.privacy.errors import PrivacyError
from cofactor.types import CofactorError, DataError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import scanpy as sc
    from anndata import AnnData


def counts(n=240, m=300, seed=0):
    """Counts with genes of very different means and dispersions, some never seen."""
    draw = np.random.default_rng(seed)
    mean = draw.lognormal(-1, 1.5, size=m)
    shape = draw.uniform(0.2, 5, size=m)
    X = draw.negative_binomial(shape, shape / (shape + mean), size=(n, m)).astype(np.float64)
    X[:, :3] = 0
    return X


X = counts()
PARTS = [X[:40], X[40:150], X[150:]]


def ask(question, data, n_features):
    return totals(question, data, n_features)


def prepared(given, parts=PARTS, m=X.shape[1]):
    return Preparation.of(given).settle(parts, m, ask)


def scanpy_steps(n_top, flavour):
    held = AnnData(X.copy(), var=pd.DataFrame(index=[f"g{i}" for i in range(X.shape[1])]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sc.pp.normalize_total(held, target_sum=1e4)
        sc.pp.log1p(held)
        sc.pp.highly_variable_genes(held, n_top_genes=n_top, flavor=flavour)
    return held


@pytest.mark.parametrize("flavour", ["seurat", "cell_ranger"])
@pytest.mark.parametrize("n_top", [20, 90])
def test_library_size_logarithms_and_variable_genes_are_those_of_scanpy(flavour, n_top):
    theirs = scanpy_steps(n_top, flavour)
    made, ours = prepared((LibrarySize(), Log1p(), HighlyVariable(n_top, flavour)))
    assert np.array_equal(made.steps[2].keeps, theirs.var["highly_variable"].to_numpy())
    assert np.allclose(np.vstack(ours), theirs.X[:, theirs.var["highly_variable"]])
    names = made.names([f"g{i}" for i in range(X.shape[1])])
    assert names == theirs.var_names[theirs.var["highly_variable"]].tolist()


def test_tf_idf_is_that_of_scikit_learn():
    _, ours = prepared("tfidf")
    assert np.allclose(np.vstack(ours), TfidfTransformer().fit_transform(X).toarray())


def test_scaling_divides_by_the_deviation_over_all_rows():
    _, ours = prepared("scale")
    deviations = X.std(axis=0, ddof=1)
    assert np.allclose(np.vstack(ours), X / np.where(deviations > 0, deviations, 1))


@pytest.mark.parametrize(
    "text", ["library,log1p,hvg=50", "tfidf", "library=100,scale", "binarize", "hvg=40:cell_ranger"]
)
def test_sparse_and_blocks_on_disk_give_what_dense_gives(text, tmp_path):
    small = np.minimum(X, 6)  # exponentials stay small where no logarithm was taken
    parts = [small[:100], small[100:]]
    dense, expected = prepared(text, parts)
    for form in ([sparse.csr_matrix(p) for p in parts], [RowBlocks(_Rows(p), 4000) for p in parts]):
        made, found = prepared(text, form)
        assert made.text == dense.text
        for X_found, X_expected in zip(found, expected, strict=True):
            loaded = X_found.load() if isinstance(X_found, RowBlocks) else X_found.toarray()
            assert loaded.shape == X_found.shape
            assert np.allclose(loaded, X_expected)


def test_clients_that_lack_features_are_left_out_where_they_have_none():
    index = [np.arange(300), np.arange(100, 300), np.arange(200)]
    some = [SomeColumns(p[:, i], i, 300) for p, i in zip(PARTS, index, strict=True)]
    made, found = prepared("scale,hvg=30:cell_ranger", some)
    rows = [np.vstack([PARTS[j][:, [150]] for j in (0, 1, 2)]), np.vstack([PARTS[j][:, [50]] for j in (0, 2)])]
    assert np.allclose(made.steps[0].deviations[[150, 50]], [r.std(ddof=1) for r in rows])
    kept = np.flatnonzero(made.steps[1].keeps)
    for p, i, left in zip(PARTS, index, found, strict=True):
        assert np.array_equal(kept[left.index], [g for g in kept if g in set(i.tolist())])
        assert np.allclose(left.inner, p[:, kept[left.index]] / made.steps[0].deviations[kept[left.index]])
        assert left.shape[1] == len(kept)


def test_masked_sums_choose_the_same_genes():
    def masked(question, data, m):
        return totals(question, data, m, secure=True)

    steps = Preparation.of("library=100,log1p,hvg=50:cell_ranger")
    plain, _ = steps.settle(PARTS, 300, ask)
    secure, _ = steps.settle(PARTS, 300, masked)
    assert np.array_equal(plain.steps[2].keeps, secure.steps[2].keeps)


def test_a_settled_preparation_is_written_and_repeated_on_new_rows():
    made, parts = prepared("library,log1p,scale,hvg=25")
    again = Preparation.from_arrays(made.arrays())
    assert again.text == made.text == "library=10000,log1p,scale,hvg=25"
    assert np.array_equal(again(PARTS[1]), parts[1])
    assert not Preparation.from_arrays({})
    assert Preparation().arrays() == {}
    with pytest.raises(CofactorError, match="scale: expected a step that was settled"):
        Preparation.of("scale")(X)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("libary", r"unknown step of a preparation 'libary'. Did you mean 'library'"),
        ("log1p=3", r"expected log1p without a number, found 'log1p=3'"),
        ("library=10:seurat", r"expected library without a flavour"),
        ("hvg=many", r"expected a number after hvg=, found 'many'"),
        ("hvg=2:saurat", r"unknown flavour 'saurat'. Did you mean 'seurat'"),
        ("hvg=0", r"hvg: expected top as a whole number of at least 1, found 0"),
        ("library=0", r"library: expected a target above 0"),
        ("binarize=-1", r"binarize: expected a value >= 0"),
        ([np.log1p], r"expected steps \(LibrarySize.* or their text, found <ufunc 'log1p'>"),
    ],
)
def test_what_is_no_preparation_is_refused_in_words(given, text):
    with pytest.raises(CofactorError, match=text):
        Preparation.of(given)


def test_data_that_a_step_cannot_take_are_refused_in_words():
    with pytest.raises(DataError, match=r"put log1p before hvg"):
        prepared("hvg=10", [1000 * X])
    with pytest.raises(DataError, match=r"expected hvg to keep some features, found that none varies"):
        prepared("hvg=10", [np.zeros((5, 4))], 4)


def test_private_runs_take_steps_of_single_rows_only():
    Preparation.of((LibrarySize(), Log1p(), Binarize()), private=True)
    for step in (Scale(), TfIdf(), HighlyVariable()):
        with pytest.raises(PrivacyError, match=rf"{step.word} is refused in a private run"):
            Preparation.of((Log1p(), step), private=True)


def test_hints_are_for_raw_counts_and_for_counts_that_are_none():
    def looked(X, preparation):
        return hint([X], ["a"], preparation)

    assert "look like raw counts" in looked(X, Preparation())
    assert "look like raw counts" in looked(sparse.csr_matrix(X), Preparation())
    assert not looked(X, Preparation.of("library,log1p"))
    assert not looked(np.log1p(X), Preparation())
    pen = np.clip(255 * np.random.default_rng(0).uniform(-2, 1.4, (200, 64)), 0, 255).astype(np.uint8)
    assert not looked(pen, Preparation())  # pixels are whole numbers with many zeros too
    assert "are no whole numbers" in looked(np.log1p(X), Preparation.of("library,log1p"))
    assert "would be taken twice" in looked(np.log1p(X), Preparation.of("log1p"))
    assert not looked(X / X.sum(axis=1, keepdims=True) * 1e4, Preparation.of("log1p"))
    assert not looked((X > 0).astype(float), Preparation())
    assert not looked(np.zeros((3, 3)), Preparation())


def test_hints_look_at_every_client_and_name_those_that_differ():
    normalized = np.log1p(X / X.sum(axis=1, keepdims=True) * 1e4)
    assert hint([normalized, X, X], ["ann", "bob", "cyd"], Preparation()).startswith(
        "client bob and 1 more of 3: the values look like raw counts"
    )
    twice = hint([X, normalized], ["ann", "bob"], Preparation.of("library,log1p"))
    assert twice.startswith("client bob of 2: prepare: library expects counts")
    assert hint([X, X], ["ann", "bob"], Preparation()).startswith("the values look like raw counts")
    assert not hint([X, normalized], ["ann", "bob"], Preparation(), "exact-beta")


class _Rows:
    """A source of rows that lie in memory."""

    sparse = False

    def __init__(self, X):
        self.X, self.shape, self.dtype, self.cells = X, X.shape, X.dtype, float(X.shape[1])

    def read(self, start, stop):
        return self.X[start:stop]


@pytest.mark.parametrize("given", ["library", "log1p", "tfidf", "hvg=3,log1p"])
def test_steps_of_counts_want_no_negative_values(given):
    steps = Preparation.of(given)
    with pytest.raises(
        DataError, match=r"Negative values in data.* found 1 such cell\(s\), the first at row 1, column 0"
    ):
        steps.takes.check(np.array([[1.0, 2.0], [-1.0, 0.0]]), 0)
    assert (Preparation.of("scale").takes.check(np.array([[-1.0, 2.0]]), 0) < 0).any()


def test_ties_of_variable_features_do_not_depend_on_the_order_of_sums() -> None:
    """Two features alone in a bin are as far from its mean as all such pairs, in last bits of every order of rows."""
    rng = np.random.default_rng(65)
    X = np.log1p(rng.gamma(0.5, size=(80, 4)) @ rng.gamma(0.4, size=(4, 28)))
    found = [mean_variance(moments(rng.permutation(X))) for _ in range(20)]
    pairs = np.abs(dispersions(*found[0], flavour="seurat") - 0.5**0.5) < 1e-12
    assert pairs.sum() > 2
    first = int(np.sum(dispersions(*found[0], flavour="seurat") > 0.5**0.5 + 1e-12)) + 1
    for top in range(first, first + int(pairs.sum())):
        assert all(most_variable(*some, top, flavour="seurat")[pairs].all() for some in found)
