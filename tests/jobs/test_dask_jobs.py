"""The command line with workers of a dask cluster writes the folder that one process writes, of every kind of data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.helpers.clusters import two_workers
from tests.helpers.command import cofactor
from tests.helpers.folders import same_run
from tests.helpers.samples import SAMPLES, write

from cofactor.jobs.config import Config
from cofactor.jobs.folder import RunFolder
from cofactor.jobs.job import fit, resume


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    """Two workers that were started elsewhere: what is relative to this folder means nothing to them."""
    with two_workers() as cluster:
        yield cluster.scheduler_address


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("dask"))


@pytest.mark.parametrize("name", SAMPLES)
def test_workers_write_the_folder_of_one_process(home: Path, name: str, scheduler: str) -> None:
    words = ("fit", *SAMPLES[name].words(), "-q")
    cofactor(*words, "--out", f"{name}-inline", cwd=home)
    cofactor(*words, "--engine", "dask", "--scheduler", scheduler, "--out", f"{name}-dask", cwd=home)
    inline, workers = RunFolder(home / f"{name}-inline"), RunFolder(home / f"{name}-dask")
    same_run(inline, workers)
    assert "not in this run" not in (workers.path / "report.html").read_text()
    assert workers.verify().ok


@pytest.mark.parametrize("name", ["real", "swept", "ratings"])
def test_a_run_of_workers_goes_on_where_it_was_cut(home: Path, name: str, scheduler: str, tmp_path: Path) -> None:
    def cut(line: object, shared: object) -> None:
        if getattr(line, "round", 0) == 2:
            raise KeyboardInterrupt

    files, options = SAMPLES[name]
    config = Config([str(home / file) for file in files], **options, engine="dask", scheduler=scheduler)
    whole = fit(config, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        fit(config, tmp_path / "cut", callbacks=[cut])
    same_run(whole, resume(tmp_path / "cut"))
