"""Mistakes on the command line: one line that says what to do, exit code 2, and no run folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from tests.helpers.command import cofactor, refused

from cofactor.engines.dask_engine import Dask

TYPO = 'inputs = ["small.npz"]\nrank = 2\nronds = 3\n'
STRANGE = 'inputs = ["small.npz"]\nrank = 2\nengine = "mpy"\n'


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with some good and some bad files."""
    (tmp_path / "bad.xyz").write_text("1")
    (tmp_path / "ragged.csv").write_text("a,b\n1,2\n1,2,3\n")
    np.savez(tmp_path / "negative.npz", X=-np.ones((5, 5)))
    sparse.save_npz(tmp_path / "small.npz", sparse.csr_matrix(np.eye(5)))
    (tmp_path / "typo.toml").write_text(TYPO)
    (tmp_path / "strange.toml").write_text(STRANGE)
    (tmp_path / "no-rank.toml").write_text('inputs = ["small.npz"]\n')
    (tmp_path / "cut.toml").write_text('inputs = ["small.npz"\n')
    return tmp_path


FIT = ("fit", "small.npz", "-k", 2)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("fit", "nothing.csv", "-k", 3), "nothing.csv: expected a file"),
        (("fit", "bad.xyz", "-k", 3), "bad.xyz: expected one of the suffixes"),
        (("fit", "ragged.csv", "-k", 3), "ragged.csv"),
        (("fit", "negative.npz", "-k", 3), "Negative values in data"),
        (("fit", "small.npz", "-k", 30), "rank: expected at most 5"),
        (("fit", "small.npz", "-k", 0), "rank must be a whole number >= 1. Found 0"),
        (("fit", "small.npz"), "the number of components with -k"),
        (("fit", "-k", 2), "at least one input file"),
        ((*FIT, "--split", 3, "--by", "sorted"), "--label"),
        (
            (*FIT, "--boolean", "--method", "exact"),
            "expected a method for zeros and ones, found --method exact; 'boolean-exact' is what comes nearest.",
        ),
        (
            (*FIT, "--boolean", "--method", "k-means"),
            "--boolean: expected a method for zeros and ones (boolean-oneshot,",
        ),
        ((*FIT, "--split", 3, "--group-by", "ward"), "expected either --group-by or --split, found both"),
        (("fit", "--config", "none.toml"), "none.toml: expected a configuration"),
        (("fit", "--config", "cut.toml"), "cut.toml: expected TOML"),
        (("fit", "--config", "no-rank.toml"), "no-rank.toml: expected the key 'rank'"),
        (("fit", "--config", "typo.toml", "-k", 2), "either --config or options"),
        (("resume", "nowhere"), "nowhere: expected a run folder"),
        (("report", "nowhere"), "nowhere"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(home: Path, words: tuple[Any, ...], text: str) -> None:
    error = refused(*words, cwd=home)
    assert text in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("words", "name", "meant"),
    [
        ((*FIT, "--method", "exakt"), "method 'exakt'", "exact"),
        ((*FIT, "--method", "dp-nfm"), "method 'dp-nfm'", "dp-nmf"),
        ((*FIT, "--engine", "mpy"), "engine 'mpy'", "mpi"),
        ((*FIT, "--option", "strat=lap"), "option of method 'exact' 'strat'", "start"),
        ((*FIT, "--method", "hals", "--option", "sweep=1"), "option of method 'hals' 'sweep'", None),
        ((*FIT, "--features", "onion"), "features 'onion'", "union"),
        ((*FIT, "--split", 2, "--by", "dirichlett"), "by 'dirichlett'", "dirichlet"),
        (("fit", "--config", "typo.toml"), "typo.toml: unknown key 'ronds'", "rounds"),
        (("fit", "--config", "strange.toml"), "engine 'mpy'", "mpi"),
    ],
)
def test_unknown_names_are_refused_with_a_suggestion(
    home: Path, words: tuple[Any, ...], name: str, meant: str | None
) -> None:
    error = refused(*words, cwd=home)
    assert f"unknown {name.removeprefix('typo.toml: unknown ')}" in error
    assert name in error
    assert "Expected one of: " in error
    assert meant is None or f"Did you mean '{meant}'?" in error


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--seed", -1), "seed must be a whole number of at least 0. Found -1"),
        (("--tol", -1), "tol must be a number >= 0. Found -1"),
        (("--tol", "nan"), "tol must be a number >= 0. Found nan"),
        (("--rounds", 0), "rounds must be a whole number of at least 1. Found 0"),
        (("--participation", 0), "participation must be in (0, 1]. Found 0"),
        (("--participation", 1.5), "participation must be in (0, 1]. Found 1.5"),
        (("--split", 0), "split must be at least 1. Found 0"),
        (("--alpha", -1), "alpha must be a positive number. Found -1"),
        (("--holdout-share", 1), "holdout_share must be in (0, 1). Found 1"),
        (("--image", "28"), "image: expected height x width"),
        (("--scheduler", "tcp://here:1"), "belong together; found --engine inline and --scheduler tcp://here:1"),
        (("--engine", "dask"), "belong together; found --engine dask and no --scheduler"),
        (("--method", "hals", "--rounds", 0), "rounds must be a whole number of at least 1. Found 0"),
    ],
)
def test_numbers_out_of_range_are_refused_before_anything_is_read(
    home: Path, words: tuple[Any, ...], text: str
) -> None:
    assert text in refused("fit", "not-there.npy", "-k", 2, *words, cwd=home)


@pytest.mark.parametrize("more", [(), ("--epsilon", 1, "--delta", 1e-3)])
def test_a_scheduler_that_does_not_answer_leaves_nothing_behind(
    home: Path, more: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Dask.__init__, "__defaults__", (None, None, 1.0))  # do not wait half a minute
    there = ("--engine", "dask", "--scheduler", "tcp://127.0.0.1:9", "-q")  # or the private form is named first
    assert "expected a scheduler at tcp://127.0.0.1:9, found none within 1 s" in refused(*FIT, *there, *more, cwd=home)
    (home / "kept").mkdir()
    (home / "kept" / "notes.txt").write_text("mine")
    refused(*FIT, *there, *more, "--out", "kept", cwd=home)
    assert [path.name for path in (home / "kept").iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ('rank = "ten"', "rank: expected a whole number, found 'ten'"),
        ("rank = 2\nsplit = 1.5", "split: expected a whole number, found 1.5"),
        ('rank = 2\nsecure = "yes"', "secure: expected true or false, found 'yes'"),
        ("rank = 2\nmethod = 3", "method: expected a text, found 3"),
        ('rank = 2\ntol = "little"', "tol: expected a number, found 'little'"),
        ("rank = 2\noptions = 3", "options: expected an object, found 3"),
    ],
)
def test_values_of_another_type_in_a_configuration_are_named(home: Path, line: str, text: str) -> None:
    (home / "typed.toml").write_text(f'inputs = ["small.npz"]\n{line}\n')
    assert f"typed.toml: {text}" in refused("fit", "--config", "typed.toml", cwd=home)
    (home / "typed.toml").write_text('inputs = "small.npz"\nrank = 2\n')
    assert "typed.toml: inputs: expected a list, found 'small.npz'" in refused(
        "fit", "--config", "typed.toml", cwd=home
    )


def test_a_word_that_is_no_number_is_told_by_the_command_line_itself(home: Path) -> None:
    assert "Invalid value" in cofactor(*FIT, "--rounds", "many", cwd=home, check=2).stderr
    assert "expected name=value" in cofactor(*FIT, "--option", "start", cwd=home, check=2).stderr
    assert "No such option" in cofactor(*FIT, "--ronds", 3, cwd=home, check=2).stderr
    assert not (home / "run").exists()


def test_several_processes_need_an_engine_that_joins_them(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``mpiexec -n 2 cofactor fit`` without ``--engine mpi``: each process would do all of it, into one folder."""
    monkeypatch.setenv("PMI_SIZE", "2")
    error = refused(*FIT, cwd=home)
    assert "expected one process, found 2" in error
    assert "add --engine mpi" in error
    assert not (home / "run").exists()


def test_no_verb_writes_over_the_data(hospitals: tuple[Path, list[np.ndarray]], tmp_path: Path) -> None:
    """Codes, markers and reports replaced inputs of the run where --out named one."""
    for file in (files := [file for file in sorted(hospitals[0].iterdir()) if file.is_file()]):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    cofactor("fit", *(file.name for file in files), "-k", 2, "--rounds", 2, "--out", "made", "-q", cwd=tmp_path)
    (tmp_path / "link.csv").symlink_to(tmp_path / "ann.csv")
    (tmp_path / "new.csv").write_bytes((tmp_path / "ann.csv").read_bytes())
    for words in (("transform", "made", "new.csv"), ("markers", "made"), ("report", "made")):
        for out in ("ann.csv", "link.csv", *(["new.csv"] if words[0] == "transform" else [])):
            assert "found data that are read; choose another --out" in refused(*words, "--out", out, cwd=tmp_path)
        error = refused(*words, "--out", "made/factor.tsv", cwd=tmp_path)
        assert "made/factor.tsv: expected a new file, found one of the run" in error
    for verb, file in (("markers", "made/markers.tsv"), ("report", "made/report.html")):  # their own, written anew
        cofactor(verb, "made", "--out", file, cwd=tmp_path)
    assert all((tmp_path / file.name).read_bytes() == file.read_bytes() for file in files)


ORDER = "\x1b[2J\x9b1A\u202e"
"""Clears the screen of a terminal, moves up a line, and turns the rest of the line round."""


def test_names_of_others_do_nothing_to_a_terminal(tmp_path):
    """Names of features, of groups and of clients come from other people; so do errors that hold them."""
    rng = np.random.default_rng(0)
    names = [f"{ORDER}gene {i}" for i in range(6)]
    frame = pd.DataFrame(rng.gamma(0.5, size=(40, 6)), columns=names).assign(site=[f"{ORDER}A", "B"] * 20)
    frame.to_csv(tmp_path / "cells.csv", index=False)
    fitted = cofactor("fit", "cells.csv", "--group-by", "site", "-k", 2, "--out", "run", cwd=tmp_path)
    shown = [fitted, *(cofactor(verb, "run", cwd=tmp_path) for verb in ("evaluate", "passports", "markers"))]
    frame.iloc[3, 2] = -1
    frame.to_csv(tmp_path / "cells.csv", index=False)
    shown.append(cofactor("fit", "cells.csv", "--group-by", "site", "-k", 2, "--out", "new", cwd=tmp_path, check=2))
    text = "".join(done.stdout + done.stderr for done in shown)
    assert not [c for c in ORDER if not c.isprintable() and c in text]
    assert r"\x1b[2J\x9b1A\u202eA" in shown[1].stdout
    assert r"\x1b[2J\x9b1A\u202egene 2" in shown[-1].stderr


def test_paths_that_are_no_files_and_no_folders(tmp_path):
    np.save(tmp_path / "a.npy", np.ones((4, 3)))
    os.mkfifo(tmp_path / "pipe.npy")  # who opens it waits for a writer
    (tmp_path / "round.npy").symlink_to("round.npy")
    for name, words in (
        ("pipe.npy", "found a pipe or a device"),
        ("round.npy", "expected a file, found nothing there"),
    ):
        assert words in refused("fit", name, "a.npy", "-k", 2, cwd=tmp_path)
    assert "expected a folder to write to, found the root" in refused(
        "fit", "a.npy", "--out", "/", "-k", 2, cwd=tmp_path
    )
