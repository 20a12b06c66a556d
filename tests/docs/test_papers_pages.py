"""The pages of the papers say what the committed results say, and every result has its experiment and its figure."""

from __future__ import annotations

import re

from tests.helpers.scripts import ROOT, load

from cofactor.reproduce import experiment

papers = load("docs/papers.py")


def test_the_pages_are_what_the_results_say() -> None:
    for path, text in papers.made().items():
        assert text == path.read_text(), f"{path.name}: run python docs/papers.py --write"


def test_every_result_has_its_experiment_its_figure_and_its_command() -> None:
    for result in papers.results():
        name = result["experiment"]
        cells = experiment.find(name).cells(result["size"])
        assert name in result["command"]
        assert (papers.FIGURES / f"{name}.png").exists()
        known = {experiment.key(cell) for cell in cells}
        assert all(experiment.key(line["cell"]) in known for line in result["cells"]), f"run again: {result['command']}"


def test_the_gallery_shows_figures_that_are_there() -> None:
    home = ROOT / "docs" / "papers"
    shown = re.findall(r"\]\(([^)]+\.png)\)", (home / "gallery.md").read_text())
    assert len(shown) >= 9
    assert all((home / name).exists() for name in shown)
