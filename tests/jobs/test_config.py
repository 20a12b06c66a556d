"""Settings of a run: every option of the command line reaches the configuration, its file, and comes back."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.command import cofactor

from cofactor.cli import fitting, verbs
from cofactor.engines.named import NAMES
from cofactor.estimators.given import NOTHING
from cofactor.estimators.nmf import FederatedNMF
from cofactor.jobs import config as configs
from cofactor.jobs.config import CHOICES, Config
from cofactor.jobs.settings import Settings
from cofactor.plan import Stop
from cofactor.privacy.allowance import Privacy
from cofactor.types import CofactorError

DATA: dict[str, Any] = {
    "features": "union",
    "layer": "raw",
    "image": "2x3",
    "prepare": "library,log1p",
    "leave_out": "id",
}
SPLIT: dict[str, Any] = {"split": 4, "by": "dirichlet", "label": "kind", "alpha": 0.25}
PLAN: dict[str, Any] = {"rounds": 7, "tol": 0.5, "seed": 3, "participation": 0.5}
PRIVACY: dict[str, Any] = {
    "epsilon": 2.0, "delta": 1e-5, "unit": "client", "clip": 0.5, "rows": 100, "insecure_noise_seed": 4, "secure": True,
    "curious": 0, "keys": "/keys", "ledger": "/ledger",
}  # fmt: skip
RATINGS: dict[str, Any] = {"ratings": True, "holdout": "random", "holdout_share": 0.5, "duplicates": "mean"}
RATINGS |= {"users_as_clients": True, "rated_only": True, "titles": "/data/titles.csv"}
CONFIGS: dict[str, dict[str, Any]] = {
    "least": {},
    "data": DATA,
    "groups": {"group_by": "ward"},
    "weights": {"cell_weights": "seen"},
    "row weights": {"row_weights": "seen"},
    "penalties": {"alpha_w": 0.5, "alpha_h": 0.25, "l1_ratio": 0.5},
    "split": SPLIT,
    "plan": {**PLAN, "method": "fedavg", "options": {"sweeps": 3, "common_start": True, "anchor": 0.5}},
    "privacy": {**PRIVACY, "method": "fedavg"},
    "ratings": {**RATINGS, "options": {"ridge": 0.5}},
    "masked ratings": {"ratings": True, "secure": True},
    "boolean": {"boolean": True, "method": "felb"},
    "dask": {"engine": "dask", "scheduler": "tcp://host:8786"},
    "device": {"device": "cpu"},
    "words": {"label": 'a "quoted" \\ naïve label', "split": 2, "by": "sorted"},
}
OPTIONS = [f.name for f in fields(Settings) if "help" in f.metadata and f.name != "inputs"]
FLAGS = {f.name: (*f.metadata.get("names", ()), f"--{f.name.replace('_', '-')}")[0] for f in fields(Settings)}


def made(name: str) -> Config:
    return Config(["/data/a.h5ad" if name == "weights" else "/data/a.npy"], 3, **CONFIGS[name])


def test_the_examples_name_every_option() -> None:
    given = {name for values in CONFIGS.values() for name in values}
    assert set(OPTIONS) <= given | {"rank"}
    defaults = Config(["/data/a.npy"], 3)
    for name in set(OPTIONS) - {"rank"}:
        assert any(getattr(made(case), name) != getattr(defaults, name) for case in CONFIGS), name


@pytest.mark.parametrize("name", CONFIGS)
def test_a_configuration_is_written_and_read_back(name: str, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(configs.to_toml(made(name)), encoding="utf-8")
    assert configs.read(tmp_path / "run.toml") == made(name)


@pytest.mark.parametrize("name", CONFIGS)
def test_every_option_of_the_command_line_reaches_the_configuration(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Config] = []
    monkeypatch.setattr(verbs.jobs, "fit", lambda config, out, **more: found.append(config) or 1 / 0)
    words: list[Any] = []
    for option, value in CONFIGS[name].items():
        if option == "options":
            words += [word for pair in value.items() for word in ("--option", f"{pair[0]}={_word(pair[1])}")]
        else:
            flag = FLAGS[option]
            words += [flag] if value is True else [flag, value]
    with pytest.raises(ZeroDivisionError):
        cofactor("fit", made(name).inputs[0], "-k", 3, *words, cwd=tmp_path)
    assert found == [made(name)]


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_options_are_written_once() -> None:
    """The command takes what Settings declares, and declares nothing of it again."""
    own = set(inspect.signature(fitting.fit).parameters)
    assert not own & set(OPTIONS)
    assert [f.name for f in fields(Config)] == [f.name for f in fields(Settings)]


def test_the_help_shows_every_option_with_its_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    text = cofactor("fit", "--help", cwd=tmp_path).stdout
    lines = {line.split()[1]: line for line in text.splitlines() if line.startswith("│ --")}
    for f in fields(Settings):
        if f.name in OPTIONS:
            line = lines[FLAGS[f.name]]
            shown = f.default is not MISSING and f.default is not None and f.default is not False
            assert not shown or f"Default: {f.default}." in line, f.name
    assert {"--out", "--config", "--option", "--json", "--quiet"} <= set(lines)
    assert " -q " in lines["--quiet"]
    assert " -k " in lines["--rank"]


def test_the_plan_is_that_of_the_settings() -> None:
    plan = made("plan").plan
    assert (plan.rounds, plan.rule, plan.seed, plan.participation) == (7, Stop(0.5), 3, 0.5)
    plan = made("privacy").plan
    assert plan.privacy == Privacy(2.0, 1e-5, "client", 0.5, 4, curious=0, ledger="/ledger", rows=100)
    assert (plan.secure, plan.rows) == (True, 100)
    assert made("least").plan.privacy is None


@pytest.mark.parametrize(
    ("given", "method", "kind"),
    [
        ({}, "exact", "real"),
        ({"boolean": True}, "boolean-oneshot", "boolean"),
        ({"boolean": True, "method": "auto"}, "boolean-oneshot", "boolean"),
        ({"method": "grecond"}, "grecond", "boolean"),
        ({"ratings": True}, "exact-als", "ratings"),
        ({"epsilon": 1.0, "delta": 1e-6}, "dp-moments", "real"),
        ({"epsilon": 1.0, "delta": 1e-6, "method": "auto"}, "dp-moments", "real"),
        ({"epsilon": 1.0, "delta": 1e-6, "options": {"start": "random"}}, "exact", "real"),
        ({"method": "k-means"}, "k-means", "clusters"),
        ({"method": "hals"}, "hals", "blocks"),
    ],
)
def test_the_default_method_is_that_of_the_kind(given: dict[str, Any], method: str, kind: str) -> None:
    config = Config(["a.npy"], 3, **given)
    assert (config.method, config.kind, config.boolean) == (method, kind, kind == "boolean")
    assert replace(config, seed=5) == Config(["a.npy"], 3, **given, seed=5), "settling twice changes nothing"


def test_penalties_are_those_of_the_estimator() -> None:
    config = Config(["a.npy"], 3, alpha_w=0.5, l1_ratio=0.5)
    assert config.method_options == {"codes_penalty": [0.25, 0.25], "factor_penalty": [0.25, 0.25]}
    model = FederatedNMF(3, alpha_W=0.5, l1_ratio=0.5)
    assert {name: list(value) for name, value in model._asked(NOTHING)[1].items()} == config.method_options


def test_engines_of_the_settings_are_those_that_exist() -> None:
    assert CHOICES["engine"] == NAMES
    assert Config(["a.npy"], 3).carrier().team.count == 1
    assert Config(["a.npy"], 3, engine="dask", scheduler="tcp://host:1").carrier().scheduler == "tcp://host:1"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"inputs": []}, "at least one input file"),
        ({"inputs": ["a", "b"], "split": 2}, "make clients of one file; found 2 files"),
        ({"inputs": ["a", "b"], "method": "hals"}, "works on row and column blocks of one matrix"),
        ({"method": "hals", "group_by": "x"}, "found --group-by"),
        ({"method": "hals", "split": 2, "by": "sorted", "label": "x"}, "found --by"),
        ({"cell_weights": "w"}, "--cell-weights names a layer: expected h5ad or zarr files, found"),
        ({"cell_weights": "w", "row_weights": "v"}, "expected either --cell-weights or --row-weights, found both"),
        ({"row_weights": "w", "boolean": True}, "--row-weights: expected a method for non-negative numbers"),
        ({"row_weights": "w", "epsilon": 1, "delta": 1e-6}, "--row-weights is refused in a private run"),
        ({"cell_weights": "w", "method": "oneshot"}, "--cell-weights: expected --method exact to go with it"),
        (
            {"method": "exact-gaps", "prepare": "log1p,scale"},
            "prepare: expected none where cells, NaN, were not observed",
        ),
        ({"alpha_w": 1.0, "method": "fedavg"}, "--alpha-W, --alpha-H: expected a method that takes them"),
        ({"l1_ratio": 0.5}, "--l1-ratio: expected --alpha-W or --alpha-H to go with it, found neither"),
        ({"alpha_h": -1.0}, "alpha_H: expected a number >= 0"),
        ({"ratings": True, "features": "union"}, "--ratings has no features"),
        ({"ratings": True, "boolean": True}, "--ratings: expected one of the methods"),
    ],
)
def test_contradictions_are_refused(given: dict[str, Any], text: str) -> None:
    with pytest.raises(CofactorError, match=text):
        Config(**{"inputs": ["a.npy"], "rank": 3, **given})


def test_paths_of_a_file_are_relative_to_it(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "run.toml").write_text('inputs = ["a.npy", "/b.npy"]\nrank = 2\n')
    config = configs.read(tmp_path / "deep" / "run.toml")
    assert config.inputs == [str(tmp_path / "deep" / "a.npy"), "/b.npy"]
    assert Config(["a.npy"], 2).absolute().inputs == [str(Path("a.npy").resolve())]
