"""The report as text: sections, missing parts, hostile names, size."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cofactor.report import html
from cofactor.types import CofactorError

Edit = Callable[[Path, Callable[[Any], Any]], None]
HOSTILE = "</style></title><script>alert(1)</script>\"'><img src=x onerror=alert(1)>&amp;{{ 7*7 }}\u202e\x00\x1b[31m"


class Page(HTMLParser):
    """Tags and visible words of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def ids(self, tag: str) -> list[str | None]:
        return [attributes.get("id") for name, attributes in self.tags if name == tag]

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))


def page(folder: Path) -> Page:
    return Page(html.render(folder).read_text(encoding="utf-8"))


def test_every_section_stands_in_the_page_and_in_the_navigation(folder: Path) -> None:
    made = page(folder)
    absent = (
        "markers",
        "consensus",
        "events",
        "apart",
    )  # pictures have no markers, one start no consensus, one machine no events, a shared factor no own parts
    expected = [section.id for section in html.SECTIONS if section.id not in absent]
    assert made.ids("section") == expected
    links = [a.get("href") for tag, a in made.tags if tag == "a"]
    assert [link for link in links if link and link != "#content"] == [f"#{name}" for name in expected]
    assert "to add" not in made.text


def test_what_happened_to_the_clients_of_a_federation_is_told(folder: Path) -> None:
    event = {"time": "2026-01-31T10:11:12.345+00:00", "client": "<b>bob</b>", "what": "does not answer"}
    (folder / "events.jsonl").write_text(json.dumps(event) + "\n")
    made = page(folder)
    assert "events" in made.ids("section")
    assert "2026-01-31 10:11:12 UTC <b>bob</b> does not answer" in made.text


def test_the_page_is_one_file_without_scripts_or_addresses(folder: Path) -> None:
    made = page(folder)
    assert not [tag for tag, _ in made.tags if tag in ("script", "iframe", "object", "embed", "base")]
    sources = [a.get(key) or "" for _, a in made.tags for key in ("src", "href") if key in a]
    assert all(source.startswith(("#", "data:")) for source in sources)
    assert not [key for _, a in made.tags for key in a if key.startswith("on")]
    assert "@import" not in made.text


def test_the_numbers_of_the_run_are_printed(folder: Path) -> None:
    text = page(folder).text
    evaluation = json.loads((folder / "evaluation.json").read_text())
    history = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    assert f"{evaluation['error']:.4f}" in text
    for client in evaluation["clients"]:
        assert client["client"] in text
        assert all(f"{client[key]:.4f}" in text for key in ("error", "local_error", "pooled_error"))
    assert f"{len(history)} rounds" in text
    assert json.loads((folder / "manifest.json").read_text())["inputs"][0]["sha256"] in text
    released = sum(json.loads(line)["bytes"] for line in (folder / "ledger.jsonl").read_text().splitlines())
    assert f"{released:,}" in text


def test_the_same_folder_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    assert html.render(folder).read_bytes() == html.render(str(folder), tmp_path / "new" / "b.html").read_bytes()
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["b.html"]


def test_a_folder_as_target_gets_a_report_inside(folder: Path, tmp_path: Path) -> None:
    assert html.render(folder, tmp_path) == tmp_path / "report.html"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("rank.json", "Run cofactor rank with this folder as --out to add rank selection."),
        ("passports.json", "This run has no component passports."),
        ("privacy.json", "This run has no (eps, delta) guarantee."),
    ],
)
def test_a_missing_optional_file_is_named_in_one_line(folder: Path, name: str, words: str) -> None:
    (folder / name).unlink(missing_ok=True)
    made = page(folder)
    assert words in re.sub(r"\s+", " ", made.text.replace(" .", "."))
    assert len(made.ids("section")) == len(html.SECTIONS) - 4 - (name == "passports.json")  # which hold usage too


def test_missing_comparisons_are_named(folder: Path, edit: Edit) -> None:
    def strip(value: dict[str, Any]) -> None:
        value["match"] = None
        for client in value["clients"]:
            client["local_error"] = client["pooled_error"] = client["rmsd"] = None

    edit(folder / "evaluation.json", strip)
    text = page(folder).text
    assert "The clients' own fits are not in this run;" in text
    assert "There is no pooled fit to compare with: it needs all rows in one place." in text
    assert "The match matrix is not in this run;" in text


def test_the_start_of_another_method_is_not_drawn_as_convergence(folder: Path) -> None:
    text = page(folder).text
    assert "Not drawn: round 1, the start" in text
    assert "The loss fell from" in text


def test_lines_without_loss_and_drift(folder: Path) -> None:
    line = {"round": 0, "loss": float("nan"), "drift": None, "bytes_up": 0, "bytes_down": 0}
    line |= {"seconds": 0.0, "participants": 5}
    (folder / "history.jsonl").write_text(json.dumps(line) + "\n")
    text = page(folder).text
    assert "No round of this run reported a loss." in text
    assert "This method does not report a drift." in text


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e308, 0.0, -1.0])
def test_odd_numbers_do_not_stop_the_report(folder: Path, edit: Edit, value: float) -> None:
    def spoil(evaluation: dict[str, Any]) -> None:
        evaluation["error"] = value
        evaluation["clients"] = [c | dict.fromkeys(("error", "pooled_error"), value) for c in evaluation["clients"]]
        evaluation["match"] = [[value for _ in row] for row in evaluation["match"]]

    edit(folder / "evaluation.json", spoil)
    lines = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    odd = dict.fromkeys(("loss", "drift", "seconds", "epsilon"), value)
    (folder / "history.jsonl").write_text("".join(json.dumps(line | odd) + "\n" for line in lines))
    edit(folder / "rank.json", lambda scan: scan.update(heldout_mean=[value] * 7, heldout_std=[value] * 7))
    text = html.render(folder).read_text(encoding="utf-8")
    assert "nan" not in re.sub(r"base64,\S+", "", text)


@pytest.mark.parametrize("pictures", [True, False])
def test_hostile_names_are_text(folder: Path, edit: Edit, pictures: bool) -> None:
    def rename(value: Any) -> None:
        clients = value["inputs"] if "inputs" in value else value["clients"]
        for client in clients:
            client["client"] = HOSTILE
        if "inputs" in value:
            value |= {"method": HOSTILE, "config": {HOSTILE: HOSTILE, "a": {"b": HOSTILE}}, "created": HOSTILE}

    before = page(folder)
    edit(folder / "evaluation.json", rename)
    edit(folder / "manifest.json", rename)
    edit(folder / "rank.json", lambda value: value.update(reason=HOSTILE + "\ud800"))
    edit(folder / "passports.json", lambda value: [p | {"top_features": [[HOSTILE, 1.0]]} for p in value])
    stored = dict(np.load(folder / "factor.npz"))
    if not pictures:
        del stored["image_shape"]
    np.savez(folder / "factor.npz", **stored | {"feature_names": np.array([HOSTILE + "x"] * 64)})
    release = {"client": HOSTILE, "round": 1, "array": HOSTILE, "shape": [1], "dtype": HOSTILE, "bytes": 1}
    (folder / "ledger.jsonl").write_text(json.dumps(release | {"clip": HOSTILE}))
    after = page(folder)
    kinds = [{tag for tag, _ in made.tags} for made in (before, after)]
    assert kinds[1] <= kinds[0] | {"ol", "li", "summary", "details"}
    assert not [key for _, a in after.tags for key in a if key.startswith("on")]
    raw = (folder / "report.html").read_text(encoding="utf-8")
    assert "{{ 7*7 }}" in raw
    assert not set("\u202e\x00\x1b") & set(raw)


def test_a_large_run_stays_small(large: Path) -> None:
    target = html.render(large)
    assert target.stat().st_size < 1_000_000
    made = Page(target.read_text(encoding="utf-8"))
    assert "Table of 200 clients" in made.text
    assert "The other 38 components" in made.text


def test_pictures_follow_the_stored_order(folder: Path) -> None:
    stored = dict(np.load(folder / "factor.npz"))
    first = html.render(folder).read_text(encoding="utf-8")
    turned = stored["factor"].reshape(-1, 8, 8).transpose(0, 2, 1).reshape(-1, 64)
    np.savez(folder / "factor.npz", **stored | {"factor": turned, "image_order": "F"})
    pictures = [re.findall(r"data:image/png[^\"]+", text) for text in (first, html.render(folder).read_text())]
    assert pictures[0] == pictures[1]
    assert len(pictures[0]) == len(turned)


def test_an_unwritable_target_is_one_error(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CofactorError, match="expected to write"):
        html.render(folder, tmp_path / "file" / "report.html")


def test_one_round_is_no_curve(folder: Path) -> None:
    """A line of one point was drawn for whatever was sent at once."""
    line = (folder / "history.jsonl").read_text().splitlines()[-1]
    assert "Bytes sent so far" in page(folder).text
    (folder / "history.jsonl").write_text(line + "\n")
    text = page(folder).text
    assert "One round reported a loss" in text
    assert "Loss by round" not in text
    assert "Bytes sent so far" not in text
