"""The site builds without a warning, and its tables say what the methods say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.helpers.scripts import ROOT, load

from cofactor.engines.contract import message_bytes
from cofactor.methods import catalog

tables = load("docs/tables.py")


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    pages = sorted((tmp_path / "site").rglob("index.html"))
    assert len(pages) == len(list((ROOT / "docs").rglob("*.md")))
    for page in pages:
        text = page.read_text()
        assert 'src="http' not in text, f"{page} fetches something"
        assert '<link rel="stylesheet" href="http' not in text, f"{page} fetches something"


def test_the_catalog_page_is_what_the_methods_say() -> None:
    page = tables.PAGE.read_text()
    assert tables.put(page, tables.tables()) == page, "run: python docs/tables.py --write"
    for name in [name for kind in catalog.KINDS for name in catalog.names(kind)]:
        assert f"| `{name}` |" in page


@pytest.mark.parametrize("boolean", [False, True])
def test_the_formulas_give_the_bytes_of_messages(*, boolean: bool) -> None:
    rank, features = 4, 37
    for name in catalog.names("boolean" if boolean else "real"):
        phases = tables.phases(catalog.make(name, tables.RANK), boolean=boolean)
        sent = tables.messages(catalog.make(name, rank), boolean=boolean, features=features)
        for phase in phases:
            message = sent[phase.first]
            shapes = [(array.shape, message.arrays[array.name].shape) for array in phase.arrays]
            sketch = [n for words, shape in shapes for word, n in zip(words, shape, strict=True) if word == "d"]
            formula = tables.formula(phase.arrays)
            assert tables.evaluate(formula, rank, features, *sketch[:1]) == message_bytes(message), name
