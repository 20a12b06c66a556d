"""What the report says about privacy and about what left a client: only what the files show."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cofactor.report import html

GOOD = {
    "private": True,
    "epsilon": 1.0,
    "delta": 1e-6,
    "unit": "record",
    "relation": "add/remove one",
    "text": "a note",
}
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
        {"unit": "client"},  # whose relation is another
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
    assert "the sums themselves are disclosed. The cryptography is unaudited" in words(folder)


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


def test_a_private_run_shows_its_noise_and_withholds_errors(private_run: Path) -> None:
    page = html.render(private_run).read_text(encoding="utf-8").replace("&#39;", "'")
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))
    assert CLAIM[:-1] + ", assuming at least 2 honest clients in every sum. The unit is one record." in text
    assert "ε = 2, δ = 1e-5" in text
    assert "accountant exact Gaussian" in text
    assert (
        "(unit: record; neighbours: add/remove one; accountant: exact Gaussian; assuming at least 2 honest clients"
        in text
    )
    assert "They left under masks: the server saw their sum." in text
    assert "Relative error withheld" in text
    assert "3 clients. Errors, numbers of rows and hashes of the data were computed without noise" in text
    assert "Losses are not released in a private run." in text
    assert "A private run compares no ranks" in text
    entry = json.loads((private_run / "ledger.jsonl").read_text().splitlines()[0])
    assert f"{entry['array']} 1 to 3 1 {entry['noise']:.4g} {entry['multiplier']:.4g} Gaussian" in text
    for client in (private_run / "clients").iterdir():
        own = json.loads((client / "evaluation.json").read_text())
        assert f"{own['error']:.4f}" not in text


def test_an_insecure_seed_is_named(private_run: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(private_run, tmp_path / "run"))
    record = json.loads((folder / "privacy.json").read_text())
    text = words(folder, **record | {"private": False})
    assert "private: no" in text
    assert CLAIM not in text
    assert DENIAL in text
