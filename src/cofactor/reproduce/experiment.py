"""What an experiment is: a TOML file that declares cells, claims, tables and panels, and nothing that it measures."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module, resources
from itertools import product
from pathlib import Path
from typing import Any

from cofactor.methods import catalog
from cofactor.types import CofactorError, unknown

PACKAGE = "cofactor_papers"
"""Where the declarations and their own code live."""
SIZES = ("full", "quick")
Settings = dict[str, Any]
Where = Mapping[str, Any]

KEYS = {
    "paper": str,
    "title": str,
    "run": str,
    "seeds": list,
    "note": str,
    "alone": bool,
    "settings": dict,
    "methods": dict,
    "names": dict,
    "grid": list,
    "quick": dict,
    "claims": list,
    "tables": list,
    "panels": list,
    "layout": dict,
}
NEEDED = ("paper", "title", "run", "grid", "claims")


@dataclass(frozen=True)
class Experiment:
    """One figure or table of a paper: ``run`` names the function that measures a cell, ``grid`` what is crossed.

    A cell is a pure function of its settings: common ``settings``, one point of the ``grid``, one seed, and under
    "spec" what ``methods`` says about its method. ``names`` says what values of the grid are called. ``quick`` replaces
    seeds, settings and values of the grid by smaller ones. ``alone``: cells measure real time of several processes, and
    nothing may run beside them.
    """

    name: str
    paper: str
    title: str
    run: str
    grid: list[Settings]
    claims: list[Settings]
    seeds: list[int] = field(default_factory=lambda: [0])
    note: str = ""
    alone: bool = False
    settings: Settings = field(default_factory=dict)
    methods: dict[str, Settings] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    quick: Settings = field(default_factory=dict)
    tables: list[Settings] = field(default_factory=list)
    panels: list[Settings] = field(default_factory=list)
    layout: Settings = field(default_factory=dict)

    def cells(self, size: str = "full", seeds: int | None = None) -> list[Settings]:
        """Return the settings of every cell of a size, in the order of the grid, seeds last; or of its first seeds."""
        smaller = self.quick if size == "quick" else {}
        settings = {**self.settings, **{k: v for k, v in smaller.items() if k in self.settings}}
        grid = smaller.get("grid", [_narrowed(part, smaller) for part in self.grid])
        drawn = smaller.get("seeds", self.seeds)[:seeds]
        found = [{**settings, **point, "seed": s} for part in grid for point in _points(part) for s in drawn]
        return [{**cell, **self._spec(cell)} for cell in {key(c): c for c in found}.values()]

    def _spec(self, cell: Where) -> Settings:
        return {"spec": self.methods[cell["method"]]} if cell.get("method") in self.methods else {}

    def label(self, name: Any) -> str:
        """Return what a value of the grid is called in tables and figures."""
        if not isinstance(name, str):
            return f"{name:g}"
        return str(self.methods.get(name, {}).get("label", self.names.get(name, name)))

    def ours(self, name: Any) -> bool:
        """Whether a method is one of cofactor's own."""
        return isinstance(name, str) and bool(self.methods.get(name, {}).get("ours"))

    def measure(self, cell: Settings) -> dict[str, Any]:
        """Run one cell."""
        module, _, function = self.run.partition(":")
        found: dict[str, Any] = vars(import_module(module))[function](cell)
        return found


def key(cell: Where) -> str:
    """Return the settings of a cell as one text, the same whatever their order.

    >>> key({"b": 1, "a": [2.0]})
    '{"a": [2.0], "b": 1}'
    """
    return json.dumps(cell, sort_keys=True)


def _narrowed(part: Settings, smaller: Where) -> Settings:
    return {name: smaller.get(name, value) for name, value in part.items()}


def _points(part: Settings) -> Iterator[Settings]:
    """Cross the lists of one table of the grid; what is no list is the same everywhere.

    >>> list(_points({"a": [1, 2], "b": "x"}))
    [{'a': 1, 'b': 'x'}, {'a': 2, 'b': 'x'}]
    """
    lists = [value if isinstance(value, list) else [value] for value in part.values()]
    return (dict(zip(part, values)) for values in product(*lists))


def names() -> list[str]:
    """Return every experiment that is shipped, by name."""
    return sorted(path.name.removesuffix(".toml") for path in resources.files(PACKAGE).iterdir() if _declares(path))


def _declares(path: Any) -> bool:
    return path.name.endswith(".toml") and path.name != "data.toml"


def find(name: str) -> Experiment:
    """Return a shipped experiment by name, or one in a TOML file of your own."""
    if name.endswith(".toml"):
        if not Path(name).is_file():
            raise CofactorError(f"{name}: expected a TOML file of an experiment. Found no such file.")
        return parse(Path(name).read_text(encoding="utf-8"), Path(name).stem)
    if name not in names():
        raise unknown("experiment", name, names())
    return parse((resources.files(PACKAGE) / f"{name}.toml").read_text(encoding="utf-8"), name)


def parse(text: str, name: str) -> Experiment:
    """Read a declaration, and refuse one that cannot be run before anything runs."""
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CofactorError(f"experiment {name!r}: expected a TOML file. Found: {error}.") from error
    for word, value in given.items():
        if word not in KEYS:
            raise unknown(f"entry of experiment {name!r}", word, KEYS)
        if not isinstance(value, KEYS[word]):
            raise CofactorError(f"experiment {name!r}: expected {KEYS[word].__name__} at {word!r}. Found {value!r}.")
    for word in NEEDED:
        if word not in given:
            raise CofactorError(f"experiment {name!r}: expected an entry {word!r}. Found none.")
    made = Experiment(name, **given)
    _check_methods(made)
    return made


def _check_methods(made: Experiment) -> None:
    """Every method is in the catalog, with options that it has, or says that it is the experiment's own."""
    for label, spec in made.methods.items():
        if not spec.get("own"):
            entry = catalog.find(spec.get("name", label))
            catalog.check_options(entry, spec.get("options", {}))
    for size in SIZES:
        for cell in made.cells(size):
            if "method" in cell and cell["method"] not in made.methods:
                raise unknown(f"method of experiment {made.name!r}", cell["method"], made.methods)


def chosen(lines: Iterable[Settings], where: Where) -> list[Settings]:
    """Return the lines of cells whose settings are as said; a list says "one of these"."""
    wanted = {name: value if isinstance(value, list) else [value] for name, value in where.items()}
    return [line for line in lines if all(line["cell"].get(n) in v for n, v in wanted.items())]
