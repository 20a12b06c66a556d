"""The page of defaults is what its results say, of methods and data that exist."""

from __future__ import annotations

import pytest
from tests.helpers.scripts import ROOT, load

from cofactor.data import datasets
from cofactor.engines.history import ENDED
from cofactor.methods import catalog

defaults = load("benchmarks/defaults.py")
LINES = defaults.read(defaults.RESULTS)


def test_the_page_is_made_of_the_results() -> None:
    assert (ROOT / "docs" / "defaults.md").read_text() == defaults.page(defaults.RESULTS)


def test_every_method_and_every_stored_data_set_has_its_cells() -> None:
    cells = list(defaults.cells())
    assert len(set(cells)) == len(cells)
    assert {cell.method for cell in cells} == set(catalog.CATALOG)
    left_out = {"digits", "breast_cancer", "wine", "iris", "cbcl_faces_negative"}  # bundled, or the same pictures
    assert {cell.data for cell in cells} == set(datasets.names()) - left_out


def test_results_are_of_such_cells_and_say_how_they_ended() -> None:
    cells, found = set(defaults.cells()), [defaults.Cell(*(line[n] for n in defaults.Cell._fields)) for line in LINES]
    assert len(set(found)) == len(found)
    assert set(found) <= cells
    assert all(line.get("refused") or line["ended"] in ENDED for line in LINES)


@pytest.mark.parametrize(("name", "most"), [("exact", 1.01), ("oneshot", 1.08), ("fedmavg", 1.05)])
def test_what_the_page_shows_of_the_best_methods(name: str, most: float) -> None:
    ratios = [line["ratio"] for line in LINES if line["method"] == name and line["kind"] == "real"]
    assert max(ratios) <= most


def test_one_upload_is_within_two_percent_of_pooling_unless_clients_have_a_handful_of_rows() -> None:
    ratios = [line["ratio"] for line in LINES if line["method"] == "oneshot" and line["data"] != "gene_all_aml"]
    assert len(ratios) == 26
    assert max(ratios) <= 1.02
