"""What the report says about privacy and about what left a client: only what the files show."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cofactor.report import html

GOOD = {"private": True, "epsilon": 1.0, "delta": 1e-6, "unit": "record", "relation": "add/remove", "text": "a note"}
CLAIM = "All releases of this run together satisfy the printed (eps, delta), add/remove neighbours."
DENIAL = "This run has no (eps, delta) guarantee."
STAYS = "Raw rows and codes never leave a client; each method's messages are listed and tested."


def words(folder: Path, **privacy: Any) -> str:
    if privacy:
        (folder / "privacy.json").write_text(json.dumps(privacy))
    text = re.sub(r"<[^>]+>", "", html.render(folder).read_text(encoding="utf-8").replace("&#39;", "'"))
    return re.sub(r"\s+", " ", text)


def test_a_private_run_prints_its_total(folder: Path) -> None:
    text = words(folder, **GOOD)
    assert CLAIM in text
    assert "ε = 1, δ = 1e-6" in text
    assert DENIAL not in text
    assert "a note" in text


@pytest.mark.parametrize(
    "wrong",
    [
        {"private": False},
        {"epsilon": None},
        {"epsilon": float("inf")},
        {"epsilon": -1.0},
        {"delta": None},
        {"delta": 1.0},
        {"unit": "cell"},
        {"unit": None},
        {"relation": "replace one"},
        {"relation": None},
    ],
)
def test_anything_less_is_no_guarantee(folder: Path, wrong: dict[str, Any]) -> None:
    text = words(folder, **GOOD | wrong)
    assert DENIAL in text
    assert CLAIM not in text


def test_without_a_record_there_is_no_guarantee(folder: Path) -> None:
    text = words(folder)
    assert DENIAL in text
    assert STAYS in text
    assert "secure summation" not in text


def test_secure_summation_is_named_with_its_limits(
    folder: Path, edit: Callable[[Path, Callable[[Any], Any]], None]
) -> None:
    edit(folder / "manifest.json", lambda value: value["config"].update(secure=True))
    assert "the sum itself is disclosed. The cryptography is unaudited" in words(folder)


def test_one_shape_at_unequal_clients_is_shown(folder: Path) -> None:
    assert "Sizes do not depend on rows" in words(folder)


def test_shapes_that_differ_are_a_warning(folder: Path) -> None:
    lines = (folder / "ledger.jsonl").read_text().splitlines()
    last = json.loads(lines[-1])
    (folder / "ledger.jsonl").write_text("\n".join([*lines[:-1], json.dumps(last | {"shape": [73, 10]})]))
    text = words(folder)
    assert f"Clients sent different shapes of {last['array']}" in text
    assert "Sizes do not depend on rows" not in text
    assert STAYS not in text


def test_equal_clients_cannot_show_it(folder: Path, edit: Callable[[Path, Callable[[Any], Any]], None]) -> None:
    edit(folder / "evaluation.json", lambda value: [c.update(rows=7) for c in value["clients"]] and None)
    assert "cannot show whether sizes depend on it" in words(folder)
