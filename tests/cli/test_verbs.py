"""What comes after a fit: new rows, errors, passports, ranks, and what is said where there is no answer."""

import io
import json
import re
import sys
from importlib.metadata import version

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import nnls
from tests.helpers.command import cofactor

from cofactor import FederatedNMF
from cofactor.cli import main
from cofactor.data import synthetic


def test_transform_gives_the_codes_of_new_rows(hospitals, tmp_path):
    folder, Xs = hospitals
    cofactor("fit", folder / "ann.csv", folder / "bob.parquet", "-k", 4, "-q", cwd=tmp_path)
    cofactor("transform", "run", folder / "cyd.tsv", "--out", "codes.npy", cwd=tmp_path)
    model = FederatedNMF(4, random_state=0).fit(Xs[:2])
    np.testing.assert_allclose(np.load(tmp_path / "codes.npy"), model.transform(Xs[2]), atol=1e-9)


def test_transform_takes_rows_that_lack_features(hospitals, tmp_path):
    folder, Xs = hospitals
    cofactor("fit", folder / "ann.csv", folder / "bob.parquet", "-k", 4, "-q", cwd=tmp_path)
    names = [f"gene{i}" for i in range(24)]
    pd.DataFrame(Xs[2][:, 4:], columns=names[4:]).to_csv(tmp_path / "less.csv", index=False)
    cofactor("transform", "run", "less.csv", "-q", cwd=tmp_path)
    H = np.load(tmp_path / "run" / "factor.npz")["factor"]
    expected = [nnls(H[:, 4:].T, x)[0] for x in Xs[2][:, 4:]]
    np.testing.assert_allclose(np.load(tmp_path / "codes.npy"), expected, atol=1e-4)
    pd.DataFrame(Xs[2], columns=[*names[:-1], "tp53"]).to_csv(tmp_path / "other.csv", index=False)
    assert "found also 'tp53'" in cofactor("transform", "run", "other.csv", cwd=tmp_path, check=2).stderr


def test_the_verbs_that_only_show_something(hospitals, tmp_path):
    folder, _ = hospitals
    cofactor("fit", folder / "ann.csv", "-k", 3, "-q", cwd=tmp_path)
    assert "ann" in cofactor("evaluate", "run", cwd=tmp_path).stdout
    found = json.loads(cofactor("methods", "--json", cwd=tmp_path).stdout)
    assert found[0]["name"] == "exact"
    bits = next(line for line in found if line["name"] == "asso")  # as it runs, with sweeps that send counts, too
    assert (bits["rounds"], bits["sends"]) == ("4", "factor, loss; then cells, overlap, uncovered, error")
    assert json.loads(cofactor("doctor", "--json", cwd=tmp_path).stdout)["small run"] == "ok"
    assert cofactor("report", "run", "--out", "page.html", cwd=tmp_path).stdout.strip() == "page.html"
    shown = "fit resume transform evaluate rank passports consensus report methods doctor demo"
    for verb in shown.split():
        assert "Example: cofactor" in cofactor(verb, "--help", cwd=tmp_path).stdout


def test_a_consensus_is_a_fit_by_its_method_that_is_settled_on_the_rows(hospitals, tmp_path):
    folder, Xs = hospitals
    words = (folder / "ann.csv", folder / "bob.parquet", "-k", 3, "-q")
    cofactor("consensus", *words, "--starts", 6, "--option", "local_rank=6", cwd=tmp_path)
    options = [x for name in ("starts=6", "settles=30", "local_rank=6") for x in ("--option", name)]
    cofactor("fit", *words, "--method", "consensus", *options, "--out", "same", cwd=tmp_path)
    one, two = (np.load(tmp_path / run / "factor.npz") for run in ("run", "same"))
    np.testing.assert_array_equal(one["factor"], two["factor"])
    assert one["clustergram"].any()
    assert len((tmp_path / "run" / "history.jsonl").read_text().splitlines()) == 31
    model = FederatedNMF(3, consensus=6, random_state=0, options={"local_rank": 6}).fit(Xs[:2])
    for name, found in (("factor", model.components_), ("silhouette", model.silhouette_)):
        np.testing.assert_array_equal(one[name], found)
    np.testing.assert_array_equal(one["clustergram"], model.clustergram_)
    model.save(tmp_path / "model.npz")
    again = FederatedNMF.load(tmp_path / "model.npz")
    assert again.consensus == 6
    np.testing.assert_array_equal(again.transform(Xs[2]), model.transform(Xs[2]))
    ids = re.findall(r'<section[^>]* id="(\w+)"', (tmp_path / "run" / "report.html").read_text())
    assert {"markers", "consensus"} <= set(ids)  # features have names, and there were starts
    assert "No such option" in cofactor("consensus", *words, "--secure", cwd=tmp_path, check=2).stderr


def test_one_file_with_gaps_is_a_run_with_markers(hospitals, tmp_path):
    _, Xs = hospitals
    names = [f"gene{i}" for i in range(24)]
    rows = pd.DataFrame(Xs[0], columns=names).mask(np.random.default_rng(0).uniform(size=Xs[0].shape) < 0.1)
    rows["gene7"] = np.nan
    rows.to_csv(tmp_path / "rows.csv", index=False)
    words = ("rows.csv", "-k", 3, "--method", "exact-gaps", "--rounds", 20, "--tol", 0)
    lacking = "eatures that nobody observed, but for rows of zeros: gene7; nothing is known"
    assert lacking in " ".join(cofactor("fit", *words, cwd=tmp_path).stdout.split())
    found = json.loads(cofactor("markers", "run", "--top", 5, "--json", cwd=tmp_path).stdout)
    with pytest.warns(UserWarning, match=lacking):
        model = FederatedNMF(3, method="exact-gaps", rounds=20, tol=0, random_state=0).fit(rows)
    assert [(m["component"], m["feature"]) for m in found] == [(m.component, m.feature) for m in model.markers(top=5)]
    shown = (tmp_path / "run" / "report.html").read_text()
    assert 'id="markers"' in shown
    assert "Features that nobody observed" in shown
    refused = cofactor("fit", *words, "--prepare", "log1p", "--out", "other", cwd=tmp_path, check=2).stderr
    assert "prepare: expected none where cells, NaN, were not observed" in refused


def test_the_version_is_printed(tmp_path):
    assert cofactor("--version", cwd=tmp_path).stdout == f"cofactor {version('cofactor')}\n"


def test_rank_and_passports_are_printed_kept_and_shown_in_the_report(hospitals, tmp_path):
    folder, _Xs = hospitals
    files = [folder / f for f in ("ann.csv", "bob.parquet", "cyd.tsv")]
    words = ("-k", "2:6", "--seeds", 2, "--out", "run", "--json")
    scan = json.loads(cofactor("rank", *files, *words, cwd=tmp_path).stdout)
    assert scan["ranks"] == [2, 3, 4, 5, 6]
    assert scan["suggestion"] == 4
    assert (tmp_path / "run" / "rank.png").stat().st_size > 10_000
    cofactor("fit", *files, "-k", 4, "-q", "--out", "run", cwd=tmp_path)
    shown = json.loads(cofactor("passports", "run", "--json", cwd=tmp_path).stdout)
    assert [p["clients_found"] for p in shown] == [3] * 4
    assert sum(p["share"] for p in shown) == pytest.approx(1)
    assert shown[0]["top_features"][0][0].startswith("gene")
    page = (tmp_path / "run" / "report.html").read_text()
    assert scan["reason"][:30] in page
    assert "Suggested" in cofactor("rank", *files, "-k", "3,4", "--seeds", 2, cwd=tmp_path).stdout


def test_a_pooled_bound_is_added_on_request(hospitals, tmp_path):
    folder, _ = hospitals
    cofactor("fit", folder / "ann.csv", folder / "bob.parquet", "-k", 4, "-q", cwd=tmp_path)
    before = json.loads(cofactor("evaluate", "run", "--json", cwd=tmp_path).stdout)
    assert before["clients"][0]["pooled_error"] is None
    after = json.loads(cofactor("evaluate", "run", "--pooled", "--json", cwd=tmp_path).stdout)
    assert after["pooled_error"] == pytest.approx(after["error"], rel=0.02)
    assert after["clients"][1]["pooled_error"] > 0


def test_verbs_on_runs_that_have_no_answer_say_why(hospitals, tmp_path):
    folder, Xs = hospitals
    np.save(tmp_path / "bits.npy", synthetic.tiles(60, 12, 2, noise=0.0, seed=0).X)
    cofactor("fit", "bits.npy", "-k", 2, "--boolean", "-q", "--out", "bits", cwd=tmp_path)
    asked = {
        ("passports", "bits"): "bits: has no passports: they compare components with those of clients alone",
        ("evaluate", "bits", "--pooled"): "a pooled bound is there for non-negative numbers",
        ("report", "bits", "--out", "bits/manifest.json/x"): "expected to write",
        ("transform", "bits", folder / "ann.csv"): "ann.csv",
    }
    pd.DataFrame(Xs[0][:, 1:], columns=[f"gene{i}" for i in range(1, 24)]).to_csv(tmp_path / "less.csv", index=False)
    asked["rank", folder / "ann.csv", "less.csv", "--features", "union"] = "a rank scan needs the same features"
    asked["rank", folder / "ann.csv", "less.csv"] = "gene0"
    for words, text in asked.items():
        error = cofactor(*words, cwd=tmp_path, check=2).stderr
        assert text in error
        assert error.count("\n") == 1
    (tmp_path / "bits" / "evaluation.json").unlink()
    for verb in ("passports", "evaluate"):
        assert "`cofactor resume bits` ends it" in cofactor(verb, "bits", cwd=tmp_path, check=2).stderr


def test_a_run_on_common_features_transforms_its_own_inputs(hospitals, tmp_path):
    folder, Xs = hospitals
    pd.DataFrame(Xs[1][:, 4:], columns=[f"gene{i}" for i in range(4, 24)]).to_csv(tmp_path / "less.csv", index=False)
    for how in ("intersection", "union"):
        files = (folder / "ann.csv", "less.csv")
        cofactor("fit", *files, "-k", 3, "--features", how, "--out", how, "-q", cwd=tmp_path)
        for file, name in zip(files, ("ann", "less")):
            cofactor("transform", how, file, "-q", cwd=tmp_path)
            own = np.load(tmp_path / how / "clients" / name / "codes.npy")
            np.testing.assert_allclose(np.load(tmp_path / "codes.npy"), own, atol=1e-5)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_names_are_printed_where_the_locale_has_no_letters_for_them(tmp_path, monkeypatch, encoding):
    """A run that was complete ended in a traceback, and a table of titles in nothing else."""
    np.save(tmp_path / "\u6620\u753b.npy", np.random.default_rng(0).random((20, 6)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["cofactor", "fit", "\u6620\u753b.npy", "-k", "2", "--out", "run"])
    printed = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed, encoding, write_through=True))
    with pytest.raises(SystemExit) as done:
        main()
    assert not done.value.code
    assert rb"\u6620\u753b" in printed.getvalue()
