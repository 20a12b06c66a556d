"""Check the rules of the house that a reader of one file cannot see.

python tools/layers.py            # check src/cofactor; one line for each breach
python tools/layers.py --table    # print the table of rooms
python tools/layers.py --write    # put it into CONTRIBUTING.md

A room is a folder or a top-level module of the package. Rooms stand in one order, and each imports only from those
above it. No import goes round in a circle, also not inside functions; no file name occurs twice; files and functions
stay short; nobody probes a method, an engine or a plan for what it should declare.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "cofactor"
PAGE = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- table: rooms -->", "<!-- end -->"

LAYERS = [
    ("types", "the words: `Stats`, `Message`, `Shared`, `Local`, and the errors"),
    ("schedules", "values by round"),
    ("method", "what a method is: pure functions, declared traits, how seeds are addressed"),
    ("files", "files that are there as a whole or not at all"),
    ("local", "one client's mathematics on `Stats`: updates, starts, sketches, refit, kernels"),
    ("metrics", "errors from statistics"),
    ("boolean", "the same mathematics for 0/1 data, on packed bits"),
    ("ratings", "the same for observed entries"),
    ("combine", "alignments, barycenters, aggregators, ballots, summaries"),
    ("privacy", "clipping, noise, the accountant, what a run may spend, secure summation"),
    ("plan", "how a run goes: rounds, participation, stop rule, seed, privacy, secure sums"),
    ("methods", "compositions, the combinator for stages, the catalog of names, and how a method is built"),
    ("kinds", "what the data are: check, error, judgement of a client and of all, passports, pictures"),
    (
        "engines",
        "what carries messages: the contract, the round loop, one file for each engine, secure sums, checkpoints",
    ),
    ("select", "which rank, which features mark a component, how well cells mix"),
    ("data", "file formats, features that differ, partitions, synthetic data"),
    ("estimators", "the scikit-learn face"),
    ("records", "what a run folder holds, for its writer and its reader"),
    ("assurance", "ledgers, what was spent over runs, forecasts, audits, attacks"),
    ("report", "a run folder as one HTML page"),
    ("reproduce", "experiments of papers: declarations, cells, verdicts, tables, figures"),
    ("jobs", "the one pipeline over files: read, prepare, run, judge, write"),
    ("federation", "organisations over a network: certificates, invites, policies, the processes of NVIDIA FLARE"),
    ("cli", "the command line"),
]
"""Every room with what lives there, the highest first."""
HEIGHT = {name: i for i, (name, _) in enumerate(LAYERS)}
FACES = {"__init__", "__main__"}
"""Modules of the package itself, which open the rooms and belong to none."""

LONGEST_FILE, LONGEST_FUNCTION = 300, 60
"""Lines; the docstring of a function is not counted."""
ALLOWED = {"method": "methods/build.py", "engine": "engines/loop.py", "plan": "plan.py", "session": None}
"""The one file that may ask whether this is one, or only its name (``isinstance``); nobody asks what one has."""


class Import(NamedTuple):
    """One import: the module it names, its line, and whether it waits inside a function."""

    target: str
    line: int
    lazy: bool


class Module(NamedTuple):
    """One file of the package."""

    path: Path
    name: str
    room: str
    text: str
    tree: ast.Module


Rule = Callable[[list[Module]], Iterator[str]]


def modules(package: Path = PACKAGE) -> list[Module]:
    """Read every file of a package."""
    found = []
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text()
        found.append(Module(path.relative_to(package), name, parts[1], text, ast.parse(text)))
    return found


def imports(module: Module, known: set[str]) -> list[Import]:
    """Return what a module imports from its own package, lazily or not, for types or not.

    ``from a import b`` names ``a.b`` where that is a module, and ``a`` otherwise; names of the package's own face stay
    as they are.
    """
    lazy = {
        id(node)
        for outer in ast.walk(module.tree)
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(outer)
    }
    root, found = module.name.split(".")[0], []
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = _base(module, node)
            names = [f"{base}.{a.name}" if base == root or f"{base}.{a.name}" in known else base for a in node.names]
        else:
            continue
        found += [Import(n, node.lineno, id(node) in lazy) for n in names if n.startswith(f"{root}.")]
    return found


def _base(module: Module, node: ast.ImportFrom) -> str:
    """Return the module that a ``from`` names; dots count from where the importing file stands."""
    if not node.level:
        return node.module or ""
    here = module.name.split(".")
    here = here[: len(here) - node.level + (module.path.name == "__init__.py")]
    return ".".join([*here, *([node.module] if node.module else [])])


def graph(package: Path = PACKAGE) -> dict[str, set[str]]:
    """Return which rooms each room imports, in the order of the layers; the faces of the package are left out."""
    files = modules(package)
    known = {m.name for m in files}
    found: dict[str, set[str]] = {m.room: set() for m in sorted(files, key=_height) if m.room not in FACES}
    for module in files:
        if module.room in found:
            others = {i.target.split(".")[1] for i in imports(module, known)}
            found[module.room] |= (others - {module.room}) & set(found)
    return found


def _height(module: Module) -> int:
    return HEIGHT.get(module.room, len(HEIGHT))


def order(files: list[Module]) -> Iterator[str]:
    """Each room imports only from those above it, and nothing from the face of the package but its version."""
    known = {m.name for m in files}
    for room in sorted({m.room for m in files} - set(HEIGHT) - FACES):
        yield f"{room}: not in the list of layers"
    for module in files:
        if module.room not in HEIGHT:
            continue
        for target, line, _ in imports(module, known):
            other = target.split(".")[1]
            if other not in HEIGHT and not any(m.room == other for m in files) and other != "__version__":
                yield f"{module.path}:{line}: imports {other}, which is no room; take names from where they live"
            elif HEIGHT.get(other, -1) > HEIGHT[module.room]:
                yield f"{module.path}:{line}: {module.room} imports {other}, which stands below it"


def circles(files: list[Module]) -> Iterator[str]:
    """No module imports one that imports it back, directly or not, at the top or inside a function."""
    known = {m.name for m in files}
    found = {m.name: imports(m, known) for m in files if m.room != "__init__"}
    direct = {name: {i.target for i in lines} for name, lines in found.items()}
    for module in files:
        for target, line, lazy in found.get(module.name, []):
            if module.name in _reached(target, direct):
                where = " (inside a function)" if lazy else ""
                yield f"{module.path}:{line}: imports {target}{where}, which imports {module.name} back"


def _reached(start: str, direct: dict[str, set[str]]) -> set[str]:
    """Return all modules that importing one brings along, itself included."""
    seen, todo = {start}, [start]
    while todo:
        new = direct.get(todo.pop(), set()) - seen
        seen |= new
        todo += new
    return seen


def names(files: list[Module]) -> Iterator[str]:
    """A file name says which file is meant: none occurs twice."""
    places = defaultdict(list)
    for module in files:
        if module.path.stem not in FACES:
            places[module.path.name].append(str(module.path))
    yield from (f"{name}: {len(p)} files have this name: {', '.join(p)}" for name, p in places.items() if len(p) > 1)


def sizes(files: list[Module]) -> Iterator[str]:
    """Files and functions stay short."""
    for module in files:
        lines = len(module.text.splitlines())
        if lines > LONGEST_FILE:
            yield f"{module.path}: {lines} lines, at most {LONGEST_FILE}"
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (own := _lines(node)) > LONGEST_FUNCTION:
                yield f"{module.path}:{node.lineno}: {node.name} has {own} lines, at most {LONGEST_FUNCTION}"


def _lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the lines of a function without its docstring."""
    first = node.body[0]
    said = (first.end_lineno or 0) - first.lineno + 1 if ast.get_docstring(node) is not None else 0
    return (node.end_lineno or 0) - node.lineno + 1 - said


def probes(files: list[Module]) -> Iterator[str]:
    """Methods, engines and plans declare what they are: nobody asks them in another way."""
    for module in files:
        for node in ast.walk(module.tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args):
                continue
            asked, call = _last(node.args[0]), node.func.id
            for word in sorted(set(re.split(r"s?_|s?$", asked)) & set(ALLOWED)):
                only = module.path.as_posix() == ALLOWED[word]
                if call in ("getattr", "hasattr") or (call == "isinstance" and not only):
                    yield f"{module.path}:{node.lineno}: {call}({asked}, ...) probes; let the {word} declare it"


def _last(node: ast.expr) -> str:
    """Return the name of a variable or of an attribute, or nothing."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


RULES: tuple[Rule, ...] = (order, circles, names, sizes, probes)


def violations(package: Path = PACKAGE) -> list[str]:
    """Return one line for each breach of a rule."""
    files = modules(package)
    return [line for rule in RULES for line in rule(files)]


def table() -> str:
    """Return the table of rooms."""
    rooms = [f"`{name}/`" if (PACKAGE / name).is_dir() else f"`{name}.py`" for name in HEIGHT]
    lines = [f"| {room} | {what} |" for room, (_, what) in zip(rooms, LAYERS)]
    return "\n".join(["| room | what lives there |", "|---|---|", *lines])


def put(page: str) -> str:
    """Return a page with the table of rooms between its marks."""
    head, _, tail = page.partition(BEGIN)
    return f"{head}{BEGIN}\n\n{table()}\n\n{END}{tail.partition(END)[2]}"


if __name__ == "__main__":
    if "--table" in sys.argv:
        print(table())
    elif "--write" in sys.argv:
        PAGE.write_text(put(PAGE.read_text()))
    else:
        found = violations()
        print("\n".join(found) or f"layers: {len(LAYERS)} rooms in order, {len(RULES)} rules kept")
        sys.exit(bool(found))
