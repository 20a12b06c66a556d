"""The files around the package agree with it and with each other: versions, papers, hooks, the workflow, the module."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml

import cofactor
from cofactor.methods import catalog

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_there_is_one_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert PROJECT["version"] == cofactor.__version__ == str(citation["version"])


def test_every_paper_of_the_catalog_can_be_cited() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0"
    assert citation["authors"] == [{"name": "The cofactor authors"}]
    assert (citation["license"], citation["keywords"]) == (PROJECT["license"], PROJECT["keywords"])
    papers = {entry.paper for entry in catalog.ENTRIES if entry.paper}
    assert papers == {reference["abbreviation"] for reference in citation["references"]}
    assert all(
        reference["title"] and reference["authors"] and reference["type"] for reference in citation["references"]
    )


def test_the_hooks_are_those_of_make_check() -> None:
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    hooks = [hook["entry"] for hook in local["hooks"]]
    makefile = (ROOT / "Makefile").read_text()
    recipe = re.search(r"^check:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert recipe
    checks = [line.strip().replace("$(BIN)", ".venv/bin") for line in recipe[1].splitlines()]
    *quick, doctests = [re.sub(r" (--check|\$\(SOURCES\))", "", line) for line in checks]
    assert hooks == quick
    assert "--doctest-modules" in doctests
    sources = re.search(r"^SOURCES := (.*)$", makefile, re.MULTILINE)
    assert sources
    expected = f"^({'|'.join(sources[1].split())})/"
    assert [hook["files"] for hook in local["hooks"] if "ruff" in hook["entry"]] == [expected, expected]


def test_the_workflow_runs_what_contributors_run_on_every_supported_python() -> None:
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    flow = yaml.safe_load(text)
    assert set(flow[True]) == {"push", "pull_request"}  # YAML reads the word `on` as true
    (job,) = flow["jobs"].values()
    named = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    assert job["strategy"]["matrix"]["python"] == named
    assert PROJECT["requires-python"] == f">={named[0]}"
    last = job["steps"][-1]
    assert last["run"] == "bash .ci/run"
    assert last["env"] == {"PYTHON": "python${{ matrix.python }}"}
    assert "PYTHON ?= python3" in (ROOT / "Makefile").read_text(), "a variable of the environment would not be taken"
    assert "secrets" not in text


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "cofactor", "--help"], capture_output=True, text=True, check=True)
    assert "python -m cofactor" in done.stdout
    assert "demo" in done.stdout


def test_a_command_starts_without_what_it_does_not_need():
    """scikit-learn brings pandas and scipy.stats: half of the time of a small fit, which needs none of them."""
    heavy = ("sklearn", "pandas", "scipy.stats", "matplotlib", "ot", "torch", "mpi4py", "distributed", "anndata")
    code = f"import sys, cofactor.cli.verbs; print([n for n in {heavy} if n in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "[]\n"


def test_the_estimator_comes_without_what_a_first_fit_brings():
    """Kernels wait for numba until they are called; of scikit-learn there is no more than its own NMF brings."""
    heavy = (
        "numba",
        "torch",
        "pandas",
        "anndata",
        "matplotlib",
        "polars",
        "dask",
        "distributed",
        "mpi4py",
        "jinja2",
        "ot",
    )
    code = f"import sys; from {{}}; print([n for n in {heavy} if n in sys.modules])"
    ours, theirs = (
        subprocess.run([sys.executable, "-c", code.format(what)], check=True, capture_output=True, text=True).stdout
        for what in ("cofactor import FederatedNMF", "sklearn.decomposition import NMF")
    )
    assert ours == theirs
    assert "numba" not in ours
