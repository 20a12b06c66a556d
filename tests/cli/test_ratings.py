"""Ratings on the command line: the numbers are those of FederatedMF, and new users need the factor alone."""

import json
import sys

import numpy as np
import pytest
from scipy import sparse

from cofactor import FederatedMF
from cofactor.cli import main
from cofactor.data import ratings_split
from cofactor.runs import fit as runs
from cofactor.runs.config import Config


@pytest.fixture
def cofactor(monkeypatch, capsys, tmp_path):
    """Run the command in a folder of its own; return what it printed."""

    def call(*words, check=0):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["cofactor", *map(str, words)])
        with pytest.raises(SystemExit) as exit:
            main()
        printed = capsys.readouterr()
        assert (exit.value.code or 0) == check, printed.err
        return printed

    return call


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


def test_a_run_on_ratings_is_the_estimator_on_what_is_not_held_out(cofactor, stars, tmp_path):
    folder, R, times = stars
    words = ("fit", folder / "ratings.csv", "--ratings", "--holdout", "time", "--rounds", 30, "-k", 2, "--seed", 3)
    result = json.loads(cofactor(*words, "--option", "ridge=1", "--json").out)
    train, test = ratings_split.by_time(R, times)
    model = FederatedMF(2, ridge=1, random_state=3).fit(train)
    np.testing.assert_allclose(np.load(tmp_path / "run" / "factor.npz")["factor"], model.factor_, atol=1e-9)
    np.testing.assert_allclose(
        np.load(tmp_path / "run" / "clients" / "13" / "codes.npy")[0], model.codes_[3], atol=1e-9
    )
    training, held_out = result["parts"]
    assert (result["users"], result["items"], training["ratings"], held_out["ratings"]) == (60, 20, train.nnz, test.nnz)
    assert training["rmse"] == pytest.approx(model.score(train))
    assert held_out["rmse"] == pytest.approx(model.score(test))
    assert held_out["ndcg@10"] == pytest.approx(model.ranking(test).mean["ndcg"])
    assert "held out by time" in cofactor("evaluate", "run").out
    assert (tmp_path / "run" / "report.html").exists()


def test_new_users_are_served_from_the_factor_of_the_run(cofactor, stars, tmp_path):
    folder, R, _ = stars
    cofactor("fit", folder / "ratings.csv", "--ratings", "-k", 2, "--option", "ridge=1", "-q")
    model = FederatedMF.load(tmp_path / "run" / "factor.npz")
    lines = [f"me,{100 + i},{x:g}" for i, x in zip(R[3].indices, R[3].data)]
    (tmp_path / "mine.csv").write_text("\n".join(["user,item,rating", *lines, "me,unheard-of,5"]) + "\n")
    found = json.loads(cofactor("recommend", "run", "mine.csv", "-n", 4, "--json").out)
    own = {str(100 + i): x for i, x in zip(R[3].indices, R[3].data)}
    assert found == {"me": model.recommend(n=4, ratings=own).tolist()}
    assert found["me"][0] in cofactor("recommend", "run", "mine.csv").out
    cofactor("transform", "run", "mine.csv", "-q")
    np.testing.assert_allclose(np.load(tmp_path / "codes.npy"), model.transform(own))


def test_several_files_are_clients_whose_items_are_matched_by_name(cofactor, stars, tmp_path):
    R = stars[1]
    for name, rows, items in (("a", range(30), range(15)), ("b", range(30, 60), range(5, 20))):
        part = R[list(rows)][:, list(items)].tocoo()
        lines = [f"{u},{100 + items[i]},{x:g}" for u, i, x in zip(part.row, part.col, part.data)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["user,item,rating", *lines]) + "\n")
    words = ("fit", "a.csv", "b.csv", "--ratings", "--holdout", "user", "-k", 1, "--json")
    result = json.loads(cofactor(*words).out)
    assert [c["client"] for c in result["clients"]] == ["a", "b"]
    assert (result["items"], result["users"]) == (20, 60)
    assert result["parts"][1]["part"] == "held out by user"


def test_clicks_have_ranks_and_no_rmse(cofactor, stars, tmp_path):
    words = ("fit", stars[0] / "ratings.csv", "--ratings", "--holdout", "random", "--option", "alpha=2", "-k", 2)
    parts = json.loads(cofactor(*words, "--json").out)["parts"]
    assert [part["rmse"] for part in parts] == [None, None]
    assert 0 < parts[1]["precision@10"] < 1


def test_an_interrupted_run_on_ratings_goes_on_to_the_same_factor(stars, tmp_path):
    config = Config([str(stars[0] / "ratings.csv")], 2, ratings=True, rounds=8, tol=0, participation=0.5)

    def interrupt(line, shared):
        if line.round == 3:
            raise KeyboardInterrupt

    runs.fit(config, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        runs.fit(config, tmp_path / "cut", callbacks=[interrupt])
    runs.resume(tmp_path / "cut")
    whole, cut = (np.load(tmp_path / name / "factor.npz")["factor"] for name in ("whole", "cut"))
    np.testing.assert_array_equal(whole, cut)


def test_duplicates_are_refused_or_averaged(cofactor, tmp_path):
    (tmp_path / "twice.csv").write_text("user,item,rating\na,x,1\na,x,5\nb,x,4\nb,y,2\n")
    error = cofactor("fit", "twice.csv", "--ratings", "-k", 1, check=2).err
    assert "another one of user 'a' and item 'x'" in error
    words = ("fit", "twice.csv", "--ratings", "-k", 1, "--duplicates", "mean", "--json")
    assert json.loads(cofactor(*words).out)["parts"][0]["ratings"] == 3


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--ratings", "--holdout", "time"), "line 1: expected user,item,rating,timestamp, found 3 cell(s)"),
        (("--ratings", "--holdout", "week"), "holdout: expected one of time, random, user; found 'week'"),
        (("--holdout", "random"), "holdout is for ratings: add --ratings"),
        (("--method", "exact-als"), "method 'exact-als' is for ratings: add --ratings"),
        (("--ratings", "--method", "fedavg"), "--ratings: expected one of the methods exact-als, masked-fedmavg"),
        (("--ratings", "--split", 3), "--ratings has no split: leave it out. Found 3"),
        (("--ratings", "--engine", "mpi"), "--ratings has no engine"),
        (("--ratings", "--duplicates", "last"), "duplicates: expected one of error, mean; found 'last'"),
        (("--ratings", "--holdout", "user", "--holdout-share", 2), "share must be in (0, 1). Found 2"),
    ],
)
def test_wrong_words_are_one_line(cofactor, words, text, tmp_path):
    (tmp_path / "r.csv").write_text("user,item,rating\na,x,1\nb,x,4\n")
    error = cofactor("fit", "r.csv", "-k", 1, *words, check=2).err
    assert text in error
    assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_other_runs_recommend_nothing(cofactor, tmp_path):
    np.save(tmp_path / "a.npy", np.eye(5))
    (tmp_path / "r.csv").write_text("user,item,rating\na,x,1\n")
    cofactor("fit", "a.npy", "-k", 2, "-q")
    error = cofactor("recommend", "run", "r.csv", check=2).err
    assert "expected a run on ratings, found one of method 'exact'" in error
