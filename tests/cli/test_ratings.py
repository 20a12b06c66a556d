"""Ratings on the command line: the numbers are those of FederatedMF, and new users need the factor alone."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from tests.helpers.command import cofactor, refused

from cofactor import FederatedMF
from cofactor.data import ratings_split


@pytest.fixture(scope="module")
def stars(tmp_path_factory):
    """Ratings of 60 users and 20 items by one planted taste, with times; the file and the CSR matrix."""
    rng = np.random.default_rng(0)
    X = np.clip(np.round(3 + rng.normal(size=(60, 1)) @ rng.normal(size=(1, 20)) + 0.5 * rng.normal(size=20)), 1, 5)
    users, items = np.nonzero(rng.uniform(size=X.shape) < 0.5)
    times = rng.permutation(len(users))
    lines = [f"{10 + u},{100 + i},{X[u, i]:g},{t}" for u, i, t in zip(users, items, times)]
    folder = tmp_path_factory.mktemp("stars")
    (folder / "ratings.csv").write_text("\n".join(["userId,movieId,rating,timestamp", *rng.permutation(lines)]) + "\n")
    return folder, sparse.csr_matrix((X[users, items], (users, items)), shape=X.shape), times


def test_a_run_on_ratings_is_the_estimator_on_what_is_not_held_out(stars, tmp_path):
    folder, R, times = stars
    words = ("fit", folder / "ratings.csv", "--ratings", "--holdout", "time", "--rounds", 30, "-k", 2, "--seed", 3)
    result = json.loads(cofactor(*words, "--option", "ridge=1", "--json", cwd=tmp_path).stdout)
    train, test = ratings_split.by_time(R, times)
    model = FederatedMF(2, ridge=1, random_state=3).fit(train)
    np.testing.assert_allclose(np.load(tmp_path / "run" / "factor.npz")["factor"], model.factor_, atol=1e-9)
    own = tmp_path / "run" / "clients" / "ratings"
    np.testing.assert_allclose(np.load(own / "codes.npy"), model.codes_, atol=1e-9)
    assert (own / "rows.txt").read_text().split() == [str(10 + u) for u in range(60)]
    training, held_out = result["parts"]
    assert (training["ratings"], held_out["ratings"]) == (train.nnz, test.nnz)
    assert [(line["client"], line["rows"]) for line in result["clients"]] == [("ratings", 60)]
    assert training["rmse"] == pytest.approx(model.rmse(train))
    assert held_out["rmse"] == pytest.approx(model.rmse(test))
    assert held_out["ranking"]["ndcg@10"] == pytest.approx(model.ranking(test).mean["ndcg"])
    assert held_out["ranking"]["coverage@10"] == pytest.approx(model.coverage(10))
    assert "held out by time" in cofactor("evaluate", "run", cwd=tmp_path).stdout
    assert (tmp_path / "run" / "report.html").exists()


def test_users_are_clients_on_request_and_the_report_says_what_that_sends_and_shows(stars, tmp_path):
    words = ("fit", stars[0] / "ratings.csv", "--ratings", "-k", 2, "--option", "ridge=1", "--rounds", 8, "--tol", 0)
    ways = {"one": (), "users": ("--users-as-clients",), "rated": ("--users-as-clients", "--rated-only")}
    sent, factors, pages = {}, {}, {}
    for name, more in ways.items():
        result = json.loads(cofactor(*words, *more, "--json", "--out", name, cwd=tmp_path).stdout)
        assert len(result["clients"]) == (1 if name == "one" else 60)
        lines = [json.loads(line) for line in (tmp_path / name / "history.jsonl").read_text().splitlines()]
        sent[name] = sum(line["bytes_up"] + line["bytes_down"] for line in lines)
        factors[name] = np.load(tmp_path / name / "factor.npz")["factor"]
        pages[name] = (tmp_path / name / "report.html").read_text()
        cofactor("ledger", "verify", name, cwd=tmp_path)
    assert sent["users"] == 60 * sent["one"]
    assert sent["rated"] < 0.6 * sent["users"]  # half of all cells are rated
    for name in ("users", "rated"):
        np.testing.assert_allclose(factors[name], factors["one"], atol=1e-8)
    assert "Every user is a client here" not in pages["one"]
    assert "they would send and receive about" in pages["users"]
    assert "Every user is a client here" in pages["rated"]
    assert "they name the items that a client rated" in pages["rated"]


def test_new_users_are_served_from_the_factor_of_the_run(stars, tmp_path):
    folder, R, _ = stars
    cofactor("fit", folder / "ratings.csv", "--ratings", "-k", 2, "--option", "ridge=1", "-q", cwd=tmp_path)
    model = FederatedMF.load(tmp_path / "run" / "factor.npz")
    lines = [f"me,{100 + i},{x:g}" for i, x in zip(R[3].indices, R[3].data)]
    (tmp_path / "mine.csv").write_text("\n".join(["user,item,rating", *lines, "me,unheard-of,5"]) + "\n")
    found = json.loads(cofactor("recommend", "run", "mine.csv", "-n", 4, "--json", cwd=tmp_path).stdout)
    own = {str(100 + i): x for i, x in zip(R[3].indices, R[3].data)}
    assert found == {"me": model.recommend(n=4, ratings=own).tolist()}
    assert found["me"][0] in cofactor("recommend", "run", "mine.csv", cwd=tmp_path).stdout
    cofactor("transform", "run", "mine.csv", "-q", cwd=tmp_path)
    np.testing.assert_allclose(np.load(tmp_path / "codes.npy"), model.transform(own))


def test_known_users_titles_and_similar_items(stars, tmp_path):
    (tmp_path / "movies.csv").write_text(
        "movieId,title,genres\n" + "".join(f'{100 + i},"Film, the {i}th",x\n' for i in range(19))
    )
    words = ("fit", stars[0] / "ratings.csv", "--ratings", "-k", 2, "--option", "ridge=1", "-q", "--seed", 3)
    cofactor(*words, "--titles", "movies.csv", "--holdout", "time", "--out", "titled", cwd=tmp_path)
    cofactor(*words, cwd=tmp_path)
    model = FederatedMF(2, ridge=1, random_state=3, rounds=50).fit(stars[1])
    found = json.loads(cofactor("recommend", "run", "--user", 13, "--user", 40, "-n", 4, "--json", cwd=tmp_path).stdout)
    assert found == {str(10 + u): [str(100 + i) for i in model.recommend(u, 4)] for u in (3, 30)}
    alike = json.loads(cofactor("similar", "run", 105, "-n", 3, "--json", cwd=tmp_path).stdout)
    assert alike == {"105": [str(100 + i) for i in model.similar_items(5, 3)]}
    shown = cofactor("similar", "titled", 105, "-n", 19, cwd=tmp_path).stdout
    assert "Film, the 5th" in shown
    assert "119" in shown  # without a title
    assert "Film, the" in cofactor("recommend", "titled", "--user", 13, cwd=tmp_path).stdout
    page = (tmp_path / "titled" / "report.html").read_text()
    assert "Film, the" in page
    assert "coverage@10" in page
    for more, text in (
        ((), "found neither"),
        (("--user", 999), "found nobody of that name"),
        (("--user", 1, "x"), "both"),
    ):
        assert text in cofactor("recommend", "run", *more, cwd=tmp_path, check=2).stderr
    (tmp_path / "others.csv").write_text("id,title\nx,A\n")
    words = ("fit", stars[0] / "ratings.csv", "--ratings", "-k", 1, "--titles", "others.csv", "--out", "other")
    assert "none is that of an item" in cofactor(*words, cwd=tmp_path, check=2).stderr


def test_ranks_of_ratings_are_judged_by_held_out_rmse(stars, tmp_path):
    words = ("rank", stars[0] / "ratings.csv", "--ratings", "-k", "1,2,6", "--seeds", 3)
    found = json.loads(cofactor(*words, "--json", "--out", "scan", cwd=tmp_path).stdout)
    assert found["ranks"] == [1, 2, 6]
    assert min(found["heldout"]) < 1.2
    assert np.all(np.diff(found["training"]) < 0)
    assert found["suggestion"] == 2  # as planted
    assert "Held-out RMSE" in cofactor(*words, cwd=tmp_path).stdout
    assert (tmp_path / "scan" / "rank.png").exists()
    error = cofactor("rank", stars[0] / "ratings.csv", "-k", "2,3", cwd=tmp_path, check=2).stderr
    assert "add --ratings" in error
    error = cofactor("rank", stars[0] / "ratings.csv", "--ratings", "-k", "2,99", cwd=tmp_path, check=2).stderr
    assert "ranks must be in 1..20" in error


def test_several_files_are_clients_whose_items_are_matched_by_name(stars, tmp_path):
    R = stars[1]
    for name, rows, items in (("a", range(30), range(15)), ("b", range(30, 60), range(5, 20))):
        part = R[list(rows)][:, list(items)].tocoo()
        lines = [f"{u},{100 + items[i]},{x:g}" for u, i, x in zip(part.row, part.col, part.data)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["user,item,rating", *lines]) + "\n")
    words = ("fit", "a.csv", "b.csv", "--ratings", "--holdout", "user", "-k", 1, "--json")
    result = json.loads(cofactor(*words, cwd=tmp_path).stdout)
    assert [c["client"] for c in result["clients"]] == ["a", "b"]
    assert [c["rows"] for c in result["clients"]] == [30, 30]
    assert np.load(tmp_path / "run" / "factor.npz")["factor"].shape[1] == 20
    assert result["parts"][1]["part"] == "held out by user"


def test_clicks_have_ranks_and_no_rmse(stars, tmp_path):
    words = ("fit", stars[0] / "ratings.csv", "--ratings", "--holdout", "random", "--option", "alpha=2", "-k", 2)
    parts = json.loads(cofactor(*words, "--json", cwd=tmp_path).stdout)["parts"]
    assert [part["rmse"] for part in parts] == [None, None]
    assert sum(part["ratings"] for part in parts) == stars[1].nnz
    assert 0 < parts[1]["ranking"]["precision@10"] < 1


def test_duplicates_are_refused_or_averaged(tmp_path):
    (tmp_path / "twice.csv").write_text("user,item,rating\na,x,1\na,x,5\nb,x,4\nb,y,2\n")
    error = cofactor("fit", "twice.csv", "--ratings", "-k", 1, cwd=tmp_path, check=2).stderr
    assert "another one of user 'a' and item 'x'" in error
    words = ("fit", "twice.csv", "--ratings", "-k", 1, "--duplicates", "mean", "--json")
    assert json.loads(cofactor(*words, cwd=tmp_path).stdout)["parts"][0]["ratings"] == 3


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--ratings", "--holdout", "time"), "found 3 cell(s). Without times, hold out at random: --holdout random"),
        (("--ratings", "--holdout", "week"), "unknown holdout 'week'. Expected one of: time, random, user"),
        (("--holdout", "random"), "holdout is for ratings: add --ratings"),
        (("--method", "exact-als"), "method 'exact-als' is for ratings: add --ratings"),
        (("--ratings", "--method", "fedavg"), "--ratings: expected one of the methods exact-als, masked-fedmavg"),
        ((), "expected features in columns, found lines of user,item,rating; add --ratings"),
        (("--users-as-clients",), "--users-as-clients is for ratings: add --ratings"),
        (("--rated-only",), "--rated-only is for ratings: add --ratings"),
        (("r.csv", "--ratings", "--users-as-clients"), "makes clients of one file; found 2 files"),
        (("--ratings", "--rated-only", "--option", "alpha=2"), "every item counts, rated or not"),
        (("--ratings", "--split", 3), "--ratings has no split: leave it out. Found 3"),
        (("--ratings", "--duplicates", "last"), "unknown duplicates 'last'. Expected one of: error, mean"),
        (("--ratings", "--holdout", "user", "--holdout-share", 2), "share must be in (0, 1). Found 2"),
    ],
)
def test_wrong_words_are_one_line(words, text, tmp_path):
    (tmp_path / "r.csv").write_text("user,item,rating\na,x,1\nb,x,4\n")
    assert text in refused("fit", "r.csv", "-k", 1, *words, cwd=tmp_path)


def test_other_runs_recommend_nothing(tmp_path):
    np.save(tmp_path / "a.npy", np.eye(5))
    (tmp_path / "r.csv").write_text("user,item,rating\na,x,1\n")
    cofactor("fit", "a.npy", "-k", 2, "-q", cwd=tmp_path)
    error = cofactor("recommend", "run", "r.csv", cwd=tmp_path, check=2).stderr
    assert "expected a run on ratings, found one of method 'exact'" in error


def test_columns_in_other_words_are_told_and_an_index_is_none_of_them(stars, tmp_path):
    """Beside an index of pandas, every line was a user, users were items and items were ratings."""
    head, *lines = (stars[0] / "ratings.csv").read_text().splitlines()
    german = ["Kunde,Artikel,Sterne,Zeit", *lines]
    (tmp_path / "plain.csv").write_text("\n".join(german))
    (tmp_path / "numbered.csv").write_text("\n".join(f"{i or ''},{line}" for i, line in enumerate(german)))
    (tmp_path / "named.csv").write_text("\n".join([f",{head}", *(f"{i},{line}" for i, line in enumerate(lines))]))
    for name, told in (("plain", True), ("numbered", True), ("named", False)):
        words = ("fit", f"{name}.csv", "--ratings", "-k", 2, "--rounds", 4, "--out", name)
        said = cofactor(*words, cwd=tmp_path).stderr
        assert ("read by their place: user 'Kunde', item 'Artikel', rating 'Sterne'" in said) == told
        assert len((tmp_path / name / "clients" / name / "rows.txt").read_text().split()) == 60


def test_clicks_without_a_model_of_clicks_are_told(stars, tmp_path):
    lines = [line.rsplit(",", 2)[0] + ",1" for line in (stars[0] / "ratings.csv").read_text().splitlines()[1:]]
    (tmp_path / "ones.csv").write_text("\n".join(["user,item,rating", *lines]))
    said = " ".join(cofactor("fit", "ones.csv", "--ratings", "-k", 2, cwd=tmp_path).stdout.split())
    assert "as where they are all the same: from clicks, which are, only --option alpha=40" in said
    assert "Nothing is made of components 0, 1." in said  # and of no biases, which are none
    names = [line.split(",")[:2] for line in lines]
    triples = (*map(np.array, zip(*names)), np.ones(len(names)))
    with pytest.warns(UserWarning, match="all ratings are the same, so that they teach nothing; implicit=True"):
        FederatedMF(2, rounds=3).fit(triples)


def test_codes_of_users_name_biases_and_titles_with_commas_are_told_apart(stars, tmp_path):
    ids = sorted({line.split(",")[1] for line in (stars[0] / "ratings.csv").read_text().splitlines()[1:]})
    (tmp_path / "titles.csv").write_text("movieId,title\n" + "".join(f'{i},"Film {i}, The"\n' for i in ids))
    words = ("--ratings", "-k", 2, "--rounds", 4, "--titles", "titles.csv", "-q")
    cofactor("fit", stars[0] / "ratings.csv", *words, cwd=tmp_path)
    cofactor("transform", "run", stars[0] / "ratings.csv", "--out", "codes.csv", cwd=tmp_path)
    first = (tmp_path / "codes.csv").read_text().splitlines()[0]
    assert first == "row,component0,component1,user_bias,item_bias,mean"
    said = " ".join(cofactor("similar", "run", ids[0], "-n", 2, cwd=tmp_path).stdout.split())
    assert ", The; Film " in said


def test_components_that_a_ridge_takes_away_are_told(tmp_path, recwarn):
    """Ratings that are biases and noise: what is left of components, 1e-5 of a star, is no taste."""
    draw = np.random.default_rng(0)
    users, items = np.divmod(np.arange(600), 30)
    stars = 3 + draw.normal(size=20)[users] + draw.normal(size=30)[items] + 0.3 * draw.normal(size=600)
    frame = pd.DataFrame({"user": users, "item": items, "rating": np.maximum(stars, 0)})
    frame.to_csv(tmp_path / "stars.csv", index=False)
    said = " ".join(cofactor("fit", "stars.csv", "--ratings", "-k", 2, cwd=tmp_path).stdout.split())
    assert "Nothing is made of components 0, 1. What the others and the biases leave is no larger than" in said
    with pytest.warns(UserWarning, match="nothing is made of components 0, 1: .* A smaller `ridge` may find more"):
        FederatedMF(2, random_state=0).fit(frame)
    recwarn.clear()
    FederatedMF(2, ridge=0.5, random_state=0).fit(frame)
    assert not [w for w in recwarn if "nothing is made" in str(w.message)]


def test_titles_are_printed_as_they_are(stars, tmp_path):
    """Brackets were read as styles: of the film "[REC] (2007)" its year was left."""
    (tmp_path / "films.csv").write_text(
        "movieId,title\n" + "".join(f"{100 + i},[REC] \x1b[1A{i} :key:\n" for i in range(19))
    )
    words = ("fit", stars[0] / "ratings.csv", "--ratings", "-k", 2, "--rounds", 3, "--titles", "films.csv", "-q")
    cofactor(*words, cwd=tmp_path)
    shown = cofactor("similar", "run", 105, "-n", 19, cwd=tmp_path).stdout
    assert shown.count("[REC]") == 19
    assert ":key:" in shown
    assert "\x1b" not in shown


def test_users_keep_their_names_where_items_have_the_same_ones(tmp_path):
    """Ids are numbers on both sides: user 105 was shown by the title of film 105, and of two users of one title one."""
    rng = np.random.default_rng(0)
    lines = [f"{100 + u},{100 + i},{rng.integers(1, 6)}" for u in range(12) for i in range(12) if (u + i) % 3]
    (tmp_path / "ratings.csv").write_text("\n".join(["userId,movieId,rating", *lines]) + "\n")
    (tmp_path / "films.csv").write_text("movieId,title\n" + "".join(f"{100 + i},The Film\n" for i in range(12)))
    words = ("fit", "ratings.csv", "--ratings", "-k", 2, "--rounds", 3, "--titles", "films.csv", "-q")
    cofactor(*words, cwd=tmp_path)
    shown = cofactor("recommend", "run", "--user", 105, "--user", 106, "-n", 2, cwd=tmp_path).stdout
    assert all(f"│ {user}  │ The Film, The Film │" in shown for user in (105, 106))
    assert cofactor("similar", "run", 105, 106, "-n", 1, cwd=tmp_path).stdout.count("│ The Film │ The Film │") == 2


def clicks(path, users=30):
    rng = np.random.default_rng(1)
    lines = [f"u{u},{i},1" for u in range(users) for i in np.flatnonzero(rng.random(12) < 0.5)]
    path.write_text("\n".join(["user,item,rating", *lines]) + "\n")
    return path


def test_of_clicks_whole_users_cannot_be_held_out_and_no_rank_has_an_error(tmp_path):
    """Lists of users of whom nothing is known were judged, in the order of the items; every rank had an error of 0."""
    words = ("fit", clicks(tmp_path / "clicks.csv"), "--ratings", "-k", 2, "--option", "alpha=5", "--holdout", "user")
    assert "--holdout user: expected a model with biases" in refused(*words, cwd=tmp_path)
    said = refused("rank", "clicks.csv", "--ratings", "-k", "1:3", cwd=tmp_path)
    assert "expected ratings that differ, found 1 for all of them" in said


def test_a_run_that_would_be_judged_by_nothing_is_refused(stars, tmp_path):
    words = ("fit", stars[0] / "ratings.csv", "--ratings", "-k", 2, "--holdout", "time", "--holdout-share", 0.01)
    assert "--holdout time: expected users with 100 ratings or more" in refused(*words, cwd=tmp_path)


def test_items_that_are_nearly_called_the_same_are_told(tmp_path):
    for name, item in (("a", "Caf\u00e9 {}"), ("b", "Cafe\u0301 {}"), ("c", " caf\u00e9 {}")):
        lines = [f"{name}{u},{item.format(i)},{1 + (u + i) % 5}" for u in range(6) for i in range(6)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["user,item,rating", *lines]) + "\n", encoding="utf-8")
    words = ("--ratings", "-k", 1, "--rounds", 2)
    assert "written (Unicode NFC or NFD)" in cofactor("fit", "a.csv", "b.csv", *words, cwd=tmp_path).stderr
    said = cofactor("fit", "a.csv", "c.csv", *words, "--out", "other", cwd=tmp_path).stderr
    assert "differ only in case or spaces" in said
