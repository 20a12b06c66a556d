"""The rules of the house: the tree keeps them, each one catches what is planted against it, and the table is theirs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.helpers.scripts import ROOT, load

Plant = Callable[[dict[str, str]], list[str]]


layers = load("tools/layers.py")
ASK = "def f({name}):\n    return {call}({name}, {what})\n"


@pytest.fixture
def plant(tmp_path: Path) -> Plant:
    """Write a small package and return what the checker says about it."""

    def planted(files: dict[str, str]) -> list[str]:
        package = tmp_path / "cofactor"
        for name, text in {"__init__.py": "", **files}.items():
            path = package / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return layers.violations(package)

    return planted


def test_the_tree_keeps_every_rule() -> None:
    assert layers.violations() == []


def test_the_list_of_rooms_is_the_tree() -> None:
    assert list(layers.graph()) == [name for name, _ in layers.LAYERS]
    assert all(what and "\n" not in what for _, what in layers.LAYERS)


def test_the_table_of_contributing_is_the_list() -> None:
    page = layers.PAGE.read_text()
    assert layers.put(page) == page, "run: python tools/layers.py --write"
    for name, what in layers.LAYERS:
        assert f"| `{name}{'/' if (layers.PACKAGE / name).is_dir() else '.py'}` | {what} |" in page


def test_the_table_is_printed() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "layers.py"), "--table"], capture_output=True, text=True, check=True
    )
    assert done.stdout == layers.table() + "\n"


def test_a_package_that_keeps_the_rules_has_no_breach(plant: Plant) -> None:
    files = {
        "__init__.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from cofactor.cli import main\n",
        "__main__.py": "from cofactor.cli import main\n",
        "types.py": "",
        "local/__init__.py": "from cofactor.local.updates import step\n",
        "local/updates.py": "from cofactor import types\ndef step(planted): return isinstance(planted, int)\n",
        "cli/__init__.py": "from cofactor import __version__\n",
        "cli/app.py": "def f():\n    from cofactor.local import updates\n    return getattr(updates, 'step')\n",
    }
    assert plant(files) == []


@pytest.mark.parametrize(
    "line",
    ["from cofactor.cli.app import f", "import cofactor.cli.app", "from cofactor import cli", "from ..cli import app"],
)
@pytest.mark.parametrize("lazy", [False, True])
def test_an_import_from_below_is_refused(plant: Plant, line: str, *, lazy: bool) -> None:
    found = plant(
        {"local/__init__.py": "", "local/step.py": _body(line, lazy=lazy), "cli/__init__.py": "", "cli/app.py": ""}
    )
    assert found == [f"local/step.py:{1 + lazy}: local imports cli, which stands below it"]


def test_a_room_that_is_not_listed_is_refused(plant: Plant) -> None:
    assert plant({"cellar.py": ""}) == ["cellar: not in the list of layers"]


def test_a_name_from_the_face_of_the_package_is_refused(plant: Plant) -> None:
    (found,) = plant({"cli/__init__.py": "", "cli/app.py": "from cofactor import FederatedNMF\n"})
    assert found == "cli/app.py:1: imports FederatedNMF, which is no room; take names from where they live"


def test_two_files_of_one_name_are_refused(plant: Plant) -> None:
    faces = {f"{room}/{face}.py": "" for room in ("local", "cli") for face in ("__init__", "__main__")}
    assert plant(faces) == []
    (found,) = plant({"local/choice.py": "", "cli/choice.py": ""})
    assert found == "choice.py: 2 files have this name: cli/choice.py, local/choice.py"


@pytest.mark.parametrize("lazy", [False, True])
def test_imports_that_go_round_are_refused(plant: Plant, *, lazy: bool) -> None:
    files = {
        "local/__init__.py": "",
        "local/a.py": _body("from cofactor.local.b import x", lazy=lazy),
        "local/b.py": "from cofactor.local import c\n",
        "local/c.py": "import cofactor.local.a\n",
    }
    where = " (inside a function)" if lazy else ""
    found = plant(files)
    assert found[0] == f"local/a.py:{1 + lazy}: imports cofactor.local.b{where}, which imports cofactor.local.a back"
    assert len(found) == 3
    assert plant({**files, "local/c.py": ""}) == []


def test_long_files_and_functions_are_refused_docstrings_not_counted(plant: Plant) -> None:
    body = "    x = 1\n"
    long = 'def f():\n    """Say.\n\n' + "    much\n" * 9 + '    """\n' + body * 59
    assert plant({"types.py": long, "plan.py": "x = 1\n" * 300}) == []
    found = plant({"types.py": long + body, "plan.py": "x = 1\n" * 301})
    assert found == ["plan.py: 301 lines, at most 300", "types.py:1: f has 61 lines, at most 60"]


@pytest.mark.parametrize("call", ["getattr", "hasattr"])
@pytest.mark.parametrize("name", ["method", "methods", "the_engine", "plan", "session", "old_plans"])
def test_asking_for_attributes_is_refused_everywhere(plant: Plant, call: str, name: str) -> None:
    for place in ("plan.py", "methods/build.py", "cli/app.py"):
        (found,) = [line for line in plant({place: ASK.format(name=name, call=call, what="'rounds'")}) if place in line]
        assert found.startswith(f"{place}:2: {call}({name}, ...) probes")


def test_asking_for_a_type_is_allowed_in_one_file_each(plant: Plant) -> None:
    homes = {word: place for word, place in layers.ALLOWED.items() if place}
    assert sorted(homes) == ["engine", "method", "plan"]
    for word, home in homes.items():
        ask = ASK.format(name=word, call="isinstance", what="str")
        assert plant({home: ask, "types.py": ""}) == []
        assert plant({home: "", "types.py": ask}) == [
            f"types.py:2: isinstance({word}, ...) probes; let the {word} declare it"
        ]


def test_asking_through_an_attribute_is_seen(plant: Plant) -> None:
    (found,) = plant({"types.py": "def f(self):\n    return hasattr(self.method, 'plan')\n"})
    assert found == "types.py:2: hasattr(method, ...) probes; let the method declare it"


def _body(line: str, *, lazy: bool) -> str:
    return f"def f():\n    {line}\n" if lazy else f"{line}\n"
