"""Laws of every kind of data: errors add up over rows and are what their definition says; other data are refused."""

import numpy as np
import pytest
from scipy import sparse
from tests.helpers.methods import KIND, NAMES, case, change, data, dense

from cofactor import kinds, run
from cofactor.local import arrays
from cofactor.types import DataError

DEFAULT = {
    **{"real": "exact", "gaps": "exact-gaps", "boolean": "boolean-exact", "ratings": "exact-als"},
    **{"clusters": "k-means", "blocks": "hals"},
}
EVERY = pytest.mark.parametrize("kind", list(DEFAULT))


def fitted(kind):
    """Return the kind, a method, and a client's rows with codes and factor."""
    _, method, Xs = case(DEFAULT[kind])
    result = run(method, Xs, rounds=5)
    return kinds.named(kind), method, Xs[0], result.codes[0], result.factor


def test_every_kind_is_here_and_every_method_is_of_one():
    assert set(DEFAULT) == set(kinds.KINDS)
    assert {method.traits.kind for _, method, _ in map(case, NAMES)} == set(kinds.KINDS)


@EVERY
def test_tallies_add_up_over_rows(kind):
    held, method, X, W, H = fitted(kind)
    X = X.row_block if kind == "blocks" else X
    parts = [(arrays.rows(X, index), W[index]) for index in np.array_split(np.arange(len(W)), 3)]
    whole = held.tally(method, X, W, H)
    assert whole.ndim == 1
    np.testing.assert_allclose(sum(held.tally(method, x, w, H) for x, w in parts), whole, rtol=1e-9)


def definition(kind, A, W, H):
    """Return the relative error and the error in the unit of the data, from dense matrices."""
    if kind == "boolean":
        wrong = (W.astype(int) @ H > 0) != A
        return wrong.sum() / A.sum(), np.sqrt(wrong.mean())
    rest = A - W @ H  # corners of the simplex pick the centre of a row
    if kind == "ratings":
        rest = rest[A > 0]
        return np.linalg.norm(rest) / np.linalg.norm(A[A > 0]), np.sqrt(np.mean(rest**2))
    if kind == "gaps":
        rest, A = rest[~np.isnan(A)], A[~np.isnan(A)]
    return np.linalg.norm(rest) / np.linalg.norm(A), np.sqrt(np.mean(rest**2))


@EVERY
def test_scores_are_what_their_definition_says(kind):
    held, method, X, W, H = fitted(kind)
    score = held.score(held.tally(method, X, W, H))
    assert (score.error, score.rmsd) == pytest.approx(definition(kind, dense(X), W, H))
    assert 0 < score.error < 1


@EVERY
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_no_numbers_are_refused_with_the_client(kind, value):
    def spoil(A):
        A = A.copy()
        (A.data if sparse.issparse(A) else A).flat[3] = value
        return A

    spoiled = change(data(kind)[0], spoil)
    if kind == "gaps" and np.isnan(value):
        np.testing.assert_array_equal(kinds.named(kind).check(spoiled, client=7), spoiled)
        return
    with pytest.raises(DataError, match=r"client 7: .*(NaN|[Ii]nfinite|infinity)"):
        kinds.named(kind).check(spoiled, client=7)


@EVERY
def test_negative_values_are_refused_but_for_clusters(kind):
    X = change(data(kind)[0], lambda A: -abs(A))
    if kind == "clusters":
        np.testing.assert_array_equal(kinds.named(kind).check(X, client=7), X)
    else:
        with pytest.raises(DataError, match="client 7"):
            kinds.named(kind).check(X, client=7)


@pytest.mark.parametrize(
    ("kind", "X", "words"),
    [
        ("boolean", 0.5 * np.eye(3), "Found 0.5 in row 0, column 0 at client 7"),
        ("ratings", np.eye(3), "stored entries are the observed ones, found ndarray"),
        ("blocks", np.eye(3), "expected a row block and a column block, found ndarray"),
    ],
)
def test_what_is_of_another_kind_is_refused(kind, X, words):
    with pytest.raises(DataError, match=words):
        kinds.named(kind).check(X, client=7)


@EVERY
def test_good_data_pass_and_are_checked_once(kind):
    Xs = data(kind)
    checked = kinds.check(kinds.named(kind), Xs)
    assert kinds.check(kinds.named(kind), checked) is checked
    for X, found in zip(Xs, checked, strict=True):
        np.testing.assert_array_equal(dense(found), dense(X))


@pytest.mark.parametrize("name", NAMES)
def test_a_run_checks_data_as_its_kind_says(name):
    """Whatever the method: the kind that its traits name is the one that refuses."""
    _, method, Xs = case(name)
    assert method.traits.kind == {"private": "real"}.get(KIND[name], KIND[name])
    Xs[1] = change(Xs[1], lambda A: A * (-1 if KIND[name] == "gaps" else np.nan))
    with pytest.raises(DataError, match="client 1"):
        run(method, Xs, rounds=5)
