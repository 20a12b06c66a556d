"""Bad data: one clear error each, that names the client, what was expected, what was found and where."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from cofactor import FederatedNMF, Privacy, kinds, run, select_rank
from cofactor.data import load
from cofactor.engines.team import told_of
from cofactor.kinds.numbers import NON_NEGATIVE
from cofactor.local import arrays, devices
from cofactor.methods import catalog
from cofactor.types import CofactorError, DataError


def with_cell(value, row=3, column=1):
    X = np.ones((5, 4))
    X[row, column] = value
    return X


def assert_says(error, *words):
    """Every word is in the message, in any order and case."""
    text = str(error.value).lower()
    assert [w for w in words if w.lower() not in text] == []


BAD_CELLS = {"NaN": np.nan, "infinite": np.inf, "negative": -0.5}
KINDS = {
    "dense": np.asarray,
    "float32": np.float32,
    "fortran": np.asfortranarray,
    "csr": sparse.csr_matrix,
    "csc": sparse.csc_matrix,
    "coo": sparse.coo_matrix,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", BAD_CELLS)
def test_bad_cell_is_named_with_client_count_and_position(name, kind):
    X = KINDS[kind](with_cell(BAD_CELLS[name]))
    with pytest.raises(DataError) as error:
        arrays.check(X, client=7)
    assert_says(error, "client 7", name, "expected finite values >= 0", "found 1 ", "row 3, column 1")


def test_minus_infinity_is_refused():
    with pytest.raises(DataError) as error:
        arrays.check(with_cell(-np.inf))
    assert_says(error, "infinite", "found 1 ")


def test_all_bad_cells_are_counted():
    X = with_cell(-1)
    X[4] = -2
    with pytest.raises(DataError) as error:
        arrays.check(X)
    assert_says(error, "negative", "found 5 ", "the first at row 3, column 1")


def test_sparse_position_is_right_behind_empty_rows():
    X = sparse.lil_matrix((9, 6))
    X[1, 2], X[6, 4] = 1.0, -1.0
    for kind in ("csr", "csc"):
        with pytest.raises(DataError, match="row 6, column 4"):
            arrays.check(X.asformat(kind))


SHAPES = {
    "one dimension": (np.ones(4), r"client 2: expected a matrix .* found 1 dimension"),
    "three dimensions": (np.ones((2, 2, 2)), r"client 2: expected a matrix .* found 3 dimension"),
    "a number": (np.float64(3), r"client 2: expected a matrix .* found 0 dimension"),
    "no rows": (np.ones((0, 4)), r"client 2: expected at least one row, found .*\(0, 4\)"),
    "no rows, sparse": (sparse.csr_matrix((0, 4)), r"client 2: expected at least one row, found .*\(0, 4\)"),
    "no features": (np.ones((3, 0)), r"client 2: expected at least one feature, found .*\(3, 0\)"),
    "objects": (np.full((3, 4), "a", dtype=object), r"client 2: expected numbers, found dtype object"),
    "strings": (np.full((3, 4), "a"), r"client 2: expected numbers, found dtype"),
    "complex": (np.ones((3, 4), complex), r"client 2: expected numbers, found dtype complex128"),
    "fewer features": (np.ones((3, 3)), r"client 2: expected 4 features like client 0, found 3"),
    "more features": (sparse.csr_matrix(np.ones((3, 5))), r"client 2: expected 4 features like client 0, found 5"),
}


@pytest.mark.parametrize("name", SHAPES)
def test_bad_shape_or_type_is_named_with_the_client(name):
    X, message = SHAPES[name]
    with pytest.raises(DataError, match=message):
        run(catalog.make("exact", 2), [np.ones((3, 4)), np.ones((2, 4)), X])


def test_no_clients_is_an_error():
    with pytest.raises(DataError, match="expected at least one client, found an empty list"):
        run(catalog.make("exact", 2), [])


@pytest.mark.parametrize("made", [np.asarray, sparse.csr_matrix, pd.DataFrame])
def test_one_matrix_is_no_list_of_clients(made):
    """Its rows were taken for clients, or its columns, or its length was asked for."""
    for asked in (lambda X: run(catalog.make("exact", 2), X), select_rank):
        with pytest.raises(DataError, match=r"one for each client, found one matrix \(3, 4\); put it in a list"):
            asked(made(np.ones((3, 4))))


def test_one_rank_is_no_scan():
    with pytest.raises(CofactorError, match=r"ranks: expected several, as range\(2, 4\), found 3"):
        select_rank([np.ones((6, 4))], 3)


def test_data_errors_are_value_errors():
    assert issubclass(DataError, CofactorError)
    assert issubclass(CofactorError, ValueError)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (np.float32, np.float32),
        (np.float64, np.float64),
        (np.float16, np.float32),
        (np.uint8, np.float32),
        (np.int16, np.float32),
        (bool, np.float32),
        (np.int32, np.float64),
        (np.int64, np.float64),
        (np.uint64, np.float64),
    ],
)
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, sparse.csc_matrix])
def test_floats_are_kept_and_integers_become_the_smallest_exact_float(given, kept, kind):
    if given is np.float16 and kind is not np.asarray:
        given, kept = np.int8, np.float32
    X = arrays.check(kind(np.array([[0, 1], [1, 1]], dtype=given)))
    assert X.dtype == kept
    np.testing.assert_array_equal(X.toarray() if sparse.issparse(X) else X, [[0, 1], [1, 1]])


def test_lists_are_accepted_and_good_data_are_not_copied():
    X = np.ones((3, 4))
    assert arrays.check(X) is X
    assert arrays.check([[1.0, 2.0]]).shape == (1, 2)
    S = sparse.csc_matrix(X)
    assert arrays.check(S) is S


def test_clients_of_different_precision_share_the_widest():
    clients = [np.ones((2, 3), np.float32), np.ones((2, 3)), sparse.csr_matrix(np.ones((2, 3), np.uint8))]
    data = kinds.check(NON_NEGATIVE, clients)
    assert {X.dtype for X in data} == {np.dtype(np.float64)}


def test_what_was_checked_once_is_not_checked_again():
    data = kinds.check(NON_NEGATIVE, [np.ones((2, 3))])
    data[0][0, 0] = np.nan  # nobody looks
    assert kinds.check(NON_NEGATIVE, data) is data
    with pytest.raises(DataError, match="client 0: NaN"):
        kinds.check(NON_NEGATIVE, list(data))


def test_sparse_matrix_of_zeros_is_good_data():
    assert arrays.check(sparse.csr_matrix((3, 4))).nnz == 0
    assert arrays.square(sparse.csr_matrix((3, 4))) == 0


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, sparse.csc_matrix])
def test_rows_and_stack_are_numpys(kind, rng):
    X = rng.uniform(size=(6, 4))
    stacked = arrays.stack([kind(X[:2]), kind(X[2:])])
    for found, expected in ((stacked, X), (arrays.rows(kind(X), np.array([4, 1])), X[[4, 1]])):
        np.testing.assert_array_equal(found.toarray() if sparse.issparse(found) else found, expected)
        assert sparse.issparse(found) == (kind is not np.asarray)


def test_inner_products_are_accumulated_in_double_precision(rng):
    a, b = (rng.uniform(size=(3000, 70)).astype(np.float32) for _ in range(2))
    assert arrays.inner(a, b) == pytest.approx(float(np.sum(a.astype(float) * b)), rel=1e-13)
    assert arrays.inner(a[:, 0], b[:, 0]) == pytest.approx(float(np.sum(a[:, 0].astype(float) * b[:, 0])), rel=1e-13)


@pytest.mark.parametrize("scale", [2.0**-83, 2.0**60])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_tiny_and_huge_values_of_float32_give_the_errors_of_the_same_data_at_another_scale(scale, form, rng):
    """At 1e-25 squares vanish in float32: an error of 0 was reported, and it was 0.42."""
    X = (rng.uniform(size=(30, 8)) * (rng.uniform(size=(30, 8)) < 0.7)).astype(np.float32)
    plain, scaled = (FederatedNMF(2, random_state=0).fit([form(x) for x in np.split(Y, 3)]) for Y in (X, X * scale))
    assert scaled.reconstruction_err_ == pytest.approx(plain.reconstruction_err_, rel=1e-3)
    np.testing.assert_allclose(scaled.components_, plain.components_, atol=1e-3)
    assert plain.components_.dtype == np.float32
    assert arrays.check((X * scale).astype(np.float32)).dtype == np.float64
    assert arrays.check(np.zeros((2, 3), np.float32)).dtype == np.float32


@pytest.mark.parametrize("size", [1e-170, 1e-141, 1e141, 1e300])
@pytest.mark.parametrize("form", ["dense", "csr", "blocks", "tensor"])
def test_values_whose_squares_are_no_numbers_are_refused(size, form, rng, tmp_path):
    """At 1e-170 an error of 0 was reported, whatever it was; at 1e160 a gram that is not finite."""
    X = size * rng.uniform(0.5, 1, size=(6, 4))
    if form == "blocks":
        np.save(tmp_path / "x.npy", X)
        held = load.read(str(tmp_path / "x.npy"), blocks=True).X
    elif form == "tensor":
        pytest.importorskip("torch")
        held = devices.place(X, "cpu")
    else:
        held = KINDS[form](X)
    with pytest.raises(DataError) as error:
        arrays.check(held, client=7)
    assert_says(error, "client 7", "from 1e-140 to 1e+140", f"found {X.max():.3g}", "another unit")
    assert ("or as 0" in str(error.value)) == (size < 1)


@pytest.mark.parametrize("exponent", [-135, 135])
def test_errors_are_true_as_far_as_values_are_taken(exponent, rng):
    X = rng.uniform(size=(30, 8))
    for parts in ([X], [X[:12], X[12:]]):
        plain, scaled = (FederatedNMF(2, random_state=0).fit([s * Y for Y in parts]) for s in (1.0, 10.0**exponent))
        assert scaled.reconstruction_err_ == pytest.approx(plain.reconstruction_err_, rel=1e-6)


@pytest.mark.parametrize(("beta", "exponent"), [(1, -30), (2, -30), (3, 100)])
def test_divergences_say_which_sizes_they_take(beta, exponent, rng):
    """Model cells are kept above 1e-30: data of that size were explained by nothing, and nobody said so."""
    X = 10.0**exponent * rng.uniform(size=(30, 8))
    with pytest.raises(DataError, match=f"a divergence of beta = {beta}, found about .*another unit"):
        run(catalog.make("exact-gaps", rank=2, beta=beta), [X])


def test_what_lies_under_a_mask_is_no_data() -> None:
    X = np.ma.masked_array(np.ones((8, 4)), mask=np.eye(8, 4, dtype=bool))
    with pytest.raises(DataError, match="client 0: expected all values, found masked ones"):
        run(catalog.make("exact", rank=2), [X])
    with pytest.raises(ValueError, match="NaN"):
        FederatedNMF(2).fit([X])
    seen = FederatedNMF(2, method="exact-gaps", random_state=0).fit([X, np.ones((4, 4))])
    filled = FederatedNMF(2, method="exact-gaps", random_state=0).fit([X.filled(np.nan), np.ones((4, 4))])
    np.testing.assert_array_equal(seen.components_, filled.components_)
    whole = np.ma.masked_array(np.ones((8, 4)), mask=False)
    assert FederatedNMF(1).fit([whole]).reconstruction_err_ < 1e-6


@pytest.mark.parametrize("stored", ["in order", "unsorted", "twice"])
@pytest.mark.parametrize("form", [sparse.csr_matrix, sparse.csc_matrix])
def test_gaps_of_sparse_rows_stay_in_their_cells_however_they_are_stored(form, stored):
    X = np.array([[1, np.nan, 0, 3], [0, 2, np.nan, 0], [np.nan, 0, 4, 5]])
    M = form(X)
    if stored == "twice":  # every cell as two halves; one half of a gap is a number
        halves = np.column_stack([M.data / 2, np.nan_to_num(M.data / 2)]).ravel()
        M = form((halves, np.repeat(M.indices, 2), M.indptr * 2), shape=X.shape)
    if stored == "unsorted":
        for own in (slice(*pair) for pair in zip(M.indptr[:-1], M.indptr[1:], strict=True)):
            M.indices[own], M.data[own] = M.indices[own][::-1].copy(), M.data[own][::-1].copy()
        M.has_sorted_indices = False
    before = M.data.copy()
    np.testing.assert_array_equal(kinds.check_one(kinds.GAPPED, M, 0).toarray(), X)
    np.testing.assert_array_equal(M.data, before)  # what a user holds stays as it is


@pytest.mark.parametrize("kind", ["real", "gaps", "boolean", "ratings", "clusters"])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_what_a_private_run_finds_in_data_is_told_to_their_client_alone(kind, form):
    """The domain is declared; where data leave it, how often and with what value is as exact as any other cell."""
    with pytest.raises(DataError) as own:
        kinds.check(kind, [form(with_cell(-np.inf))], clients=["north"], features=list("abcd"), private=True)
    assert own.value.told.startswith("client north: expected data of the declared kind")
    assert told_of(own.value) == own.value.told
    assert not any(word in own.value.told for word in ("row", "column", "inf", "cell", "3", "1"))
    with pytest.raises(DataError) as plain:
        kinds.check(kind, [form(with_cell(-np.inf))], clients=["north"], features=list("abcd"))
    assert (plain.value.told, str(plain.value)) == (None, str(own.value))


@pytest.mark.parametrize("value", [1e200, 1e-200, 1.7e308, 5e-324])
def test_a_private_run_takes_finite_values_of_any_size(value):
    """Whether it ends must not depend on a row; sums of squares are never made of more than its bounds."""
    X = np.random.default_rng(0).random((40, 6))
    X[3] = value
    for data in (X, np.full((40, 6), value)):
        np.testing.assert_array_equal(kinds.check_one(NON_NEGATIVE, data, 0, private=True), data)
        FederatedNMF(2, privacy=Privacy(1, 1e-6), random_state=0).fit([data, X[4:].copy()])
