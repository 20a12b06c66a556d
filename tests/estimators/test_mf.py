"""FederatedMF: predictions, recommendations, fallbacks, splits, ranking, and what is wrong with the input."""

from contextlib import contextmanager
from dataclasses import asdict

import numpy as np
import pandas as pd
import polars as pl
import pyarrow
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from cofactor import FederatedMF
from cofactor.data import ratings_split
from cofactor.engines.inline import Inline
from cofactor.methods import catalog
from cofactor.ratings import Layout
from cofactor.ratings.ranking import quality, top
from cofactor.types import CofactorError, DataError


@pytest.fixture(scope="module")
def R():
    """Half-star ratings of 120 users and 40 items by two planted tastes, 40 % observed; user 7 and item 4 have none."""
    draw = np.random.default_rng(0)
    X = 3 + 0.5 * draw.normal(size=(120, 1)) + 0.5 * draw.normal(size=40)
    X = X + draw.normal(size=(120, 2)) @ draw.normal(size=(2, 40)) * 0.7
    mask = draw.uniform(size=X.shape) < 0.4
    mask[7], mask[:, 4] = False, False
    values = np.clip(np.round(2 * X) / 2, 0.5, 5)
    return sparse.csr_matrix((values[mask], np.nonzero(mask)), shape=X.shape)


@pytest.fixture(scope="module")
def model(R):
    return FederatedMF(2, ridge=2.0, random_state=0, rating_range=(0.5, 5)).fit(R)


def triples(R):
    C = R.tocoo()
    return [f"u{u:03d}" for u in C.row], [f"i{i:02d}" for i in C.col], C.data


@pytest.mark.parametrize("method", catalog.names("ratings"))
def test_held_out_ratings_are_predicted_better_than_by_biases(method, R):
    train, test = ratings_split.at_random(R, seed=1)
    fitted = FederatedMF(2, method=method, ridge=2.0, rounds=200, random_state=0).fit(train)
    biases = FederatedMF(1, ridge=1e12, bias_ridge=2.0, random_state=0).fit(train)
    assert fitted.rmse(test) < 0.8 * biases.rmse(test) < np.std(test.data)


def test_groups_and_triples_give_the_model_of_one_client_per_row(R, model):
    grouped = FederatedMF(2, ridge=2.0, random_state=0, rating_range=(0.5, 5)).fit(R, groups=np.arange(120) % 7)
    np.testing.assert_allclose(grouped.codes_ @ grouped.factor_, model.codes_ @ model.factor_, atol=1e-8)
    rated = R[np.delete(np.arange(120), 7)][:, np.delete(np.arange(40), 4)]
    matrix, named = (FederatedMF(2, ridge=2.0, random_state=0).fit(data) for data in (rated, triples(R)))
    assert (len(named.users_), len(named.items_)) == (119, 39)
    np.testing.assert_array_equal(named.factor_, matrix.factor_)
    assert named.rmse(triples(R)) == pytest.approx(matrix.rmse(rated))


def test_a_column_names_the_clients_whose_sums_are_masked(R):
    u, i, x = triples(R)
    frame = pd.DataFrame({"user": u, "item": i, "rating": x, "shop": [f"s{int(name[1:]) % 3}" for name in u]})
    plain = FederatedMF(2, ridge=2.0, rounds=5, tol=0, random_state=0).fit(triples(R))
    hidden = FederatedMF(2, ridge=2.0, rounds=5, tol=0, random_state=0, secure=True).fit(frame, groups="shop")
    assert {line.participants for line in hidden.history_} == {3}
    np.testing.assert_allclose(hidden.codes_ @ hidden.factor_, plain.codes_ @ plain.factor_, atol=1e-4)
    for column, words in (("item", "in one group, found user"), ("shops", "column 'shops', found none among user")):
        with pytest.raises(DataError, match=words):
            FederatedMF(2).fit(frame, groups=column)
    with pytest.raises(CofactorError, match="sum"):
        FederatedMF(2, secure=True, options={"rated_only": True}).fit(frame, groups="shop")


@pytest.mark.parametrize("method", catalog.names("ratings"))
@pytest.mark.parametrize("biases", [True, False])
def test_users_as_clients_give_the_model_of_one_client_and_send_more(method, biases, R):
    settings = {"method": method, "biases": biases, "ridge": 2.0, "rounds": 15, "tol": 0, "random_state": 0}
    one = FederatedMF(2, **settings).fit(R)
    many = FederatedMF(2, users_as_clients=True, **settings).fit(R)
    rated = FederatedMF(2, users_as_clients=True, options={"rated_only": True}, **settings).fit(R)
    for other in (many, rated):
        np.testing.assert_allclose(other.codes_ @ other.factor_, one.codes_ @ one.factor_, atol=1e-8)
        assert {line.participants for line in other.history_} == {120}
    assert {line.participants for line in one.history_} == {1}
    last = one.history_[-1], many.history_[-1], rated.history_[-1]
    assert last[1].bytes_up == 120 * last[0].bytes_up
    assert last[1].bytes_down == 120 * last[0].bytes_down
    items = np.maximum(np.diff(R.indptr), 1).sum()  # a user without ratings names one item
    width = one.factor_.shape[0]
    assert last[2].bytes_down == 8 * width * items
    numbers = {"exact-als": one.layout_.free * (one.layout_.free + 3) // 2, "masked-fedmavg": one.layout_.free + 1}
    scalars = {"exact-als": 1, "masked-fedmavg": 2}
    assert last[2].bytes_up == (8 * numbers[method] + 4) * items + 120 * 8 * (scalars[method] + 1)


def test_absent_clients_get_the_rounds_that_they_need_and_few_rounds_are_told(R):
    half = {"ridge": 2.0, "participation": 0.2, "random_state": 0}
    groups = np.arange(120) % 10
    usual, long = (FederatedMF(2, **half, **more).fit(R, groups=groups) for more in ({}, {"rounds": 600, "tol": 0}))
    assert usual.rmse(R) <= 1.02 * long.rmse(R)
    with pytest.warns(ConvergenceWarning, match="rounds"):
        FederatedMF(2, ridge=2.0, rounds=2, random_state=0).fit(R)


def test_groups_and_users_as_clients_are_one_too_many(R):
    with pytest.raises(CofactorError, match="expected either groups or users_as_clients=True, found both"):
        FederatedMF(2, users_as_clients=True).fit(R, groups=np.arange(120) % 2)


def test_predictions_are_codes_times_factor_cut_to_the_range(model):
    full = np.clip(model.codes_ @ model.factor_, 0.5, 5)
    np.testing.assert_allclose(model.predict(3, np.arange(40)), full[3])
    np.testing.assert_allclose(model.predict(np.arange(120)[:, None], np.arange(40)), full)
    assert model.predict(3, 5).shape == ()


def test_unknown_names_fall_back_to_biases(model):
    np.testing.assert_allclose(model.predict(999, 3), model.mean_ + model.item_biases_[3])
    np.testing.assert_allclose(model.predict(3, -1), model.mean_ + model.codes_[3, 2])
    np.testing.assert_allclose(model.predict("nobody", ["nothing", "x"]), model.mean_)
    np.testing.assert_allclose(model.predict(7, 3), model.predict(999, 3))
    np.testing.assert_allclose(model.predict(3, 4), model.predict(3, -1))


def test_without_biases_unknown_names_are_zero(R):
    plain = FederatedMF(2, biases=False, random_state=0, tol=0).fit(R)
    assert plain.predict(999, 3) == plain.predict(3, 999) == plain.mean_ == 0
    assert plain.codes_.shape == (120, 2)


def test_recommendations_leave_out_seen_items_and_come_best_first(R, model):
    items = model.recommend(3, 10)
    assert not set(items) & set(R[3].indices)
    scores = (model.codes_ @ model.factor_)[3]
    assert (np.diff(scores[items]) <= 0).all()
    rest = np.setdiff1d(np.arange(40), [*items, *R[3].indices])
    assert scores[items].min() >= scores[rest].max()
    assert len(model.recommend(3, 100)) == 40 - R[3].nnz


def test_an_unknown_user_gets_the_best_rated_items(model):
    with pytest.warns(UserWarning, match=r"'new' is no user of the fit.*ratings=\{item: rating\}"):
        found = model.recommend("new", 5)
    np.testing.assert_array_equal(found, np.argsort(-model.item_biases_, kind="stable")[:5])
    np.testing.assert_array_equal(model.recommend(n=5), found)


@pytest.mark.filterwarnings("ignore:recommend")
def test_a_new_user_is_served_from_the_factor_alone(R, model):
    np.testing.assert_allclose(model.transform(R[3]), model.codes_[3:4], atol=1e-10)
    np.testing.assert_array_equal(model.recommend(None, 5, ratings=R[3]), model.recommend(3, 5))
    given = dict(zip(R[3].indices, R[3].data))
    np.testing.assert_allclose(model.transform(given), model.codes_[3:4], atol=1e-10)
    np.testing.assert_array_equal(model.recommend(n=5, ratings={**given, 999: 4.0}), model.recommend(3, 5))
    np.testing.assert_array_equal(model.recommend(given, 5), model.recommend(3, 5))
    np.testing.assert_array_equal(model.recommend(n=5, ratings={}), model.recommend("new", 5))
    with pytest.raises(DataError, match=r"user new: expected ratings in \[0.5, 5\], found 6 for item 1"):
        model.transform({1: 6.0})


def test_the_public_part_serves_a_user_elsewhere_and_holds_nothing_of_others(R, tmp_path):
    named = FederatedMF(2, ridge=2.0, random_state=0, rating_range=(0.5, 5)).fit(triples(R))
    named.save(tmp_path / "public.npz")
    with np.load(tmp_path / "public.npz") as file:
        assert all(a.ndim == 0 or 119 not in a.shape for a in file.values())
    elsewhere = FederatedMF.load(tmp_path / "public.npz")
    own = {f"i{i:02d}": value for i, value in zip(R[3].indices, R[3].data)}
    np.testing.assert_allclose(elsewhere.transform(own)[0], named.codes_[named.users_ == "u003"][0], atol=1e-10)
    np.testing.assert_array_equal(elsewhere.recommend(n=5, ratings=own), named.recommend("u003", 5))
    np.testing.assert_array_equal(elsewhere.predict("u003", named.items_), named.predict("nobody", named.items_))
    assert (elsewhere.mean_, elsewhere.rating_range, elsewhere.layout_) == (named.mean_, (0.5, 5), named.layout_)
    again = FederatedMF(2, implicit=True, alpha=3.0, random_state=0).fit(R)
    again.save(tmp_path / "clicks.npz")
    assert FederatedMF.load(tmp_path / "clicks.npz").layout_ == again.layout_


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"factor": np.ones((2, 3)), "feature_names": np.arange(3)}, "found a file without bias_ridge, biases, rank"),
        (
            {"factor": np.ones((2, 3)), "feature_names": np.arange(3), "rank": 2, "biases": True, "ridge": 1},
            "found a file without bias_ridge",
        ),
        (
            {**asdict(Layout(2)), "alpha": 1, "factor": np.ones((2, 3)), "feature_names": np.arange(3)},
            r"expected a factor of shape \(5, 3\), found \(2, 3\)",
        ),
        (None, "expected the public part of a model of ratings, found"),
    ],
)
def test_files_that_hold_no_model_are_named(arrays, words, tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, **arrays) if arrays else path.write_text("no file of numpy")
    with pytest.raises(CofactorError, match=words):
        FederatedMF.load(path)


def test_names_from_data_frames_are_found_again():
    table = pd.DataFrame({"user": ["ann", "ann", "bob"], "item": ["x", "y", "x"], "stars": [5.0, 1.0, 4.0]})
    model = FederatedMF(1, ridge=0.1, random_state=0).fit((table["user"], table["item"], table["stars"]))
    np.testing.assert_array_equal(
        model.predict(table["user"], table["item"]), model.predict(["ann", "ann", "bob"], list("xyx"))
    )
    assert model.predict("ann", "x") != model.predict("nobody", "x")
    assert model.rmse((table["user"], table["item"], table["stars"])) < 1


def test_data_frames_of_triples_are_read_by_the_names_of_their_columns(R):
    users, items, values = triples(R)
    tables = [pd.DataFrame({"rating": values, "movieId": items, "user_id": users})]
    tables.append(pl.from_pandas(tables[0]))
    named = FederatedMF(2, ridge=2.0, random_state=0).fit((users, items, values))
    for table in tables:
        model = FederatedMF(2, ridge=2.0, random_state=0).fit(table)
        np.testing.assert_array_equal(model.factor_, named.factor_)
        assert model.rmse(table) == pytest.approx(named.rmse((users, items, values)))
        np.testing.assert_array_equal(model.predict(table), named.predict(users, items))
        assert model.ranking(table).mean == named.ranking((users, items, values)).mean
    with pytest.raises(DataError, match="expected a data frame with the columns user, item, rating, found no rating"):
        named.fit(tables[0].rename(columns={"rating": "mark"}))
    with pytest.raises(DataError, match=r"one data frame of triples, found a list of 2; use pd\.concat"):
        named.fit([tables[0], tables[0]])
    with pytest.raises(DataError, match="expected a data frame with the columns user, item, found str"):
        named.predict("u003")


def test_clicks_of_a_data_frame_have_groups_by_name_and_add_up():
    """Groups by the name of a column asked for ratings, which clicks do not have."""
    clicks = pd.DataFrame({"user": list("aabbcc"), "item": list("xxxyxy"), "shop": list("mmmmnn")})
    counted = clicks.drop_duplicates().assign(rating=[2.0, 1.0, 1.0, 1.0, 1.0])
    settings = {"implicit": True, "duplicates": "sum", "rounds": 3, "tol": 0, "random_state": 0}
    models = [FederatedMF(1, **settings).fit(data, groups="shop") for data in (clicks, counted)]
    np.testing.assert_array_equal(models[0].codes_, models[1].codes_)


@pytest.mark.filterwarnings("ignore:recommend")
def test_batches_are_the_lists_of_their_users(R, model):
    batch = model.recommend([3, 5, "nobody"], 4)
    assert [best.tolist() for best in batch] == [model.recommend(u, 4).tolist() for u in (3, 5, "nobody")]
    new = model.recommend(n=4, ratings=R[[3, 5]])
    assert [best.tolist() for best in new] == [best.tolist() for best in batch[:2]]


def test_similar_items_have_the_largest_cosines(model):
    H = model.components_ / np.maximum(np.linalg.norm(model.components_, axis=0), 1e-300)
    cosines = H[:, 9] @ H
    cosines[9] = -np.inf
    np.testing.assert_array_equal(model.similar_items(9, 5), np.argsort(-cosines, kind="stable")[:5])
    assert model.similar_items([9, 4], 3)[0].tolist() == model.similar_items(9, 3).tolist()
    assert len(model.similar_items(4, 100)) == 39  # nobody rated item 4: it is like none
    with pytest.raises(CofactorError, match="expected items of the fit, found 99"):
        model.similar_items([1, 99])


def test_coverage_is_the_share_of_items_in_the_lists_of_all_users(model):
    assert model.coverage(3) == len(set(np.concatenate(model.recommend(model.users_, 3)))) / 40
    assert model.coverage(40) == 1


# implicit feedback


def clicks(seed=0):
    """How often 80 users clicked 30 items; users and items are of one of three kinds that go together."""
    draw = np.random.default_rng(seed)
    alike = (np.arange(80) % 3)[:, None] == np.arange(30) % 3
    return sparse.csr_matrix(draw.poisson(np.where(alike, 0.8, 0.05)).astype(float))


@pytest.mark.filterwarnings("ignore:recommend")
@pytest.mark.parametrize("method", catalog.names("ratings"))
def test_clicks_rank_what_goes_together_first(method):
    train, test = ratings_split.at_random(clicks(), seed=1)
    model = FederatedMF(3, method=method, implicit=True, alpha=5.0, ridge=1.0, rounds=100, random_state=0).fit(train)
    popular = np.argsort(-np.asarray((train > 0).sum(axis=0)).ravel(), kind="stable")
    best = [quality(popular[~np.isin(popular, train[u].indices)], test[u].indices, 5)[2] for u in range(80)]
    assert model.ranking(test, 5).mean["ndcg"] > 2 * np.nanmean(best)
    assert {int(i) % 3 for i in model.recommend(4, 3)} == {1}
    assert {int(i) % 3 for i in model.recommend(n=3, ratings={2: 3.0, 5: 1.0, 8: 1.0})} == {2}
    assert model.item_biases_.any() == model.mean_ == 0
    assert len(model.recommend("unknown", 5)) == 5


def test_an_observation_of_zero_is_none():
    X = clicks()
    C, away = X.tocoo(), np.flatnonzero(X[0].toarray() == 0)[:3]
    entries = np.append(C.data, [0, 0, 0]), (np.append(C.row, [0, 0, 0]), np.append(C.col, away))
    a, b = (FederatedMF(2, implicit=True, random_state=0).fit(data) for data in (X, sparse.csr_matrix(entries)))
    np.testing.assert_allclose(a.factor_, b.factor_)


def test_what_implicit_feedback_has_not_is_said():
    with pytest.raises(CofactorError, match=r"implicit feedback .alpha. has none. Found biases=True"):
        FederatedMF(2, implicit=True, biases=True).fit(clicks())
    with pytest.raises(
        CofactorError, match="rmse: expected ratings, found a model of implicit feedback; see `ranking`"
    ):
        FederatedMF(2, implicit=True, random_state=0).fit(clicks()).rmse(clicks())


def test_ranking_of_a_perfect_and_a_useless_list():
    assert quality(np.array([1, 2]), np.array([1, 2, 3]), 2) == (1.0, 2 / 3, pytest.approx(2 / 3 + 1 / 3))
    assert quality(np.array([4, 5]), np.array([1]), 2) == (0, 0, 0)
    assert quality(np.array([4, 1]), np.array([1]), 2) == (0.5, 1.0, pytest.approx(1 / np.log2(3)))
    assert np.isnan(quality(np.array([4]), np.array([]), 1)).all()
    np.testing.assert_array_equal(top(np.zeros(3), 5, seen=np.array([1])), [0, 2])


def test_the_model_ranks_better_than_biases(R):
    train, test = ratings_split.at_random(R, seed=1)
    fitted, biases = (FederatedMF(2, ridge=r, bias_ridge=2.0, random_state=0).fit(train) for r in (2.0, 1e12))
    a, b = (m.ranking(test, 5, relevant=4.0) for m in (fitted, biases))
    assert a.precision.shape == (120,)
    assert np.isnan(a.ndcg[7])
    assert a.mean["ndcg"] > b.mean["ndcg"]
    assert a.mean["precision"] == pytest.approx(np.nanmean(a.precision))


# splits


def test_split_by_time_holds_out_the_last_ratings_of_every_user(R):
    times = np.random.default_rng(2).permutation(R.nnz)
    train, test = ratings_split.by_time(R, times, share=0.25)
    assert abs(train + test - R).nnz == 0
    assert train.nnz + test.nnz == R.nnz
    when = sparse.csr_matrix((times + 1, R.indices, R.indptr), shape=R.shape)
    for u in range(120):
        assert test[u].nnz == int(0.25 * R[u].nnz)
        if test[u].nnz:
            assert when[u, train[u].indices].max() < when[u, test[u].indices].min()


def test_split_by_user_holds_out_whole_users(R):
    train, test = ratings_split.by_user(R, share=0.2, seed=3)
    has = [np.diff(part.indptr) > 0 for part in (train, test)]
    assert not (has[0] & has[1]).any()
    assert has[1].sum() in (23, 24)
    assert abs(train + test - R).nnz == 0


def test_wrong_splits_are_refused(R):
    with pytest.raises(DataError, match="expected one per rating"):
        ratings_split.by_time(R, np.zeros(3))
    with pytest.raises(CofactorError, match=r"share must be in \(0, 1\)"):
        ratings_split.at_random(R, share=1.0)
    with pytest.raises(DataError, match="CSR matrix, found ndarray"):
        ratings_split.by_user(R.toarray())


# wrong and odd input


def test_duplicates_are_refused_or_averaged():
    twice = (["a", "a", "b"], ["x", "x", "x"], [1.0, 5.0, 4.0])
    with pytest.raises(
        DataError, match=r"user a: expected one rating per item, found two of item x.*duplicates='mean'"
    ):
        FederatedMF(1).fit(twice)
    once = (["a", "b"], ["x", "x"], [3.0, 4.0])
    a, b = (FederatedMF(1, duplicates="mean", random_state=0).fit(data) for data in (twice, once))
    np.testing.assert_allclose(a.factor_, b.factor_)
    R = sparse.csr_matrix((2, 3))
    R.data, R.indices, R.indptr = np.array([1.0, 5.0]), np.array([2, 2]), np.array([0, 2, 2])
    with pytest.raises(DataError, match="found two of item 2"):
        FederatedMF(1).fit(R)


@pytest.mark.parametrize("form", [sparse.coo_matrix, sparse.coo_array])
def test_duplicates_of_a_matrix_of_triples_are_not_added_up(form):
    """As scipy does on the way to CSR: five stars and four were nine."""
    R = form((np.array([5.0, 4.0, 3.0, 2.0]), (np.array([0, 0, 1, 1]), np.array([0, 0, 0, 1]))), shape=(2, 2))
    with pytest.raises(DataError, match="user 0: expected one rating per item, found two of item 0"):
        FederatedMF(1).fit(R)
    once = sparse.csr_matrix(np.array([[4.5, 0.0], [3.0, 2.0]]))
    model, like = (FederatedMF(1, duplicates="mean", random_state=0).fit(data) for data in (R, once))
    np.testing.assert_allclose(model.factor_, like.factor_)
    np.testing.assert_allclose(model.transform(R), like.transform(once))
    told = model.predict([0, 0, 1, 1], [0, 0, 0, 1])
    assert model.rmse(R) == pytest.approx(np.sqrt(np.mean((told - R.data) ** 2)))
    with pytest.raises(DataError, match="found two of item 0"):
        model.set_params(duplicates="error").transform(R)


@pytest.mark.parametrize("bad", [6.0, 0.0, np.nan, np.inf])
def test_ratings_outside_the_declared_range_are_named(bad):
    with pytest.raises(DataError, match=rf"user b: expected ratings in \[0.5, 5\], found {bad:g} for item y"):
        FederatedMF(1, rating_range=(0.5, 5)).fit((["a", "b"], ["x", "y"], [1.0, bad]))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (np.ones((3, 3)), "stored entries are the observed ones"),
        (sparse.csr_matrix((3, 3)), "at least one rating"),
        ((["a"], ["x", "y"], [1.0]), "three lists of one length"),
        ((["a"], ["x"], ["good"]), "numbers as ratings"),
    ],
)
def test_what_is_no_ratings_is_refused(data, words):
    with pytest.raises(DataError, match=words):
        FederatedMF(1).fit(data)


def test_wrong_options_are_named(R, model):
    with pytest.raises(CofactorError, match=r"is a method of FederatedNMF, and this is FederatedMF"):
        FederatedMF(2, method="exact").fit(R)
    with pytest.raises(CofactorError, match=r"Staged.* is a method of FederatedNMF, and this is FederatedMF"):
        FederatedMF(2, method=catalog.make("exact", 2)).fit(R)
    with pytest.raises(CofactorError, match="expected 'error', 'mean' or 'sum', found 'last'"):
        FederatedMF(2, duplicates="last").fit(R)
    with pytest.raises(CofactorError, match=r"groups: expected one label per row \(120\)"):
        FederatedMF(2).fit(R, groups=[1, 2])
    with pytest.raises(CofactorError, match="n must be at least 1"):
        model.recommend(3, 0)
    with pytest.raises(DataError, match="expected ratings of 40 items, found 3"):
        model.transform(sparse.csr_matrix((1, 3)))
    with pytest.raises(DataError, match="expected ratings of shape"):
        model.rmse(R[:5])


@pytest.mark.parametrize("method", catalog.names("ratings"))
def test_equal_ratings_and_users_without_any_work(method):
    R = sparse.csr_matrix(([4.0] * 4, ([0, 0, 1, 3], [0, 1, 1, 2])), shape=(5, 4))
    equal = FederatedMF(2, method=method, random_state=0, rounds=60).fit(R)
    np.testing.assert_allclose(equal.predict(np.arange(5)[:, None], np.arange(4)), 4, atol=1e-3)
    assert len(equal.recommend(2, 3)) == 3


@pytest.mark.parametrize("method", catalog.names("ratings"))
def test_a_drawn_client_that_vanishes_is_left_out(method, R):
    class Leaky(Inline):
        """An engine whose first participant never answers after round 1."""

        @contextmanager
        def open(self, method, Xs, plan):
            with super().open(method, Xs, plan) as session:
                full = session.round
                session.round = lambda shared, t, who: full(shared, t, who[1:] if t > 1 else who)
                yield session

    settings = {"participation": 0.5, "users_as_clients": True, "engine": Leaky(), "random_state": 0}
    fitted = FederatedMF(2, method=method, ridge=2.0, rounds=60, **settings).fit(R)
    assert fitted.rmse(R) < 0.6
    assert {line.participants for line in fitted.history_} == {60, 59}


def test_the_seed_decides_and_clones_agree(R, model):
    again = clone(model).fit(R)
    np.testing.assert_array_equal(again.factor_, model.factor_)
    assert not np.array_equal(clone(model).set_params(random_state=1).fit(R).factor_, model.factor_)


def test_a_loaded_model_finds_items_whose_names_are_not_sorted(tmp_path):
    """Files of runs have items in the order of their numbers: "2" before "10"."""
    items = np.array(["1", "2", "10", "33", "4", "100"])
    rng = np.random.default_rng(0)
    users, which = np.divmod(np.arange(54), 6)
    model = FederatedMF(2, random_state=0).fit((users, items[which], rng.uniform(1, 5, 54)))
    order = rng.permutation(len(model.items_))
    model.factor_, model.items_ = model.factor_[:, order], model.items_[order]
    model.save(tmp_path / "model.npz")
    found = FederatedMF.load(tmp_path / "model.npz")
    biases = dict(zip(found.items_, found.item_biases_, strict=True))
    expected = [found.mean_ + biases[name] for name in items]
    np.testing.assert_allclose(found.predict(["nobody"] * 6, items), expected)
    assert set(found.recommend(n=5, ratings={"10": 4.0})) == set(items) - {"10"}


@pytest.mark.parametrize("kind", [int, str])
def test_numbers_and_their_texts_name_the_same_users_and_items(kind):
    users, items = np.repeat(np.arange(4), 3), np.tile([2, 10, 33], 4)
    ratings = np.random.default_rng(1).uniform(1, 5, 12)
    model = FederatedMF(1, random_state=0).fit((users.astype(kind), items.astype(kind), ratings))
    as_numbers, as_texts = (model.predict(users.astype(other), items.astype(other)) for other in (int, str))
    np.testing.assert_array_equal(as_numbers, as_texts)
    assert not np.allclose(as_numbers, model.mean_)


def test_a_search_over_parameters_takes_the_better_model(R) -> None:
    """Of scores more is better, as scikit-learn has it: the worst of the models was taken for the best."""
    good, bad = (FederatedMF(k, random_state=0, rounds=8).fit(R) for k in (3, 1))
    assert good.rmse(R) < bad.rmse(R)
    assert good.score(R) == -good.rmse(R) > bad.score(R)


FORMS = {"pandas": lambda held: held, "polars": pl.from_pandas, "lazy": lambda held: pl.from_pandas(held).lazy(),
         "pyarrow": pyarrow.Table.from_pandas}  # fmt: skip


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_new_users_come_as_ratings_by_name(form):
    held = pd.DataFrame({"user": list("aabbcc"), "item": list("xyxzwz"), "rating": [5.0, 1, 4, 2, 3, 1]})
    model = FederatedMF(1, ridge=0.1, rounds=3, tol=0, random_state=0).fit(form(held))
    new = held[held.user == "b"]
    codes = model.transform({"x": 4.0, "z": 2.0})
    np.testing.assert_allclose(model.transform(form(new)), codes)
    np.testing.assert_allclose(model.transform(form(held))[1:2], codes)
    best = model.recommend({"x": 4.0, "z": 2.0}, 2)
    for given in (form(new), form(new.drop(columns="user"))):
        np.testing.assert_array_equal(model.recommend(given, 2), best)
        np.testing.assert_array_equal(model.recommend(ratings=given, n=2), best)
    with pytest.raises(DataError, match="found two of item x"):
        model.transform(form(pd.concat([new, new])))


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_clicks_need_no_ratings(form):
    held = pd.DataFrame({"user": list("aabbcc"), "item": list("xyxzwz")})
    setting = {"implicit": True, "rounds": 3, "tol": 0, "random_state": 0}
    model, like = (FederatedMF(1, **setting).fit(x) for x in (form(held), form(held.assign(rating=1.0))))
    np.testing.assert_array_equal(model.factor_, like.factor_)
    np.testing.assert_array_equal(FederatedMF(1, **setting).fit((list("aabbcc"), list("xyxzwz"))).factor_, like.factor_)
    np.testing.assert_array_equal(model.ranking(form(held)).sums, like.ranking(form(held.assign(rating=1.0))).sums)
    with pytest.raises(DataError, match="found no rating among user, item"):
        FederatedMF(1).fit(form(held))


def test_of_a_user_without_clicks_nothing_is_known_and_that_is_said():
    """The list in the order of the items was said to be the best rated ones, and of a cold user nothing was said."""
    X = np.eye(6)[:5] + np.eye(6, k=1)[:5]
    X[2] = 0
    model = FederatedMF(2, implicit=True, ridge=0.1, random_state=0).fit(sparse.csr_matrix(X))
    for ask in (lambda: model.recommend(2, 3), lambda: model.recommend(n=3, ratings={"new": 1})):
        with pytest.warns(UserWarning, match="all items have the same score"):
            assert ask().tolist() == [0, 1, 2]
    with pytest.warns(UserWarning, match="99' is no user of the fit; give") as said:
        model.recommend(99, 3)
    assert not any("best rated" in str(line.message) for line in said)


def test_groups_without_a_label_are_refused(R):
    with pytest.raises(DataError, match="groups: expected a label for every user, found 1 without"):
        FederatedMF(2).fit(R, groups=[None, *["a"] * (R.shape[0] - 1)])
