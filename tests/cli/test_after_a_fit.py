"""What users do next, and what they are told: markers, codes as files, interruption, names with brackets, help."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from importlib import util
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.helpers.command import cofactor

from cofactor import FederatedNMF
from cofactor.cli.doctor import examine
from cofactor.cli.methods import describe, lines
from cofactor.cli.progress import Progress
from cofactor.jobs import job as jobs
from cofactor.jobs.folder import RunFolder
from cofactor.jobs.new_rows import annotate_file, transform
from cofactor.methods import catalog

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import anndata

GENES = [f"g{i}" for i in range(30)]


def counts(n: int, seed: int) -> np.ndarray:
    draw = np.random.default_rng(seed)
    programs = np.random.default_rng(9).gamma(0.1, 15, size=(3, 30))
    return draw.poisson(draw.gamma(0.5, size=(n, 3)) @ programs).astype(float)


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two h5ad files of counts, and a run on them, which tests must not change."""
    folder = tmp_path_factory.mktemp("cells")
    for seed, (name, n) in enumerate({"north": 40, "south": 30}.items()):
        obs, var = pd.DataFrame(index=[f"{name}{i}" for i in range(n)]), pd.DataFrame(index=GENES)
        anndata.AnnData(counts(n, seed), obs=obs, var=var).write_h5ad(folder / f"{name}.h5ad")
    cofactor("fit", "north.h5ad", "south.h5ad", "-k", 3, "--prepare", "library,log1p", "-q", cwd=folder)
    return folder


def test_markers_are_shown_and_written(cells: Path, tmp_path: Path) -> None:
    found = json.loads(cofactor("markers", "run", "--top", 4, "--json", cwd=cells).stdout)
    assert {line["component"] for line in found} == {0, 1, 2}
    assert all(line["feature"] in GENES for line in found)
    shown = cofactor("markers", "run", "--top", 4, cwd=cells).stdout
    assert ", ".join(line["feature"] for line in found if line["component"] == 1) in shown
    cofactor("markers", "run", "--top", 4, "--out", tmp_path / "m.tsv", cwd=cells)
    table = pd.read_csv(tmp_path / "m.tsv", sep="\t")
    assert table["feature"].tolist() == [line["feature"] for line in found]
    assert "markers" in cofactor("passports", "run", cwd=cells).stdout
    assert "top: expected a whole number" in cofactor("markers", "run", "--top", 0, cwd=cells, check=2).stderr


def test_an_h5ad_file_that_cannot_be_written_whole_leaves_the_one_before_it(
    cells: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk left half of a file in the place of the whole one that was there."""
    out, folder = tmp_path / "codes.h5ad", RunFolder.open(cells / "run")
    found = transform(folder, cells / "south.h5ad")
    annotate_file(folder, cells / "south.h5ad", out, found)
    before = out.read_bytes()

    def fails(held: anndata.AnnData, path: str) -> None:
        Path(path).write_bytes(b"half")
        raise OSError(28, "No space left on device", path)

    monkeypatch.setattr(anndata.AnnData, "write_h5ad", fails)
    with pytest.raises(OSError, match="No space left"):
        annotate_file(folder, cells / "south.h5ad", out, found)
    assert out.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["codes.h5ad"]


def test_what_the_system_refuses_is_said_with_the_file(cells: Path, tmp_path: Path) -> None:
    """It began with the number of the error."""
    (tmp_path / "codes.npy").mkdir()
    error = cofactor("transform", "run", "south.h5ad", "--out", tmp_path / "codes.npy", cwd=cells, check=2).stderr
    assert error.endswith("codes.npy: Is a directory.\n")


@pytest.mark.parametrize("suffix", ["npy", "csv", "tsv", "parquet", "h5ad"])
def test_codes_are_written_as_the_suffix_says(cells: Path, tmp_path: Path, suffix: str) -> None:
    out = tmp_path / "new" / f"codes.{suffix}"
    cofactor("transform", "run", "south.h5ad", "--out", out, "-q", cwd=cells)
    expected = np.load(cells / "run" / "clients" / "south" / "codes.npy")
    if suffix == "npy":
        np.testing.assert_allclose(np.load(out), expected)
        return
    if suffix == "h5ad":
        held = anndata.read_h5ad(out)
        names, codes = list(held.obs_names), held.obsm["X_cofactor"]
    else:
        read: Any = {"csv": pd.read_csv, "tsv": lambda p: pd.read_csv(p, sep="\t"), "parquet": pd.read_parquet}
        table = read[suffix](out)
        names, codes = table.pop("row").tolist(), table.to_numpy()
    assert names == [f"south{i}" for i in range(30)]
    np.testing.assert_allclose(codes, expected, rtol=1e-6)


def test_weights_of_cells_are_a_layer(tmp_path: Path) -> None:
    rng, held, weights = np.random.default_rng(0), [], []
    H = rng.gamma(0.5, size=(3, 12))
    for name, n in (("a", 40), ("b", 30)):
        cells = anndata.AnnData(rng.gamma(1, size=(n, 3)) @ H)
        cells.var_names, cells.obs_names = [f"g{i}" for i in range(12)], [f"{name}{i}" for i in range(n)]
        cells.layers["seen"] = rng.integers(0, 4, cells.shape).astype(float)
        cells.X[cells.layers["seen"] == 0] = 999
        (cells[:, ::-1].copy() if name == "b" else cells).write_h5ad(tmp_path / f"{name}.h5ad")
        held.append(cells)
        weights.append(cells.layers["seen"])
    words = ("a.h5ad", "b.h5ad", "-k", 3, "--rounds", 10, "--tol", 0, "-q", "--cell-weights")
    cofactor("fit", *words, "seen", cwd=tmp_path)
    model = FederatedNMF(3, rounds=10, tol=0, random_state=0).fit(held, cell_weight=weights)
    with np.load(tmp_path / "run" / "factor.npz") as found:
        np.testing.assert_allclose(found["factor"], model.components_, atol=1e-12)
        np.testing.assert_allclose(found["marker_scores"], model.marker_scores_, atol=1e-9)
    np.testing.assert_allclose(np.load(tmp_path / "run" / "clients" / "b" / "codes.npy"), model.codes_[1], atol=1e-12)
    for name, codes in zip("ab", model.codes_, strict=True):  # new rows have weights too: what lies under 0 is no data
        cofactor("transform", "run", f"{name}.h5ad", "--out", "codes.csv", cwd=tmp_path)
        again = pd.read_csv(tmp_path / "codes.csv", index_col=0, float_precision="round_trip").to_numpy()
        np.testing.assert_allclose(again, codes, atol=1e-12)
    del held[0].layers["seen"]
    held[0].write_h5ad(tmp_path / "bare.h5ad")
    assert "expected a layer 'seen'" in cofactor("transform", "run", "bare.h5ad", cwd=tmp_path, check=2).stderr
    held[0].layers["seen"] = np.array(weights[0])
    held[0].layers["seen"][3, 2] = np.nan
    held[0].write_h5ad(tmp_path / "a.h5ad")
    assert "NaN" in cofactor("fit", *words, "seen", "--out", "other", cwd=tmp_path, check=2).stderr
    assert "expected a layer 'lost'" in cofactor("fit", *words, "lost", "--out", "other", cwd=tmp_path, check=2).stderr


@pytest.mark.parametrize("words", [(), ("--method", "exact-beta", "--option", "beta=1")])
def test_weights_of_rows_are_a_column(tmp_path: Path, words: tuple[str, ...]) -> None:
    """As ``sample_weight`` of the estimator: in files of their own, or in groups of one, prepared first."""
    rng = np.random.default_rng(0)
    X, weights = rng.gamma(1, size=(60, 3)) @ rng.gamma(0.5, size=(3, 8)), rng.integers(1, 5, 60).astype(float)
    site = np.repeat(["a", "b"], 30)
    frame = pd.DataFrame(X, columns=[f"g{i}" for i in range(8)]).assign(counts=weights, site=site)
    frame.to_csv(tmp_path / "all.csv", index=False)
    fit = ("-k", 3, "--rounds", 8, "--tol", 0, "-q", "--row-weights", "counts", "--prepare", "library=10", *words)
    cofactor("fit", "all.csv", "--group-by", "site", *fit, cwd=tmp_path)
    loss = {"beta_loss": "kullback-leibler"} if words else {}
    model = FederatedNMF(3, rounds=8, tol=0, random_state=0, prepare="library=10", **loss)
    model.fit(X, groups=site, sample_weight=weights)
    with np.load(tmp_path / "run" / "factor.npz") as found:
        np.testing.assert_allclose(found["factor"], model.components_, atol=1e-9)
    np.testing.assert_allclose(np.load(tmp_path / "run" / "clients" / "b" / "codes.npy"), model.codes_[1], atol=1e-7)
    cofactor("transform", "run", "all.csv", "--out", "codes.npy", "-q", cwd=tmp_path)
    np.testing.assert_allclose(np.load(tmp_path / "codes.npy"), np.vstack(model.codes_), atol=1e-6)
    for name in "ab":
        frame[frame.site == name].drop(columns="site").to_csv(tmp_path / f"{name}.csv", index=False)
    cofactor("fit", "a.csv", "b.csv", *fit, "--out", "apart", cwd=tmp_path)
    with np.load(tmp_path / "apart" / "factor.npz") as found:
        np.testing.assert_allclose(found["factor"], model.components_, atol=1e-9)
    frame.assign(counts=0).to_csv(tmp_path / "none.csv", index=False)
    error = cofactor("fit", "none.csv", *fit, "--leave-out", "site", "--out", "other", cwd=tmp_path, check=2).stderr
    assert "expected row weights 'counts' above 0" in error


def test_codes_as_something_else_are_refused(cells: Path, tmp_path: Path) -> None:
    done = cofactor("transform", "run", "south.h5ad", "--out", tmp_path / "codes.xlsx", cwd=cells, check=2)
    assert "expected one of the suffixes .npy, .csv, .tsv, .parquet, .h5ad, found .xlsx" in done.stderr
    assert not (tmp_path / "codes.xlsx").exists()


def test_raw_counts_are_told_so(cells: Path, tmp_path: Path) -> None:
    files = (cells / "north.h5ad", cells / "south.h5ad")
    told = cofactor("fit", *files, "-k", 2, "--rounds", 2, cwd=tmp_path).stderr
    assert "Hint: the values look like raw counts" in told
    assert "--prepare 'library,log1p'" in told


def test_an_interrupted_run_says_how_it_goes_on(
    hospitals: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = hospitals
    shown = Progress.__call__
    monkeypatch.setattr(jobs, "PAUSE", 0.0)  # every round is written down, however short

    def interrupt(self: Progress, line: Any, shared: Any) -> None:
        shown(self, line, shared)
        if line.round == 4:
            raise KeyboardInterrupt

    words = ("fit", folder / "ann.csv", folder / "bob.parquet", "-k", 3, "--rounds", 9, "--tol", 0)
    cofactor(*words, "--out", "whole", "-q", cwd=tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Progress, "__call__", interrupt)
        told = cofactor(*words, cwd=tmp_path, check=130).stderr
    assert "cofactor: interrupted after round 5; `cofactor resume run` goes on there." in told
    cofactor("resume", "run", "-q", cwd=tmp_path)
    ended = [np.load(tmp_path / name / "factor.npz")["factor"] for name in ("run", "whole")]
    np.testing.assert_array_equal(*ended)


def test_ctrl_c_while_the_report_is_made_leaves_a_whole_run(
    hospitals: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = hospitals

    def interrupt(path: Path) -> Path:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("cofactor.report.html.render", interrupt)
        told = cofactor("fit", folder / "ann.csv", "-k", 2, cwd=tmp_path, check=130).stderr
    assert "interrupted after the run was complete; `cofactor report run` writes its report." in told
    cofactor("report", "run", cwd=tmp_path)
    assert (tmp_path / "run" / "report.html").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="asks the system which files a process has open")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("rank", "rows.csv", "-k", "2:4", "--out", "scan"), "nothing was written, the same command starts again."),
        (("fit", "rows.csv", "-k", "2", "--out", "scan"), "before anything was written."),
    ],
)
def test_ctrl_c_says_what_is_left_and_how_to_go_on(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    """A large file takes seconds to read: while it is open, the command is surely at work."""
    (tmp_path / "rows.csv").write_text("a,b,c,d\n" + "0.125,2.25,31.5,4.75\n" * 4_000_000)
    command = [sys.executable, "-m", "cofactor", *words]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as working:
        while working.poll() is None and not _has_open(working.pid, tmp_path / "rows.csv"):
            time.sleep(0.01)
        working.send_signal(signal.SIGINT)
        _, told = working.communicate(timeout=60)
    assert working.returncode == 130
    assert told.startswith("cofactor: interrupted")
    assert said in told
    assert told.count("\n") == 1
    assert not (tmp_path / "scan").exists()


def _has_open(process: int, path: Path) -> bool:
    try:
        return any(os.path.realpath(file) == str(path) for file in Path(f"/proc/{process}/fd").iterdir())
    except OSError:  # a file was closed, or the process has ended
        return False


def test_names_with_brackets_are_shown_as_they_are(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("lab [bio]", "lab [io]"):
        pd.DataFrame(rng.uniform(size=(20, 5)), columns=list("abcde")).to_csv(tmp_path / f"{name}.csv", index=False)
    cofactor("fit", "lab [bio].csv", "lab [io].csv", "-k", 2, "-q", cwd=tmp_path)
    shown = cofactor("evaluate", "run", cwd=tmp_path).stdout
    assert "lab [bio]" in shown
    assert "lab [io]" in shown


def test_what_is_missing_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(util, "find_spec", lambda name: None)
    examine()
    assert "pip install 'cofactor[bio]'" in capsys.readouterr().out


def test_runs_without_passports_markers_or_an_end_say_why(cells: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.save(tmp_path / "bits.npy", (rng.uniform(size=(30, 8)) < 0.4).astype(np.uint8))
    np.save(tmp_path / "bare.npy", rng.uniform(size=(30, 8)))
    cofactor("fit", "bits.npy", "-k", 2, "--boolean", "--out", "bits", "-q", cwd=tmp_path)
    cofactor("fit", "bare.npy", "-k", 2, "--out", "bare", "-q", cwd=tmp_path)
    assert "bits: has no passports" in cofactor("passports", "bits", cwd=tmp_path, check=2).stderr
    assert "has no markers: they are there for non-negative numbers, not for zeros and ones" in (
        cofactor("markers", "bits", cwd=tmp_path, check=2).stderr
    )
    assert "has no markers: its features have no names" in cofactor("markers", "bare", cwd=tmp_path, check=2).stderr
    (tmp_path / "bare" / "evaluation.json").unlink()
    (tmp_path / "bare" / "passports.json").unlink(missing_ok=True)
    for verb in ("evaluate", "passports"):
        assert "`cofactor resume bare` ends it" in cofactor(verb, "bare", cwd=tmp_path, check=2).stderr
    (tmp_path / "empty").mkdir()
    for verb in ("evaluate", "passports", "markers", "report"):
        assert "run folder" in cofactor(verb, "empty", cwd=tmp_path, check=2).stderr


def test_components_that_nothing_is_made_of_have_no_markers(tmp_path: Path) -> None:
    """It ended in a traceback."""
    for name in "ab":
        pd.DataFrame(np.zeros((6, 3)), columns=["x", "y", "z"]).to_csv(tmp_path / f"{name}.csv", index=False)
    cofactor("fit", "a.csv", "b.csv", "-k", 2, "-q", cwd=tmp_path)
    assert cofactor("markers", "run", cwd=tmp_path).stdout.strip() == "0 markers"
    cofactor("passports", "run", cwd=tmp_path)


def test_of_several_clients_exact_sends_what_its_ledger_says(cells: Path) -> None:
    """`cofactor methods` listed what one client alone sends, a span, and not the factor that each of several sends."""
    first = [json.loads(line) for line in (cells / "run" / "ledger.jsonl").read_text().splitlines()]
    arrays = dict.fromkeys(line["array"] for line in first if line.get("round") == 0 and line["client"] == "north")
    assert describe("exact")["sends"].split("; then ")[0] == ", ".join(arrays)


def test_the_ledger_names_clients_on_a_narrow_screen(cells: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    said = cofactor("ledger", "show", "run", cwd=cells).stdout
    assert "north" in said
    assert "south" in said
    assert max(map(len, said.splitlines())) <= 80


def test_commands_to_copy_quote_paths_with_spaces(cells: Path, tmp_path: Path) -> None:
    words = ("fit", cells / "north.h5ad", "-k", 2, "--rounds", 2, "--out", "my run", "-q")
    cofactor(*words, cwd=tmp_path)
    assert "`cofactor resume 'my run'`" in cofactor(*words, cwd=tmp_path, check=2).stderr


@pytest.mark.parametrize("name", catalog.names())
def test_a_method_takes_a_few_lines_of_80_columns(name: str) -> None:
    shown = lines(describe(name), 80)
    assert len(shown) <= 7
    assert max(map(len, shown)) <= 80
    assert shown[0].startswith(name)


def test_the_help_of_fit_is_grouped_and_says_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    text = cofactor("fit", "--help", cwd=tmp_path).stdout
    for heading in (
        "What is computed",
        "Clients, features, preparation",
        "Ratings",
        "Privacy",
        "Where and how it runs",
    ):
        assert heading in text
    assert "Default: 0.0001" in text
    assert "--prepare" in text


def test_a_report_that_cannot_be_made_is_not_worth_a_run(cells: Path, tmp_path: Path) -> None:
    (tmp_path / "jinja2.py").write_text("raise ImportError('jinja2 is not here')")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    args = [str(cells / name) for name in ("north.h5ad", "south.h5ad")]
    command = [sys.executable, "-m", "cofactor", "fit", *args, "-k", "2", "--rounds", "2", "--out", str(tmp_path / "r")]
    done = subprocess.run(command, check=False, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert done.returncode == 0
    assert "its report could not be made" in done.stderr
    assert not (tmp_path / "r" / "report.html").exists()
    cofactor("report", "r", cwd=tmp_path)
    assert (tmp_path / "r" / "report.html").exists()


def test_no_client_does_better_with_others_than_alone(tmp_path: Path) -> None:
    """The shared factor is one that it might have had alone: what is told is what sharing costs."""
    draw = np.random.default_rng(0)
    X = draw.gamma(0.5, size=(600, 5)) @ draw.gamma(0.3, size=(5, 40)) + 0.05 * draw.random((600, 40))
    for j in range(3):
        np.save(tmp_path / f"{j}.npy", X[200 * j : 200 * j + 200])
    cofactor("fit", "0.npy", "1.npy", "2.npy", "-k", 8, "-q", cwd=tmp_path)
    clients = json.loads((tmp_path / "run" / "evaluation.json").read_text())["clients"]
    assert all(0.5 * line["error"] < line["local_error"] <= line["error"] for line in clients)


def test_names_with_tabs_and_line_breaks_come_back(tmp_path: Path) -> None:
    names = ["a\tb", 'c "d"', "e\nf", "g"]
    frame = pd.DataFrame(np.random.default_rng(0).gamma(1, size=(30, 4)), columns=names)
    frame.to_csv(tmp_path / "odd.csv", index=False)
    cofactor("fit", "odd.csv", "-k", 2, "--rounds", 3, "-q", cwd=tmp_path)
    table = pd.read_csv(tmp_path / "run" / "factor.tsv", sep="\t", index_col=0, float_precision="round_trip")
    assert table.index.tolist() == names
    with np.load(tmp_path / "run" / "factor.npz") as found:
        np.testing.assert_array_equal(table.to_numpy().T, found["factor"])
    cofactor("markers", "run", "--out", "m.tsv", cwd=tmp_path)
    assert set(pd.read_csv(tmp_path / "m.tsv", sep="\t")["feature"]) <= set(names)


def test_long_names_are_shown_to_their_end(tmp_path: Path) -> None:
    """Ranks of taxa begin alike: of a table of them nothing was left but that."""
    names = [
        "k__Bacteria;p__Firmicutes;c__Clostridia;o__Lachnospirales;f__Lachnospiraceae;g__" + name for name in GENES
    ]
    pd.DataFrame(counts(60, 0), columns=names).to_csv(tmp_path / "x.csv", index=False)
    cofactor("fit", "x.csv", "-k", 2, "-q", cwd=tmp_path)
    found = json.loads(cofactor("markers", "run", "--top", 2, "--json", cwd=tmp_path).stdout)
    for verb in (("markers", "run", "--top", 2), ("passports", "run")):
        lines = cofactor(*verb, cwd=tmp_path).stdout.splitlines()
        shown = "".join(line.split("│")[-2].strip() for line in lines if "│" in line)
        assert [line["feature"] for line in found if line["feature"] not in shown] == []
