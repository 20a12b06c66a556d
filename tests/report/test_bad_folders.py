"""Damaged and missing files: one error that names the file, what was expected and what was found."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cofactor.report import html
from cofactor.types import CofactorError

OVER = ("factor.npz", "evaluation.json")
"""What only a finished run has."""
Edit = Callable[[Path, Callable[[Any], Any]], None]


def fails(folder: Path, *parts: str) -> None:
    """Expect one line with all parts, and no report."""
    with pytest.raises(CofactorError) as caught:
        html.render(folder)
    message = str(caught.value)
    assert "expected" in message
    assert "found" in message
    assert "\n" not in message.rstrip()
    assert all(part in message for part in parts), message
    assert not (folder / "report.html").exists()


@pytest.mark.parametrize("name", ["manifest.json", "history.jsonl", "factor.npz", "evaluation.json", "ledger.jsonl"])
def test_required_files(folder: Path, name: str) -> None:
    (folder / name).unlink()
    fails(folder, name, "found none", *([f"`cofactor resume {folder}` ends it"] if name in OVER else []))


@pytest.mark.parametrize(
    "name", ["manifest.json", "evaluation.json", "passports.json", "rank.json", "history.jsonl", "ledger.jsonl"]
)
def test_truncated_and_binary_text(folder: Path, name: str) -> None:
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content.rstrip()[:-1])  # inside the last record: half of the file may end at a line
    fails(folder, name, "JSON")
    (folder / name).write_bytes(b"\xff\xfe\x00" + content)
    fails(folder, name, "UTF-8")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"no archive", None])
def test_damaged_factor(folder: Path, content: bytes | None) -> None:
    whole = (folder / "factor.npz").read_bytes()
    (folder / "factor.npz").write_bytes(whole[: len(whole) // 2] if content is None else content)
    fails(folder, "factor.npz")


@pytest.mark.parametrize(
    ("arrays", "part"),
    [
        ({"H": np.ones((2, 3))}, "'factor'"),
        ({"factor": np.ones(3)}, "k x m"),
        ({"factor": np.full((2, 3), np.nan)}, "finite"),
        ({"factor": np.ones((2, 3)), "feature_names": ["a"]}, "3 feature_names"),
        ({"factor": np.ones((2, 3)), "image_shape": [2, 2]}, "product 3"),
        ({"factor": np.ones((2, 4)), "image_shape": [2, 2], "image_order": "Z"}, "'Z'"),
        ({"factor": np.array([[object()]])}, "archive"),
    ],
)
def test_wrong_factor(folder: Path, arrays: dict[str, Any], part: str) -> None:
    np.savez(folder / "factor.npz", **arrays)
    fails(folder, "factor.npz", part)


@pytest.mark.parametrize(
    ("name", "change", "part"),
    [
        ("manifest.json", lambda v: [], "an object"),
        ("manifest.json", lambda v: v.pop("method") and None, "'method'"),
        ("manifest.json", lambda v: v.update(rank="ten"), "rank: expected a whole number, found 'ten'"),
        ("manifest.json", lambda v: v.update(seed=True), "seed"),
        ("manifest.json", lambda v: v["inputs"][1].pop("rows") and None, "inputs[1]"),
        ("evaluation.json", lambda v: v.update(clients=[]), "at least one client"),
        ("evaluation.json", lambda v: v["clients"][0].update(error=None), "clients[0]: error"),
        ("evaluation.json", lambda v: v.update(match=[[1.0]]), "10 x 5"),
        ("passports.json", lambda v: {}, "a list"),
        ("passports.json", lambda v: v[0].update(component=99), "0 to 9"),
        ("passports.json", lambda v: v[0].update(top_features=["a"]), "pairs"),
        ("rank.json", lambda v: v["heldout_std"].pop() and None, "heldout_std"),
        ("rank.json", lambda v: v.update(suggestion=None), "suggestion"),
    ],
)
def test_wrong_content(folder: Path, edit: Edit, name: str, change: Callable[[Any], Any], part: str) -> None:
    edit(folder / name, change)
    fails(folder, name, part)


def test_bad_lines_are_counted(folder: Path) -> None:
    lines = (folder / "history.jsonl").read_text().splitlines()
    lines[2] = json.dumps(json.loads(lines[2]) | {"bytes_up": "many"})
    (folder / "history.jsonl").write_text("\n".join(lines))
    fails(folder, "history.jsonl, line 3: bytes_up", "'many'")
    (folder / "history.jsonl").write_text("")
    fails(folder, "at least one round")


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(CofactorError, match=re.escape("expected a run folder, found nothing")):
        html.render(tmp_path / "absent")
    (tmp_path / "file").write_text("")
    with pytest.raises(CofactorError, match="found a file"):
        html.render(tmp_path / "file")


def test_a_bad_folder_leaves_an_old_report_alone(folder: Path) -> None:
    before = html.render(folder).read_bytes()
    (folder / "evaluation.json").write_text("{")
    with pytest.raises(CofactorError):
        html.render(folder)
    assert (folder / "report.html").read_bytes() == before
