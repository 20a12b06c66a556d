"""Features are matched by name: the same column means the same feature at every client."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from cofactor.data import harmonise, load
from cofactor.data.load import Table
from cofactor.types import CofactorError, DataError


def table(names, *, source="a.csv", width=None):
    names = None if names is None else list(names)
    X = np.arange(2.0 * (width or len(names))).reshape(2, -1)
    return Table(X, names, source=source)


LISTS = st.lists(st.lists(st.sampled_from("abcdefgh"), min_size=1, unique=True), min_size=1, max_size=4)


@given(LISTS)
def test_intersection_selects_the_same_features_everywhere(lists):
    shared = set.intersection(*map(set, lists))
    tables = [table(names) for names in lists]
    if not shared:
        with pytest.raises(DataError, match="found none"):
            harmonise.match(tables)
        return
    found = harmonise.match(tables)
    assert set(found.feature_names) == shared
    assert found.n_features == len(shared)
    for j, names in enumerate(lists):
        assert [names[i] for i in found.columns[j]] == found.feature_names
        np.testing.assert_array_equal(found.select(tables[j].X, j), tables[j].X[:, found.columns[j]])
        assert found.present(j).all()


@given(LISTS)
def test_union_places_every_column(lists):
    tables = [table(names) for names in lists]
    found = harmonise.match(tables, "union")
    assert set(found.feature_names) == set().union(*lists)
    assert len(set(found.feature_names)) == found.n_features
    for j, names in enumerate(lists):
        assert [found.feature_names[i] for i in found.columns[j]] == names
        assert found.select(tables[j].X, j) is tables[j].X
        assert {found.feature_names[i] for i in np.flatnonzero(found.present(j))} == set(names)


def test_order_is_that_of_the_first_client():
    found = harmonise.match([table("cab"), table("bcd")], "union")
    assert found.feature_names == list("cabd")
    assert [c.tolist() for c in found.columns] == [[0, 1, 2], [2, 0, 3]]
    assert harmonise.match([table("cab"), table("bcd")]).feature_names == ["c", "b"]


def test_same_reorders_or_refuses():
    found = harmonise.match([table("abc"), table("cab")], "same")
    assert [c.tolist() for c in found.columns] == [[0, 1, 2], [1, 2, 0]]
    with pytest.raises(
        DataError, match=r"b.csv: .* features of a.csv, found missing 'c' and additional 'd', 'e', 'f' and 1"
    ):
        harmonise.match([table("abc"), table("abdefg", source="b.csv")], "same")


@pytest.mark.parametrize("how", ["intersection", "union", "same", "position"])
def test_tables_without_names_agree_in_number(how):
    found = harmonise.match([table(None, width=4), table(None, width=4)], how)
    assert (found.feature_names, found.n_features) == (None, 4)
    assert found.present(1).all()
    with pytest.raises(DataError, match=r"b.npy: expected 4 features as in a.csv, found 5"):
        harmonise.match([table(None, width=4), table(None, width=5, source="b.npy")], how)


def test_names_at_some_clients_only():
    mixed = [table(None, width=2, source="a.npy"), table("xy")]
    with pytest.raises(DataError, match=r"a.npy: expected feature names as in a.csv, found none; .* by position"):
        harmonise.match(mixed)
    assert harmonise.match(mixed, "position").feature_names == ["x", "y"]


def test_duplicates():
    with pytest.raises(DataError, match=r"b.csv: .* distinct feature names, found 'x' in columns 1 and 3"):
        harmonise.match([table("xy"), table("xyx", source="b.csv")])
    assert harmonise.match([table("xyx"), table("xyx")]).feature_names == list("xyx")
    assert harmonise.match([table("xyx")]).feature_names == list("xyx")
    for found in ("xyx", "xyzx"):
        with pytest.raises(DataError, match=r"a.csv: .* distinct feature names, found 'x' in columns 1 and"):
            harmonise.onto(table(found), list("zyx"), lacking=True, others=True)


def test_empty_intersection_shows_examples_and_near_misses():
    with pytest.raises(DataError, match=r"found none \(a.csv: 'TP53', 'A'; b.csv: 'x', 'y', 'z' and 1 more\)\.$"):
        harmonise.match([table(["TP53", "A"]), table("xyzw", source="b.csv")])
    with pytest.raises(DataError, match=r"differ only in case or spaces \('TP53' and 'Tp53 ' and 1 more pair"):
        harmonise.match([table(["TP53", "A"]), table(["Tp53 ", "a"], source="b.csv")])


def test_near_misses_are_noted_but_not_between_features_of_one_client():
    assert "'TP53' and 'tp53'" in harmonise.match([table(["TP53", "A"]), table(["tp53", "A"])]).note
    assert harmonise.match([table("aAb"), table("aAc")]).note == ""
    assert harmonise.match([table("ab"), table("bxX"), table("bX")], "union").note == ""


def test_versions_of_gene_ids_are_near_misses():
    plain, versioned = table(["ENSG01", "ENSG02"]), table(["ENSG01.4", "ENSG02.11"], source="b.h5ad")
    for how in ("same", "intersection"):
        with pytest.raises(DataError, match=r"version of a gene id \('ENSG01' and 'ENSG01.4' and 1 more"):
            harmonise.merged([plain, versioned], how)
    assert harmonise.match([table(["v0", "a"]), table(["v0.1", "a"])]).note == ""


@pytest.mark.parametrize("how", ["union", "intersection"])
def test_near_misses_are_warned_of_where_features_are_left_apart(how):
    tables = [table(["TP53", "x"]), table(["tp53", "x"])]
    with pytest.warns(UserWarning, match=r"differ only in case or spaces \('TP53' and 'tp53'\)"):
        harmonise.merged(tables, how)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        harmonise.merged([table("xy"), table("yxz")], how)


def test_a_union_without_a_link_is_refused_and_one_through_a_third_is_not():
    a, b, between = table("ab"), table("cd", source="b.csv"), table("bc")
    with pytest.raises(DataError, match=r"b.csv: expected a feature in common with a.csv.* Compare the names\."):
        harmonise.merged([a, b], "union")
    assert harmonise.merged([a, b, between], "union")[0] == list("abcd")


@pytest.mark.parametrize("kind", ["dense", "csr", "blocks"])
def test_select_of_every_kind(tmp_path, kind):
    X = np.arange(12.0).reshape(3, 4)
    np.save(tmp_path / "x.npy", X)
    data = {"dense": X, "csr": sparse.csr_matrix(X), "blocks": load.read(tmp_path / "x.npy", blocks=True).X}[kind]
    found = harmonise.match([table("dxb"), Table(data, list("abcd"))])
    chosen = found.select(data, 1)
    assert type(chosen) is type(data)
    dense = chosen.load() if kind == "blocks" else chosen.toarray() if kind == "csr" else chosen
    np.testing.assert_array_equal(dense, X[:, [3, 1]])


def test_bad_arguments():
    with pytest.raises(CofactorError, match=r"how must be one of intersection, union, same, position. Found 'outer'"):
        harmonise.match([table("a")], "outer")
    with pytest.raises(CofactorError, match="at least one table"):
        harmonise.match([])
