"""A report of every kind of run says all that the run has, and why the rest cannot be there."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.helpers.command import cofactor
from tests.helpers.samples import SAMPLES, write

from cofactor.jobs import judge
from cofactor.records import Line
from cofactor.report import contents, html
from cofactor.report.meanings import LARGE
from cofactor.report.sections.quality import split_stages
from cofactor.report.sections.tiles import tiles

Edit = Callable[[Path, Callable[[Any], Any]], None]
ALONE = "There are no fits of clients alone to compare with: "
WHY = {
    "union": "clients lack features",
    "boolean": "parts of an OR do not add up",
    "swept": "parts of an OR do not add up",
    "ratings": "the few ratings of a client",
    "several": "the few ratings of a client",
    "clicks": "the few ratings of a client",
    "clusters": "a row belongs to one centre",
    "blocks": "each holds blocks of one matrix",
    "secure": "nothing of a single client is to be seen",
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("kinds"))


@pytest.fixture(scope="module")
def runs(home: Path) -> Callable[[str], Path]:
    """Fit a sample once; return its folder."""

    def fitted(name: str) -> Path:
        if not (home / name).exists():
            cofactor("fit", *SAMPLES[name].words(), "--out", name, "-q", cwd=home)
        return home / name

    return fitted


def text_of(page: Path) -> str:
    words = re.sub(r"<style>.*?</style>|<[^>]+>", " ", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return re.sub(r"\s+", " ", words.replace("&#39;", "'"))


def test_rows_between_centres_belong_to_no_single_one(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.random.default_rng(0).normal(size=(20, 3)))
    cofactor("fit", "a.npy", "-k", 2, "--method", "simplex", "--rounds", 3, "--out", "run", "-q", cwd=tmp_path)
    text = text_of(tmp_path / "run" / "report.html")
    assert "their points between the centres" in text
    assert "shares of centres add up to 1 in every row" in text
    assert "nearest centre" not in text


def test_a_report_of_another_loss_says_what_it_minimizes(tmp_path: Path) -> None:
    for j in range(2):
        np.save(tmp_path / f"{j}.npy", np.random.default_rng(j).poisson(3.0, (30, 6)))
    cofactor("fit", "0.npy", "1.npy", "-k", 2, "--method", "exact-beta", "--out", "run", "-q", cwd=tmp_path)
    text = text_of(tmp_path / "run" / "report.html")
    assert "the divergence of the model from the data, summed over clients" in text
    assert "Own fits are least squares" in text
    assert "half the squared distance" not in text


def test_a_report_says_which_rows_it_shows_instead_of_that_none_leave(tmp_path: Path) -> None:
    """A centre of one row is that row; so are the tiles of a client that has hardly any rows."""
    rng = np.random.default_rng(0)
    clusters = np.vstack([rng.normal(-9, 1, (30, 4)), rng.normal(9, 1, (30, 4))])
    np.save(tmp_path / "a.npy", np.vstack([clusters[::2], np.full((1, 4), 70.0)]))
    np.save(tmp_path / "b.npy", clusters[1::2])
    said = cofactor("fit", "a.npy", "b.npy", "-k", 3, "--method", "k-means", "--out", "km", cwd=tmp_path).stdout
    text = text_of(tmp_path / "km" / "report.html")
    for found in (" ".join(said.split()), text.replace("Centre", "centre")):
        assert re.search(r"centre \d is a single row: the shared factor holds it as it is", found)
    assert "never leave" not in text
    assert "own local fit" not in said  # a column of nothing
    assert re.search(r"Centre 0 .* size \d+ rows? \(", text)
    page = (tmp_path / "km" / "report.html").read_text()
    assert '<ol class="tops signed"' in page
    assert '<li class="below"' in page
    bits = (rng.random((30, 12)) < 0.3).astype(int)
    np.save(tmp_path / "many.npy", bits)
    np.save(tmp_path / "one.npy", bits[:1])
    words = ("-k", 2, "--boolean", "--method", "asso", "--out", "bits", "-q")
    cofactor("fit", "many.npy", "one.npy", *words, cwd=tmp_path)
    text = text_of(tmp_path / "bits" / "report.html")
    assert "Clients with no more rows than there are components (2): one." in text
    assert "never leave" not in text


@pytest.mark.parametrize("name", SAMPLES)
def test_a_report_never_misses_what_a_fit_should_have_made(runs: Callable[[str], Path], name: str) -> None:
    text = text_of(runs(name) / "report.html")
    assert "not in this run" not in text
    assert "cofactor fit writes" not in text
    compared = name in ("real", "averaged")
    assert (ALONE in text) == (name in WHY)
    assert WHY.get(name, "") in text
    assert ("Match of components and clients" in text) == (compared or name == "private")
    assert ("stability" in text) == compared
    assert (runs(name) / "passports.json").exists() == compared
    assert ("cofactor rank" in text) == (name in ("real", "averaged", "blocks", "secure"))
    assert ("cofactor evaluate --pooled" in text) == (name in ("real", "averaged", "blocks", "secure"))


@pytest.mark.parametrize("name", ["ratings", "several", "clicks"])
def test_ratings_show_how_well_they_are_predicted_and_ranked(runs: Callable[[str], Path], name: str) -> None:
    text, result = (text_of(runs(name) / "report.html"), json.loads((runs(name) / "evaluation.json").read_text()))
    training, held = result["parts"]
    assert f"{training['ratings']:,}" in text
    assert f"{held['part']} {held['ratings']}" in text
    assert f"NDCG@10 {held['ranking']['ndcg@10']:.4f} {held['ratings']} ratings, {held['part']}" in text
    if name == "clicks":
        assert held["rmse"] is None
    else:
        assert f"RMSE {held['rmse']:.4f} {held['ratings']} ratings, {held['part']}" in text
        assert f"{training['rmse']:.4f}" in text
    assert "24 users and 15 items" in text
    assert ("1 user each" if name != "several" else "8 users each") in text


def test_a_boolean_component_is_a_set_of_features(runs: Callable[[str], Path]) -> None:
    text = text_of(runs("boolean") / "report.html")
    assert "Each component is a set of features, of 12 features in all" in text
    assert re.search(r"size \d+ features support \d+ rows \(\d+(\.\d+)? %\) precision \d+(\.\d+)? %", text)
    assert "1.00" not in text
    pictures = text_of(html.render(runs("boolean"), runs("boolean") / "pictures.html", pictures=True))
    assert "Boolean view" in pictures


def test_tiles_are_counted_over_all_clients(runs: Callable[[str], Path], tmp_path: Path) -> None:
    folder = contents.read(runs("boolean"))
    found, H = tiles(folder), folder.factor.H
    assert found is not None
    paths = sorted((runs("boolean") / "clients").iterdir())
    W = np.vstack([np.load(path / "codes.npy") for path in paths])
    assert [tile.support for tile in found] == W.sum(axis=0, dtype=int).tolist()
    assert [tile.size for tile in found] == H.sum(axis=1, dtype=int).tolist()
    assert {tile.rows for tile in found} == {len(W)}
    assert all(tile.precision > 0.5 for tile in found if tile.support)
    copy = Path(shutil.copytree(runs("boolean"), tmp_path / "run"))
    (copy / "clients" / paths[0].name / "view.npz").unlink()
    assert tiles(contents.read(copy)) is None
    assert "support" not in text_of(html.render(copy))


def test_pictures_are_shown_under_the_names_of_the_clients(runs: Callable[[str], Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(runs("boolean"), tmp_path / "run"))
    (folder / "clients" / "a-bits").rename(folder / "clients" / "ward%201")
    assert "<bdi>ward 1</bdi>" in html.render(folder, pictures=True).read_text()


def test_data_too_large_to_compare_are_named(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "LOCAL_CELLS", 10)
    files = [home / name for name in SAMPLES["real"].files]
    cofactor("fit", *files, "-k", 3, "--rounds", 3, "-q", cwd=tmp_path)
    text = text_of(tmp_path / "run" / "report.html")
    assert LARGE in text
    assert "not in this run" not in text


def test_what_was_sent_many_times_over_is_named(runs: Callable[[str], Path], tmp_path: Path, edit: Edit) -> None:
    folder = Path(shutil.copytree(runs("ratings"), tmp_path / "run"))
    assert "times what the data themselves would take" in text_of(html.render(folder))
    edit(folder / "evaluation.json", lambda value: [part.update(ratings=10**6) for part in value["parts"]] and None)
    assert "times what the data themselves" not in text_of(html.render(folder))
    assert "times what the data themselves" not in text_of(html.render(runs("real")))


def line(t: int, stage: int) -> Line:
    return Line(t, 1.0, 0, 0, 0.0, 1, stage=stage)


@pytest.mark.parametrize(
    ("stages", "drawn"),
    [([0, 0, 0], [0, 1, 2]), ([0, 1, 1], [1, 2]), ([0, 0, 0, 1], [0, 1, 2]), ([0, 1], [1]), ([0, 0, 1, 1], [2, 3])],
)
def test_losses_are_drawn_of_one_stage(stages: list[int], drawn: list[int]) -> None:
    history = [line(t, stage) for t, stage in enumerate(stages)]
    others, main = split_stages(history)
    assert [r.round for r in main] == drawn
    assert sorted(r.round for r in others + main) == list(range(len(stages)))


def test_rounds_of_other_stages_are_named(runs: Callable[[str], Path]) -> None:
    assert "Not drawn: round 1, the start, in which clients did other work" in text_of(runs("real") / "report.html")
    assert "Not drawn: rounds 6 to 8, the end" in text_of(runs("swept") / "report.html")
    assert "Not drawn" not in text_of(runs("averaged") / "report.html")
