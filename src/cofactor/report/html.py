"""The report: one HTML file from a run folder, with everything inside it and nothing fetched."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any, NamedTuple

from cofactor.files import atomic
from cofactor.report import words
from cofactor.report.charts import finite
from cofactor.report.contents import Folder, read
from cofactor.report.meanings import meaning, why_alone
from cofactor.report.sections import agreement, components, overview, quality, tiles, traffic, usage
from cofactor.types import CofactorError


class Section(NamedTuple):
    """One section: its anchor, its heading and what its template prints."""

    id: str
    title: str
    build: Callable[[Folder], Any]


SECTIONS = [
    Section("summary", "Summary", overview.summary),
    Section("convergence", "Convergence", quality.convergence),
    Section("clients", "Clients", quality.clients),
    Section("drift", "Drift and match", quality.drift),
    Section("components", "Components", components.components),
    Section("markers", "Markers", components.markers),
    Section("usage", "Usage by client", usage.usage),
    Section("apart", "Shared and own", usage.apart),
    Section("consensus", "Consensus", agreement.agreement),
    Section("rank", "Rank selection", components.rank),
    Section("communication", "Communication", traffic.communication),
    Section("ledger", "What left each client", traffic.ledger),
    Section("privacy", "Privacy", traffic.privacy),
    Section("events", "What happened", lambda folder: folder.events),
    Section("settings", "Settings", overview.settings),
]
FILTERS = [
    words.number,
    words.fixed,
    words.size,
    words.duration,
    words.percent,
    words.moment,
    words.counted,
    words.measure,
]


BOOLEAN = Section("boolean", "Boolean view", tiles.view)
"""Shown on request only: its pictures are rows."""


def render(run: Path | str, out: Path | None = None, *, pictures: bool = False) -> Path:
    """Write the report of a run folder and return its path: ``out``, by default ``report.html`` in the folder.

    ``pictures`` adds the Boolean view, which shows rows of the clients.

    The page is one file without scripts: style, charts and pictures are inside it, and its content policy forbids
    every request. The same folder gives the same bytes.
    """
    folder = read(Path(run))
    path = Path(out) if out is not None else folder.path / "report.html"
    path = path / "report.html" if path.is_dir() else path
    _write(path, page(folder, pictures=pictures).encode("utf-8", "replace"))
    return path


def page(folder: Folder, *, pictures: bool = False) -> str:
    """Return the report as HTML text."""
    try:
        from jinja2 import Environment, FileSystemBytecodeCache, PackageLoader, StrictUndefined
    except ImportError:
        raise CofactorError(
            "report: expected jinja2, found none. Install it by: pip install 'cofactor[cli]'."
        ) from None
    kept = Path(cache_from_source(__file__)).parent  # compiled as modules are: a fifth of a second of every report
    keeps = not sys.dont_write_bytecode and os.access(kept, os.W_OK)
    environment = Environment(
        loader=PackageLoader("cofactor.report"),
        bytecode_cache=FileSystemBytecodeCache(str(kept), "%s.jinja") if keeps else None,
        autoescape=True,
        undefined=StrictUndefined,
        finalize=words.clean,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update({function.__name__: function for function in FILTERS})
    sections = sections_of(folder, pictures=pictures)
    content = {section.id: section.build(folder) for section in sections}
    return environment.get_template("report.html.j2").render(run=folder, sections=sections, content=content)


def sections_of(folder: Folder, *, pictures: bool = False) -> list[Section]:
    """Return the sections that a run has: none about what its kind of data cannot have."""
    alone, drifted = why_alone(folder), finite([line.drift for line in folder.history])
    absent = {"rank": folder.rank is None and not meaning(folder).ranks, "drift": alone and not drifted}
    absent["markers"] = folder.factor.scores is None or folder.factor.image_shape is not None
    absent["consensus"] = folder.factor.clustergram is None
    absent["events"] = folder.events is None
    absent |= {"usage": usage.usage(folder) is None, "apart": not usage.has_own(folder)}
    found = [section for section in SECTIONS if not absent.get(section.id)]
    if alone:
        found = [section._replace(title="Drift") if section.id == "drift" else section for section in found]
    if pictures:
        found.insert([section.id for section in found].index("components") + 1, BOOLEAN)
    return found


def _write(path: Path, content: bytes) -> None:
    """Write the page; it is there as a whole or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic(path) as stream:
            stream.write(content)
    except OSError as error:
        raise CofactorError(f"report: expected to write {path}, found: {error.strerror or error}.") from None
