"""The picture of the architecture page shows the tree as it is, and the page names files that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from PIL import Image
from tests.helpers.scripts import ROOT, load

PACKAGE = ROOT / "src" / "cofactor"


architecture = load("docs/architecture.py")


def rooms() -> set[str]:
    """Return the rooms of the tree: folders and modules of the package that hold code."""
    files = [path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py")]
    return {path.parts[0].removesuffix(".py") for path in files} - {"__init__", "__main__"}


def test_the_script_draws_every_room_of_the_tree(tmp_path: Path) -> None:
    path = tmp_path / "architecture.png"
    drawn = architecture.draw(path)
    assert set(drawn) == rooms()
    assert architecture.shown(path) == drawn
    with Image.open(path) as picture:
        assert picture.width > 1000
        assert len(picture.getcolors() or []) > 10


def test_the_picture_in_the_docs_is_up_to_date() -> None:
    assert architecture.shown() == architecture.facts(), "run: python docs/architecture.py"


def test_arrows_that_follow_from_others_are_told_apart() -> None:
    graph = {"a": [], "b": ["a"], "c": ["a", "b"], "d": ["a"]}
    assert architecture.needed(graph) == {("b", "a"), ("c", "b"), ("d", "a")}


def test_a_way_through_rooms_that_are_not_there_is_refused() -> None:
    graph = architecture.facts()
    with pytest.raises(ValueError, match="the way leads through 'data', which is no room"):
        architecture.check({room: others for room, others in graph.items() if room != "data"})
    with pytest.raises(ValueError, match="methods does not import 'combine'"):
        architecture.check({**graph, "methods": [other for other in graph["methods"] if other != "combine"]})


def test_the_page_tells_the_stops_of_the_picture_and_names_files_that_exist() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    told = re.findall(r"^\| (\d) (\w+) \|", page, re.MULTILINE)
    assert told == [(str(i), stop.verb) for i, stop in enumerate(architecture.WAY, start=1)]
    for name in re.findall(r"`([\w/]+\.py|[\w/]+/)`", page):
        assert (PACKAGE / name).exists() or (ROOT / name).exists(), name
