"""A run folder under inspection: its method is built again from the folder alone, and what it wrote is checked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.helpers.samples import SAMPLES, write

from cofactor.jobs import made_by
from cofactor.jobs.config import Config
from cofactor.jobs.folder import RunFolder
from cofactor.jobs.inspect import audit, method_of, of_folder, spent
from cofactor.jobs.job import Job, fit


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("inspect"))


@pytest.mark.parametrize("name", SAMPLES)
def test_the_method_of_a_run_is_built_from_its_folder_and_the_run_passes(home: Path, name: str, tmp_path: Path) -> None:
    files, options = SAMPLES[name]
    jobs: list[Job] = []
    folder = fit(Config([str(home / file) for file in files], **options), tmp_path / "run", announce=jobs.append)
    method = method_of(folder)
    if name == "union":  # what clients send depends on what they lack, which the folder does not say
        assert method is None
        assert [line.passed for line in of_folder(folder, method)] == [True, None]
        return
    assert method == jobs[0].method
    budget = {"budget": None} if name == "private" else {}  # its noise has a seed: it has paid for nothing
    verdicts = {line.audit: line.passed for line in of_folder(folder, method)}
    assert verdicts == {"hash chain": True, "transcript": True, **budget}


@pytest.mark.parametrize(
    "name", ["exact", "exact-beta", "fedavg", "fnmf-lap", "shared-own", "fedmavg", "felb", "k-means"]
)
def test_a_run_with_absent_clients_passes_its_audit(home: Path, name: str, tmp_path: Path) -> None:
    """`exact-beta` starts otherwise and sends numbers of rows where clients are absent: its audit failed."""
    files, options = SAMPLES["boolean" if name == "felb" else "real"]
    absent = {**options, "method": name, "participation": 0.5, "rounds": 4}
    folder = fit(Config([str(home / file) for file in files], **absent), tmp_path / "run")
    assert [line.passed for line in of_folder(folder, method_of(folder))] == [True, True]


def test_what_a_run_has_spent_is_what_its_ledger_says(home: Path, tmp_path: Path) -> None:
    files, options = SAMPLES["private"]
    config = Config([str(home / file) for file in files], **{**options, "insecure_noise_seed": None})
    folder = fit(config, tmp_path / "run")
    found = spent(folder)
    assert found.spent.epsilon == pytest.approx(2.0, rel=1e-9)
    assert found.spent.private
    assert found.budget == folder.manifest_record().privacy
    assert found.rounds == folder.evaluation().rounds
    plain = fit(Config(config.inputs, 3, rounds=2), tmp_path / "plain")
    assert (spent(plain).budget, spent(plain).spent.private) == (None, False)


def test_an_audit_of_a_private_run_goes_over_its_mechanism(home: Path, tmp_path: Path) -> None:
    files, options = SAMPLES["private"]
    fit(Config([str(home / file) for file in files], **options), tmp_path / "run")
    found = audit(tmp_path / "run")
    assert {"hash chain", "transcript", "budget", "sensitivity"} <= {line.audit for line in found}
    assert all(line.passed is not False for line in found)


def test_a_removed_line_fails_the_audit(home: Path, tmp_path: Path) -> None:
    folder = fit(Config([str(home / "a.csv"), str(home / "b.csv")], 3, rounds=2), tmp_path / "run")
    lines = folder.ledger_file.read_text().splitlines(keepends=True)
    folder.ledger_file.write_text("".join(lines[1:]))
    assert not RunFolder.open(folder.path).verify().ok
    assert audit(folder.path)[0].passed is False


@pytest.mark.parametrize("key", ["code", "version", "none"])
def test_what_other_code_sent_otherwise_is_said_and_is_nobodys_doing(home: Path, tmp_path: Path, key: str) -> None:
    """A method may send more, or less, in the next version: the run is as it was."""
    folder = fit(Config([str(home / "a.csv"), str(home / "b.csv")], 3, rounds=2), tmp_path / "run")
    other = method_of(fit(Config([str(home / "a.csv"), str(home / "b.csv")], 2, rounds=2), tmp_path / "other"))
    assert [line.passed for line in of_folder(folder, other)] == [True, False]  # by this code it is wrong
    manifest = folder.manifest_record()
    change = {"code": {"versions": {**manifest.versions, made_by.KEY: "0" * 12}}, "version": {"cofactor": "0.0.1"}}
    folder.write_json("manifest.json", replace(manifest, **change.get(key, {"versions": {}})))
    line = of_folder(folder, other)[1]
    assert line.passed is None
    assert "declared was" in line.text
    assert "made by cofactor 0." in line.text
    assert of_folder(folder, method_of(folder))[1].passed  # where nothing differs nothing is said
