"""Fits from the command line: files in, run folders out, and what people are told."""

import errno
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from tests.helpers.command import cofactor

from cofactor import FederatedBMF, FederatedNMF, run
from cofactor.data import synthetic
from cofactor.methods import auto, catalog
from cofactor.methods.blocks import blocks
from cofactor.plan import Stop
from cofactor.select.markers import Regressed


def test_files_are_clients_and_the_numbers_are_those_of_python(hospitals, tmp_path):
    folder, Xs = hospitals
    files = [folder / f for f in ("ann.csv", "bob.parquet", "cyd.tsv")]
    result = json.loads(cofactor("fit", *files, "-k", 4, "--seed", 3, "--out", "run", "--json", cwd=tmp_path).stdout)
    model = FederatedNMF(4, random_state=3).fit(Xs)
    saved = np.load(tmp_path / "run" / "factor.npz")
    np.testing.assert_array_equal(saved["factor"], model.components_)
    assert saved["feature_names"][0] == "gene0"
    assert result["error"] == pytest.approx(model.reconstruction_err_)
    codes = np.load(tmp_path / "run" / "clients" / "bob" / "codes.npy")
    np.testing.assert_array_equal(codes, model.codes_[1])
    assert (tmp_path / "run" / "report.html").exists()
    assert len((tmp_path / "run" / "history.jsonl").read_text().splitlines()) == model.n_rounds_


def test_the_ledger_lists_every_array_of_every_message(hospitals, tmp_path):
    folder, _ = hospitals
    cofactor("fit", folder / "ann.csv", folder / "bob.parquet", "-k", 3, "--rounds", 4, "-q", cwd=tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "run" / "ledger.jsonl").read_text().splitlines()]
    method = catalog.make("exact", 3)
    marked = Regressed(method.refit, np.zeros((3, 24))).schema(24)  # asked for once, when the factor is found
    for line in lines:
        assert tuple(line["shape"]) == {**method.schema(24, line["round"]), **marked}[line["array"]]
        assert 50 not in line["shape"]
    assert {line["client"] for line in lines} == {"ann", "bob"}
    assert len(lines) == 2 * (sum(len(method.schema(24, t)) for t in range(4)) + len(marked))
    assert {line["round"] for line in lines if line["array"] in marked} == {4}


def test_the_written_config_reproduces_the_run(hospitals, tmp_path):
    folder, _ = hospitals
    cofactor("fit", folder / "ann.csv", folder / "cyd.tsv", "-k", 3, "--seed", 9, "-q", "--out", "one", cwd=tmp_path)
    cofactor("fit", "--config", "one/run.toml", "--out", "two", "-q", cwd=tmp_path)
    first, second = (np.load(tmp_path / name / "factor.npz")["factor"] for name in ("one", "two"))
    np.testing.assert_array_equal(first, second)


def test_one_file_becomes_clients_by_column_or_by_split(hospitals, tmp_path):
    _, Xs = hospitals
    table = pd.DataFrame(np.vstack(Xs), columns=[f"g{i}" for i in range(24)])
    table["ward"] = np.repeat([2, 0, 1], 50)
    table.to_csv(tmp_path / "all.csv", index=False)
    out = cofactor("fit", "all.csv", "--group-by", "ward", "-k", 4, "--json", "--out", "g", cwd=tmp_path).stdout
    assert [c["client"] for c in json.loads(out)["clients"]] == ["0", "1", "2"]
    outcome = run(catalog.make("exact", 4), [Xs[1], Xs[2], Xs[0]], rounds=50, stop=Stop(1e-4))
    np.testing.assert_allclose(np.load(tmp_path / "g" / "factor.npz")["factor"], outcome.factor, atol=1e-9)
    words = ("--split", 4, "--by", "dirichlet", "--label", "ward", "--alpha", 0.3)
    out = cofactor("fit", "all.csv", *words, "-k", 4, "--json", "--out", "s", cwd=tmp_path).stdout
    assert [c["client"] for c in json.loads(out)["clients"]] == [f"client-{j}" for j in range(4)]


def test_features_that_a_client_lacks_are_missing_and_not_zero(hospitals, tmp_path):
    _, Xs = hospitals
    names = np.array([f"g{i}" for i in range(24)])
    for name, X, keep in (("a", Xs[0], slice(0, 20)), ("b", Xs[1], slice(4, 24)), ("c", Xs[2], slice(0, 24))):
        pd.DataFrame(X[:, keep], columns=names[keep]).to_csv(tmp_path / f"{name}.csv", index=False)
    files = ("a.csv", "b.csv", "c.csv")
    error = cofactor("fit", *files, "-k", 4, cwd=tmp_path, check=2).stderr
    assert error.startswith("cofactor: ")
    assert error.count("\n") == 1
    cofactor("fit", *files, "-k", 4, "--features", "union", "-q", "--out", "union", cwd=tmp_path)
    cofactor("fit", *files, "-k", 4, "--features", "intersection", "-q", "--out", "cut", cwd=tmp_path)
    assert np.load(tmp_path / "union" / "factor.npz")["factor"].shape == (4, 24)
    assert np.load(tmp_path / "cut" / "factor.npz")["factor"].shape == (4, 16)
    error = cofactor("fit", *files, "-k", 4, "--features", "union", "--method", "fedavg", cwd=tmp_path, check=2).stderr
    assert "fedavg" in error


def test_kill_9_and_resume_end_with_the_same_factor_bit_for_bit(tmp_path):
    rng = np.random.default_rng(0)
    for name in "ab":
        np.save(tmp_path / f"{name}.npy", rng.uniform(size=(4000, 8)) @ rng.uniform(size=(8, 300)))
    words = ["a.npy", "b.npy", "-k", "8", "--tol", "0", "--rounds", "150", "--option", "start=random", "-q"]
    cofactor("fit", *words, "--out", "whole", cwd=tmp_path)
    command = [sys.executable, "-c", "from cofactor.cli import main; main()", "fit", *words, "--out", "cut"]
    process = subprocess.Popen(command, cwd=tmp_path)
    history = tmp_path / "cut" / "history.jsonl"
    while process.poll() is None and not (history.exists() and len(history.read_text().splitlines()) >= 5):
        time.sleep(0.002)
    assert process.poll() is None, "it ended before it could be killed"
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (tmp_path / "cut" / "factor.npz").exists()
    cofactor("resume", "cut", "-q", cwd=tmp_path)
    whole, cut = (np.load(tmp_path / name / "factor.npz")["factor"] for name in ("whole", "cut"))
    np.testing.assert_array_equal(whole, cut)
    rounds = [json.loads(line)["round"] for line in history.read_text().splitlines()]
    assert rounds == list(range(150))
    ledger = [json.loads(line)["round"] for line in (tmp_path / "cut" / "ledger.jsonl").read_text().splitlines()]
    assert sorted(ledger) == sorted(t for t in range(150) for _ in range(6))


def test_rating_triples_become_a_matrix_of_users_by_items(tmp_path):
    rows = ["user,item,rating", *(f"u{u},i{i},{1 + (u * i) % 5}" for u in range(12) for i in range(8) if (u + i) % 3)]
    (tmp_path / "ratings.csv").write_text("\n".join(rows) + "\n")
    cofactor("fit", "ratings.csv", "--ratings", "-k", 3, "-q", cwd=tmp_path)
    saved = np.load(tmp_path / "run" / "factor.npz")
    assert saved["factor"].shape == (3 + 3, 8)
    assert list(saved["feature_names"]) == [f"i{i}" for i in range(8)]
    own = tmp_path / "run" / "clients" / "ratings"
    assert (own / "rows.txt").read_text().split() == sorted(f"u{u}" for u in range(12))
    assert (tmp_path / "run" / "factor.tsv").read_text().splitlines()[0].endswith("component2\tone\titem_bias\tmean")


def test_a_boolean_method_makes_a_boolean_run(tmp_path):
    np.save(tmp_path / "a.npy", synthetic.tiles(100, 20, 2, noise=0.0, seed=0).X)
    cofactor("fit", "a.npy", "-k", 2, "--method", "grecond", "-q", cwd=tmp_path)
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["config"]["boolean"] is True
    assert set(np.unique(np.load(tmp_path / "run" / "factor.npz")["factor"])) <= {0, 1}


def test_a_full_disk_is_one_line_and_harms_no_file(hospitals, tmp_path, monkeypatch):
    folder, _ = hospitals
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    error = cofactor("fit", folder / "ann.csv", "-k", 3, "-q", cwd=tmp_path, check=2).stderr
    assert "No space left on device" in error
    assert error.count("\n") == 1
    assert os.listdir(tmp_path / "run") == ["notes.txt"]


def test_boolean_fit_writes_bits_losses_and_pictures_on_request(tmp_path):
    planted = synthetic.tiles(300, 40, 4, noise=0.02, seed=1)
    for name, rows in (("a", slice(0, 150)), ("b", slice(150, 300))):
        sparse.save_npz(tmp_path / f"{name}.npz", sparse.csr_matrix(planted.X[rows]))
    words = ("fit", "a.npz", "b.npz", "-k", 4, "--boolean", "--seed", 2, "--json")
    result = json.loads(cofactor(*words, cwd=tmp_path).stdout)
    model = FederatedBMF(4, random_state=2).fit([planted.X[:150], planted.X[150:]])
    H = np.load(tmp_path / "run" / "factor.npz")["factor"]
    np.testing.assert_array_equal(H, model.components_)
    assert set(np.unique(H)) <= {0, 1}
    assert result["error"] == pytest.approx(model.reconstruction_err_)
    assert "Boolean view" not in (tmp_path / "run" / "report.html").read_text()
    cofactor("report", "run", "--pictures", "--out", "page.html", cwd=tmp_path)
    page = (tmp_path / "page.html").read_text()
    assert page.count("Reconstruction of client") == 2
    assert page.count("Error of client") == 2
    cofactor("transform", "run", "a.npz", "-q", cwd=tmp_path)
    np.testing.assert_array_equal(np.load(tmp_path / "codes.npy"), model.codes_[0])


def test_a_boolean_fit_of_few_clients_a_round_is_that_of_the_estimator(tmp_path):
    X = synthetic.tiles(120, 20, 3, noise=0.02, seed=1).X
    for i, rows in enumerate(np.array_split(X, 4)):
        np.save(tmp_path / f"{i}.npy", rows)
    words = ("fit", *(f"{i}.npy" for i in range(4)), "-k", 3, "--boolean", "--participation", 0.5, "-q")
    cofactor(*words, cwd=tmp_path)
    model = FederatedBMF(3, participation=0.5, random_state=0).fit(np.array_split(X, 4))
    np.testing.assert_array_equal(np.load(tmp_path / "run" / "factor.npz")["factor"], model.components_)
    assert len((tmp_path / "run" / "history.jsonl").read_text().splitlines()) == model.n_rounds_


def test_features_that_are_pixels_are_shown_as_pictures(tmp_path):
    np.save(tmp_path / "a.npy", np.random.default_rng(0).uniform(size=(30, 12)))
    cofactor("fit", "a.npy", "-k", 2, "--image", "3x4", "-q", cwd=tmp_path)
    assert "picture of 3 by 4 pixels" in (tmp_path / "run" / "report.html").read_text()
    error = cofactor("fit", "a.npy", "-k", 2, "--image", "3x5", "--out", "x", "-q", cwd=tmp_path, check=2).stderr
    assert "image: expected 12 pixels" in error


def test_an_existing_run_is_not_written_over(hospitals, tmp_path):
    folder, _ = hospitals
    cofactor("fit", folder / "ann.csv", "-k", 3, "-q", cwd=tmp_path)
    before = (tmp_path / "run" / "factor.npz").read_bytes()
    error = cofactor("fit", folder / "bob.parquet", "-k", 3, "-q", cwd=tmp_path, check=2).stderr
    assert "already holds a run" in error
    assert (tmp_path / "run" / "factor.npz").read_bytes() == before


def test_changed_inputs_are_not_resumed(tmp_path):
    np.save(tmp_path / "a.npy", np.eye(6))
    cofactor("fit", "a.npy", "-k", 2, "-q", cwd=tmp_path)
    (tmp_path / "run" / "evaluation.json").unlink()
    np.save(tmp_path / "a.npy", np.ones((6, 6)))
    assert "found other contents" in cofactor("resume", "run", cwd=tmp_path, check=2).stderr


def test_one_file_is_cut_into_row_and_column_blocks(hospitals, tmp_path):
    X = np.vstack(hospitals[1])
    np.save(tmp_path / "x.npy", X)
    fit = ("fit", "x.npy", "-k", 4, "--rounds", 12, "-q")
    cofactor(*fit, "--method", "hals", "--out", "one", cwd=tmp_path)
    cofactor(*fit, "--method", "hals", "--split", 3, "--out", "three", cwd=tmp_path)
    method = catalog.make("hals", 4, shape=X.shape, iterations=12)
    outcome = run(method, blocks(X, 1), rounds=method.rounds)
    for name in ("one", "three"):
        np.testing.assert_allclose(np.load(tmp_path / name / "factor.npz")["factor"], outcome.factor, atol=1e-9)
        assert len((tmp_path / name / "history.jsonl").read_text().splitlines()) == 25
    parts = [np.load(tmp_path / "three" / "clients" / f"client-{j}" / "codes.npy") for j in range(3)]
    np.testing.assert_allclose(np.vstack(parts), outcome.codes[0], atol=1e-6)
    cofactor("transform", "three", "x.npy", "--out", "codes.npy", "-q", cwd=tmp_path)
    np.testing.assert_allclose(np.load(tmp_path / "codes.npy"), outcome.codes[0], atol=1e-6)
    assert "pooled" in cofactor("evaluate", "three", "--pooled", cwd=tmp_path).stdout
    error = cofactor("fit", "x.npy", "x.npy", "-k", 4, "--method", "hals", cwd=tmp_path, check=2).stderr
    assert "'hals' works on row and column blocks of one matrix: expected one file" in error
    words = ("fit", "x.npy", "-k", 4, "--method", "dsanls", "--option")
    assert "at least the rank 4. Found 3" in cofactor(*words, "size=3", cwd=tmp_path, check=2).stderr
    assert "at most the sketched side" in cofactor(*words, "size=1000", cwd=tmp_path, check=2).stderr


def test_a_method_is_chosen_and_the_run_says_why(hospitals, tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", np.vstack(hospitals[1]))
    fit = ("fit", "x.npy", "-k", 4, "--rounds", 3, "--method", "auto")
    said = cofactor(*fit, "--out", "small", cwd=tmp_path).stderr
    assert said.startswith("Method exact, because the shorter side of 150 x 24 is below 5000")
    monkeypatch.setattr(auto, "LARGE", 20)
    monkeypatch.setattr(auto, "WIDTHS", 2)
    said = cofactor(*fit, "--out", "large", cwd=tmp_path).stderr
    assert said.startswith("Method dsanls, because 150 x 24 dense values")
    cofactor(*fit, "--split", 2, "--out", "clients", cwd=tmp_path)
    for name, method in (("small", "exact"), ("large", "dsanls"), ("clients", "exact")):
        manifest = json.loads((tmp_path / name / "manifest.json").read_text())
        assert manifest["method"] == method
        assert manifest["config"]["why"].startswith(f"{method}, because ")
