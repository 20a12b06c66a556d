"""Input that is not what a fit expects: it works, or says what to do."""

import anndata
import dask.array
import numpy as np
import pandas as pd
import polars
import pytest
from scipy import sparse

from cofactor import FederatedBMF, FederatedKMeans, FederatedMF, FederatedNMF, Privacy
from cofactor.engines.dask_engine import Dask
from cofactor.privacy.errors import PrivacyError
from cofactor.types import CofactorError, DataError

X = np.random.default_rng(0).poisson(2.0, size=(30, 12)).astype(np.float32)


def fit(data, k=3, **options):
    given = {name: options.pop(name) for name in ("groups",) if name in options}
    return FederatedNMF(k, random_state=0, **options).fit(data, **given)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_backed_and_dask_cells_are_read(tmp_path):
    cells = anndata.AnnData(X)
    cells.write_h5ad(tmp_path / "x.h5ad")
    lazy = anndata.AnnData(X)
    lazy.X = dask.array.from_array(X, chunks=(10, 12))
    expected = fit(cells).components_
    anndata.AnnData(sparse.csc_matrix(X)).write_h5ad(tmp_path / "columns.h5ad")
    for found in (*(anndata.read_h5ad(tmp_path / name, backed="r") for name in ("x.h5ad", "columns.h5ad")), lazy):
        np.testing.assert_allclose(fit(found).components_, expected, atol=1e-5)


def test_genes_twice_and_no_such_column():
    cells = anndata.AnnData(X)
    with pytest.raises(CofactorError, match="expected a column 'site' to group by"):
        fit(cells, groups="site")
    cells.var_names = ["g", "g", *(f"g{i}" for i in range(10))]
    with pytest.raises(CofactorError, match=r"'g' more than once; adata\.var_names_make_unique"):
        fit(cells)


def test_rows_of_zeros_have_codes_of_zero():
    Z = X.copy()
    Z[3] = 0
    fitted = fit(Z, beta_loss="kullback-leibler")
    assert np.isfinite(fitted.components_).all()
    assert not fitted.codes_[0][3].any()


def test_one_start_is_no_consensus():
    with pytest.raises(CofactorError, match="a consensus needs at least two"):
        fit(X, method="consensus", options={"starts": 1})
    for starts in (1, 2.5, True, "many"):
        with pytest.raises(CofactorError, match="number of starts, at least two"):
            fit(X, consensus=starts)


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"method": "oneshot"}, "method='oneshot'"),
        ({"beta_loss": 1}, "another beta_loss"),
        ({"init": "random"}, "a start of your own"),
        ({"rounds": 20}, "rounds"),
    ],
)
def test_what_a_consensus_does_not_go_with_is_named(more, named):
    with pytest.raises(CofactorError, match=f"consensus: expected .* found {named}"):
        fit(X, consensus=5, **more)
    with pytest.raises(PrivacyError, match="consensus is refused in a private fit"):
        fit(X, consensus=5, privacy=Privacy(1, 1e-5))


def test_what_is_no_bit_is_named_with_its_feature():
    with pytest.raises(
        CofactorError, match=r"column 1 \('b'\) at client 0; make bits of other values: prepare=.* is 1 above 0.5"
    ):
        FederatedBMF(1).fit(pd.DataFrame({"a": [0, 1], "b": [1, 3]}))


@pytest.mark.filterwarnings("ignore:components may")
def test_own_parts_of_clients_with_few_rows_get_a_warning():
    with pytest.warns(UserWarning, match="fewer rows than components"):
        fit([X, X[:3]], 5, method="shared-own")


FRAME = pd.DataFrame(X, columns=[f"g{i}" for i in range(12)]).assign(donor="ann", clinic="north")


@pytest.mark.parametrize("make", [lambda: FRAME, lambda: [FRAME, FRAME], lambda: polars.from_pandas(FRAME)])
def test_columns_of_text_are_named(make):
    with pytest.raises(CofactorError, match=r"columns 'donor', 'clinic'; drop them, or .* groups='donor'"):
        fit(make())


def test_a_column_of_text_may_name_the_clients():
    assert fit(FRAME.drop(columns="donor"), groups="clinic").clients_ == ["north"]
    with pytest.raises(CofactorError, match=r"found no such column; did you mean 'clinic'\?$"):
        fit(FRAME, groups="clinics")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("cells.h5ad", r"found the text 'cells.h5ad'; read files first .*cofactor fit"),
        (["a.csv", "b.csv"], "read files first"),
        ({"north": X, "south": X}, r"found a dict; give list\(X.values\(\)\)"),
        (iter([X, X]), r"found an iterator; give list\(X\)"),
        ([], "at least one client, found an empty list"),
    ],
)
def test_what_holds_no_matrix_is_refused_in_words(data, words):
    with pytest.raises(CofactorError, match=words):
        fit(data)


def test_a_fit_that_was_log_transformed_elsewhere_still_tells_raw_counts():
    """What AnnData has noted of logarithms does not count: values do."""
    counts = np.random.default_rng(1).poisson(0.4, size=(60, 12)).astype(np.float32)
    counts[0, 0] = 30
    cells = anndata.AnnData(counts)
    cells.uns["log1p"] = {"base": None}
    with pytest.warns(UserWarning, match="look like raw counts"):
        fit(cells)
    with pytest.warns(UserWarning, match="would be taken twice"):
        fit(anndata.AnnData(np.log1p(counts)), prepare="log1p")


@pytest.mark.parametrize("model", [FederatedBMF(1), FederatedKMeans(1)])
def test_nobody_is_sent_to_a_parameter_that_is_not_there(model):
    one, two = (pd.DataFrame(np.eye(2), columns=list(names)) for names in ("ab", "ac"))
    with pytest.raises(CofactorError, match=r"Give all clients the same columns, .*`features` of FederatedNMF"):
        model.fit([one, two])


def test_numbers_as_labels_of_columns_are_names() -> None:
    """Only 0 to m - 1, what pandas calls columns without names, says nothing: ids of items in another order do."""
    rng = np.random.default_rng(0)
    X, items = rng.gamma(0.5, size=(60, 3)) @ rng.gamma(0.5, size=(3, 6)), [101, 205, 318, 442, 560, 777]
    A, B = pd.DataFrame(X[:30], columns=items), pd.DataFrame(X[30:], columns=items)
    whole = FederatedNMF(3, random_state=0).fit([A, B])
    assert whole.features_ == list(map(str, items))
    turned = FederatedNMF(3, random_state=0).fit([A, B[items[::-1]]])
    np.testing.assert_allclose(turned.components_, whole.components_, atol=1e-12)
    np.testing.assert_allclose(whole.transform(B[items[::-1]]), whole.transform(B), atol=1e-12)
    with pytest.raises(DataError, match="missing '101'"):
        FederatedNMF(3).fit([A, B.set_axis(range(1, 7), axis=1)])
    assert FederatedNMF(3).fit([pd.DataFrame(X)]).features_ is None


def test_a_column_of_dates_is_named_like_one_of_text() -> None:
    frame = pd.DataFrame(np.ones((4, 2)), columns=["a", "b"]).assign(visit=pd.date_range("2024", periods=4))
    with pytest.raises(DataError, match=r"client 0: expected numbers, found others in the columns 'visit'; drop them"):
        FederatedNMF(2).fit([frame])


def test_chunks_of_a_dask_array_are_no_clients_of_a_private_fit() -> None:
    """One row less moves rows from chunk to chunk: every message would change, and has the noise for one row."""
    X = dask.array.ones((20, 3), chunks=(5, 3))
    with pytest.raises(CofactorError, match="cut out of one file"):
        FederatedNMF(2, privacy=Privacy(1, 1e-3), engine=Dask(scheduler="tcp://127.0.0.1:9")).fit(X)


@pytest.mark.parametrize("wrap", [lambda v: [v], lambda v: (v, v), lambda v: [pd.Series(v)]])
def test_a_client_of_one_dimension_is_refused(wrap):
    """A column of a matrix was taken for a row, and a list of them for one client."""
    X = np.random.default_rng(0).uniform(size=(6, 3))
    words = r"expected a matrix \(rows x features\), found 1 dimension"
    for estimator in (FederatedNMF(1), FederatedKMeans(1)):
        with pytest.raises(DataError, match=words):
            estimator.fit(wrap(X[:, 0]))
        with pytest.raises(DataError, match=words):
            estimator.fit(X).transform(wrap(X[0]))


def test_lists_of_numbers_are_the_rows_of_one_client_as_for_scikit_learn():
    model = FederatedNMF(1, random_state=0).fit([[1.0, 2], [3, 4], [5, 6]])
    assert [W.shape for W in model.codes_] == [(3, 1)]


def test_a_feature_that_hides_the_others_by_its_scale_is_named():
    X = np.random.default_rng(0).gamma(0.5, size=(60, 12))
    X[:, 3] *= 1e6
    with pytest.warns(UserWarning, match=r"nothing is made of components .* Feature 3 is so much larger"):
        FederatedNMF(4, method="fnmf-lap-rho", random_state=0).fit(np.split(X, 3))


def test_a_list_of_shops_is_refused_with_what_to_do():
    R = sparse.random(20, 8, 0.4, "csr", rng=0)
    with pytest.raises(DataError, match=r"as one matrix, found a list of 2; use scipy.sparse.vstack, and groups"):
        FederatedMF(2).fit([R, R])


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA, pd.NaT])
def test_names_that_are_missing_are_told_not_taken_for_names(missing):
    """A user without a name became the user 'nan', and rows without a label the client '<NA>'."""
    named = pd.DataFrame({"user": ["a", "b", "a"], "item": ["x", "x", "y"], "rating": [1.0, 2.0, 3.0]}).astype(object)
    named["rating"] = named["rating"].astype(float)
    for column, what in (("user", "user"), ("item", "item")):
        holed = named.copy()
        holed.loc[1, column] = missing
        with pytest.raises(DataError, match=f"expected one {what} for every rating, found 1 without"):
            FederatedMF(1).fit(holed)
    with pytest.raises(CofactorError, match="expected a label for every row, found 1 rows without"):
        fit(X, groups=pd.Series(["a"] * 15 + ["b"] * 14 + [missing], dtype=object))


def test_a_lazy_frame_of_polars_is_read():
    frame = polars.DataFrame(X, schema=[f"f{i}" for i in range(X.shape[1])])
    model = FederatedNMF(2, random_state=0).fit([frame.lazy(), frame.lazy()])
    np.testing.assert_array_equal(model.components_, FederatedNMF(2, random_state=0).fit([frame, frame]).components_)
    assert FederatedNMF(2, random_state=0).fit(frame.lazy()).features_ == frame.columns
    np.testing.assert_array_equal(model.transform(frame.lazy()), model.transform(frame))


def test_text_in_new_rows_is_named_by_its_column():
    frame = pd.DataFrame(X, columns=[f"f{i}" for i in range(X.shape[1])])
    model = FederatedNMF(2, random_state=0).fit([frame])
    for held, name in ((frame.assign(f1="x"), "f1"), (frame.assign(visit="first"), "visit")):
        with pytest.raises(DataError, match=f"found others in the columns '{name}'; drop them.$"):
            model.transform(held)


def test_missing_values_of_nullable_and_sparse_columns_are_told_as_such():
    bits = pd.DataFrame({"a": pd.array([True, False, None, True], dtype="boolean"), "b": [1, 0, 1, 1]})
    for held in (bits, [bits]):
        with pytest.raises(DataError, match="expected zeros and ones, found 1 NaN or infinity; fill or drop them"):
            FederatedBMF(1).fit(held)
    holed = np.where(np.arange(X.size).reshape(X.shape) % 5 == 0, np.nan, X)
    gaps = pd.DataFrame({f"f{i}": pd.arrays.SparseArray(column, fill_value=np.nan) for i, column in enumerate(holed.T)})
    with pytest.raises(DataError, match="NaN: expected finite values >= 0"):
        FederatedNMF(2).fit(gaps)
    found, like = (FederatedNMF(2, method="exact-gaps", rounds=3, tol=0, random_state=0).fit(A) for A in (gaps, holed))
    np.testing.assert_allclose(found.components_, like.components_, atol=1e-4)  # frames are read in double precision
