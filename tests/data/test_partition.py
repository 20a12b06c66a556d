"""Every partitioner deals out all rows, once, and leaves no client empty."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from cofactor import FederatedNMF
from cofactor.data import partition
from cofactor.types import CofactorError, DataError

LABELS = np.repeat(np.arange(10), 50)

PARTITIONERS = {
    "iid": lambda labels, clients, seed: partition.iid(len(labels), clients, seed=seed),
    "dirichlet": lambda labels, clients, seed: partition.dirichlet(labels, clients, seed=seed),
    "dirichlet_skewed": lambda labels, clients, seed: partition.dirichlet(labels, clients, alpha=0.01, seed=seed),
    "sizes": lambda labels, clients, seed: partition.sizes(
        len(labels), [0.5] + [0.5 / (clients - 1)] * (clients - 1) if clients > 1 else [1.0], seed=seed
    ),
    "sorted_by": lambda labels, clients, seed: partition.sorted_by(labels, clients),
    "by_group": lambda labels, clients, seed: list(partition.by_group(labels).values()),
}
RANDOM = ["iid", "dirichlet", "sizes"]


@pytest.mark.parametrize("name", PARTITIONERS)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.data(), st.integers(0, 2**40))
def test_parts_are_sorted_disjoint_and_cover_all_rows(name, labels, data, seed):
    clients = data.draw(st.integers(1, len(labels)))
    parts = PARTITIONERS[name](labels, clients, seed)
    assert len(parts) == (len(set(labels)) if name == "by_group" else clients)
    assert all(len(part) and (np.diff(part) > 0).all() for part in parts)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(len(labels)))


@pytest.mark.parametrize("name", RANDOM)
def test_same_seed_same_parts(name):
    first, again, other = (PARTITIONERS[name](LABELS, 5, seed) for seed in (3, 3, 4))
    assert all(np.array_equal(a, b) for a, b in zip(first, again))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other))


def test_iid_sizes_differ_by_at_most_one():
    assert sorted(map(len, partition.iid(23, 5))) == [4, 4, 5, 5, 5]


def classes_per_client(alpha):
    parts = partition.dirichlet(LABELS, 10, alpha=alpha)
    return np.mean([len(np.unique(LABELS[part])) for part in parts])


def test_small_alpha_skews_labels_and_large_alpha_does_not():
    assert classes_per_client(0.05) < 4
    assert classes_per_client(100.0) > 9.5


def test_dirichlet_takes_names_as_labels():
    names = np.array(list("abcdefghij"))
    for a, b in zip(partition.dirichlet(LABELS, 4), partition.dirichlet(names[LABELS], 4)):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("shares", [[0.5, 0.3, 0.2], [50, 30, 20], np.array([50, 30, 20])])
def test_sizes_take_fractions_and_counts(shares):
    assert [len(part) for part in partition.sizes(100, shares)] == [50, 30, 20]


def test_a_tiny_share_still_gets_a_row():
    assert [len(part) for part in partition.sizes(10, [0.998, 0.001, 0.001])] == [8, 1, 1]


def test_sorted_by_gives_each_client_few_labels():
    shuffled = np.random.default_rng(0).permutation(LABELS)
    for j, part in enumerate(partition.sorted_by(shuffled, 5)):
        assert set(shuffled[part]) == {2 * j, 2 * j + 1}


@pytest.mark.parametrize(
    "labels", [[1.0, np.nan], ["a", None], pd.Categorical(["a", None]), ["a", ""], np.array(["a", " "], object)]
)
def test_rows_without_a_label_are_no_client(labels):
    with pytest.raises(DataError, match="expected a label for every row, found rows without"):
        partition.by_group(labels)


def test_by_group_is_one_client_per_name():
    groups = partition.by_group(pd.Series(["north", "south", "north"]))
    assert {name: rows.tolist() for name, rows in groups.items()} == {"north": [0, 2], "south": [1]}


def test_dates_and_mixed_labels():
    days = pd.to_datetime(["2024-05-31", "2023-01-02", "2024-05-31"])
    assert list(partition.by_group(days)) == ["2023-01-02", "2024-05-31"]
    assert "2023-01-02T03:00:00" in partition.by_group(days + pd.Timedelta(hours=3))
    mixed = np.array([1, "a", 1], dtype=object)
    with pytest.raises(DataError, match="expected labels of one kind, found int and str; make texts of all of them"):
        FederatedNMF(1).fit(np.ones((3, 2)), groups=mixed)
    assert FederatedNMF(1).fit(np.ones((3, 2)), groups=days).clients_ == ["2023-01-02", "2024-05-31"]


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, sparse.csc_matrix, sparse.coo_array, list])
def test_split_returns_the_rows(kind):
    X = np.arange(12.0).reshape(6, 2)
    blocks = partition.split(kind(X), [np.array([0, 5]), np.array([1, 2, 3, 4])])
    dense = [block.toarray() if sparse.issparse(block) else block for block in blocks]
    np.testing.assert_array_equal(dense[0], X[[0, 5]])
    np.testing.assert_array_equal(dense[1], X[1:5])
    assert all(block.format == "csr" for block in blocks if sparse.issparse(block))


def test_split_keeps_data_frames_and_takes_groups():
    frame = pd.DataFrame({"a": [1, 2, 3]}, index=[7, 8, 9])
    first, second = partition.split(frame, partition.by_group(["x", "y", "x"]))
    assert first["a"].tolist() == [1, 3]
    assert second.index.tolist() == [8]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: partition.iid(3, 4), r"clients must be in 1\.\.3 .*Found 4\. Use fewer"),
        (lambda: partition.iid(3, 0), "Found 0"),
        (lambda: partition.dirichlet([0, 1], 3), "Found 3"),
        (lambda: partition.dirichlet([0, 1], 2, alpha=0), "alpha must be a positive number. Found 0"),
        (lambda: partition.dirichlet([[0, 1]], 1), r"one value per row. Found shape \(1, 2\)"),
        (lambda: partition.by_group([]), "Found shape"),
        (lambda: partition.by_group(np.array(["a", None], dtype=object)), "Fill missing labels"),
        (lambda: partition.sorted_by([0, 1], 3), "Found 3"),
        (lambda: partition.sizes(10, [0.5, 0.4]), "n = 10. Found a sum of 0.9. Divide"),
        (lambda: partition.sizes(10, [5, 4]), "Found a sum of 9"),
        (lambda: partition.sizes(10, [1.5, -0.5]), "positive numbers"),
        (lambda: partition.split(np.ones((2, 2)), [np.arange(3)]), r"\(0\.\.1\). Found row 2"),
    ],
)
def test_errors_say_what_was_found_and_what_to_do(call, text):
    with pytest.raises(DataError, match=text) as caught:
        call()
    assert isinstance(caught.value, CofactorError)
