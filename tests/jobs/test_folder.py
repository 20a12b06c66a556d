"""A run folder: what is written is read back as it was, and every client has a folder of its own."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pandas as pd
import pytest
from tests.helpers.samples import SAMPLES, write

from cofactor import records
from cofactor.assurance import ledger
from cofactor.jobs import inspect, new_rows
from cofactor.jobs.client_folder import ClientFolder
from cofactor.jobs.config import Config
from cofactor.jobs.folder import RunFolder
from cofactor.jobs.job import fit
from cofactor.records import (
    ClientScore,
    Evaluation,
    Input,
    Line,
    Manifest,
    Part,
    Passport,
    PrivacyRecord,
    RankScan,
    Release,
)
from cofactor.report.contents import read_factor
from cofactor.types import CofactorError

COST = PrivacyRecord(True, 1.0, 1e-6, "record", "add/remove one", "exact Gaussian", "epsilon = 1")
SCORES = [ClientScore("h 1", 3, 0.1, 0.2, 0.3, 0.4, 0.5), ClientScore("A/B", 1, 0.5)]
PARTS = [Part("training", 10, 0.5), Part("held out by time", 3, None, {"ndcg@10": 0.25})]
RECORDS: list[Any] = [
    Input("a", "/a.npy", 4),
    Input("a", "/a.npy", 4, "abc", 7),
    COST,
    PrivacyRecord(False),
    Manifest("1", "now", 0, "exact", 3, {"rank": 3}, {"numpy": "2"}, [Input("a", "/a.npy", 4)], COST, {"clients": {}}),
    Manifest(
        "1",
        "now",
        0,
        "exact",
        3,
        {"rank": 3},
        {"numpy": "2"},
        [Input("a", "/a.npy", 4)],
        masks="all with all",
        keys={"a": "00"},
    ),
    Line(0, 1.5, 10, 20, 0.1, 3, drift=0.2, epsilon=0.3, stage=1, moved=0.4, net=1.5, ended="loss"),
    Line(0, None, 10, 20, 0.1, 3),
    *SCORES,
    *PARTS,
    Evaluation(
        3,
        True,
        0.2,
        SCORES,
        [[1.0, None], [0.5, 0.25]],
        0.1,
        PARTS,
        ended="the loss has settled",
        absent=["b"],
        empty=[2],
    ),
    Evaluation(2, True, privacy=COST, remark="in words"),
    Passport(0, 2, 3, 0.5, 0.9, 0.01, [["gene", 0.5]]),
    RankScan([2, 3], [0.1, None], [0.0, 0.1], [0.1, 0.2], [1.0, 0.9], [None, 0.8], 2, "because"),
    Release("a", 0, "gram", [3, 3], "float64", 72, 1.0, 2.0, {"mechanism": "Gaussian"}, "Gaussian", 2.0, 5, True),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_every_record_is_read_as_it_was_written(record: Any, tmp_path: Path) -> None:
    RunFolder(tmp_path).write_json("record.json", record)
    assert records.decode(type(record), records.read_json(tmp_path / "record.json"), "record.json") == record


def test_all_records_are_covered() -> None:
    known = {kind for kind in vars(records).values() if isinstance(kind, type) and is_dataclass(kind)}
    assert known == {type(record) for record in RECORDS}
    for kind in known:
        hints = get_type_hints(kind)
        told = [record for record in RECORDS if type(record) is kind]
        for f in fields(kind):
            assert any(getattr(record, f.name) is not None for record in told), f"{kind.__name__}.{f.name}: {hints}"


def test_what_is_no_number_is_null(tmp_path: Path) -> None:
    RunFolder(tmp_path).write_json("x.json", Line(0, float("nan"), 1, 1, float("inf"), 1, drift=np.float32(0.5)))
    assert json.loads((tmp_path / "x.json").read_text())["loss"] is None
    assert json.loads((tmp_path / "x.json").read_text())["seconds"] is None
    assert json.loads((tmp_path / "x.json").read_text())["drift"] == 0.5


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("folder"))


@pytest.mark.parametrize("name", SAMPLES)
def test_every_file_of_a_run_is_the_record_that_readers_decode(home: Path, name: str, tmp_path: Path) -> None:
    files, options = SAMPLES[name]
    config = Config([str(home / file) for file in files], **options)
    folder = fit(config, tmp_path / "run")
    assert folder.config() == config.absolute()
    manifest = folder.manifest_record()
    assert (manifest.method, manifest.rank, manifest.seed) == (config.method, config.rank, config.seed)
    assert [line.path for line in manifest.inputs][-1] == config.inputs[-1]
    assert records.decode(Config, manifest.config, "manifest.json") == config.absolute()
    whole = {"manifest.json": Manifest, "evaluation.json": Evaluation, "privacy.json": PrivacyRecord}
    for file, kind in whole.items():
        path = folder.path / file
        if path.exists():
            told = records.read_json(path)
            again = records.plain(records.decode(kind, told, file))
            known = {key: value for key, value in again.items() if value is not None or key in told}
            assert known == _filled(told, again)
    lines = [records.decode(Line, line, where) for where, line in records.read_lines(folder.path / "history.jsonl")]
    assert [line.round for line in lines] == list(range(folder.evaluation().rounds))
    sent = [records.decode(Release, line, where) for where, line in records.read_lines(folder.ledger_file)]
    after = {len(lines)} if (folder.path / "markers.tsv").exists() else set()  # markers are asked for in the end
    assert {line.round for line in sent} == {line.round for line in lines} | after
    assert all(line.array.startswith("markers ") for line in sent if line.round in after)
    if (folder.path / "passports.json").exists():
        told = records.read_json(folder.path / "passports.json")
        assert [records.plain(p) for p in (records.decode(Passport, line, "passports.json") for line in told)] == told
    assert folder.verify().ok
    assert folder.verify().sealed
    H, names = folder.factor()
    assert H.shape[1] == len(names) == manifest.inputs[0].features


def _filled(told: dict[str, Any], again: dict[str, Any]) -> dict[str, Any]:
    """Return what a file says, with the defaults that decoding adds to inputs that leave something out."""
    if "inputs" in told:
        told = {**told, "inputs": [{**new, **old} for old, new in zip(told["inputs"], again["inputs"], strict=True)]}
    return told


def fitted(tmp_path: Path, **options: Any) -> RunFolder:
    return fit(Config(**options, rounds=2), tmp_path / "run")


def codes_of(folder: RunFolder) -> dict[str, np.ndarray]:
    return {path.parent.name: np.load(path) for path in (folder.path / "clients").glob("*/codes.npy")}


def test_files_with_alike_names_are_clients_with_folders_of_their_own(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    sizes = {"h 1": 5, "h_1": 6, "h%201": 7, "h  1": 8, "Å": 9}
    for name, rows in sizes.items():
        np.save(tmp_path / f"{name}.npy", rng.random((rows, 4)))
    folder = fitted(tmp_path, inputs=[str(tmp_path / f"{name}.npy") for name in sizes], rank=2)
    found = codes_of(folder)
    assert len(found) == len(sizes)
    for name, rows in sizes.items():
        assert np.load(folder.client(name).path / "codes.npy").shape == (rows, 2)
    assert {"h%201", "h_1"} <= set(found)
    assert [line.client for line in folder.evaluation().clients] == list(sizes)


@pytest.mark.parametrize("names", [("A/B", "A B", "A_B"), ("..", ".", "..."), ("a", "A", "a ")])
def test_groups_with_alike_names_have_folders_of_their_own(tmp_path: Path, names: tuple[str, ...]) -> None:
    table = pd.DataFrame(np.random.default_rng(0).random((12, 4)), columns=list("wxyz"))
    table["site"] = [names[0]] * 3 + [names[1]] * 4 + [names[2]] * 5
    table.to_parquet(tmp_path / "all.parquet")
    folder = fitted(tmp_path, inputs=[str(tmp_path / "all.parquet")], rank=2, group_by="site")
    for name, rows in zip(names, (3, 4, 5), strict=True):
        assert np.load(folder.client(name).path / "codes.npy").shape == (rows, 2)
    assert len(codes_of(folder)) == 3
    assert {path.name for path in folder.path.iterdir() if path.is_dir()} == {"clients"}


def test_private_runs_keep_rows_and_hashes_with_the_clients(home: Path, tmp_path: Path) -> None:
    files, options = SAMPLES["private"]
    folder = fit(Config([str(home / file) for file in files], **options), tmp_path / "run")
    assert [(line.rows, line.sha256) for line in folder.manifest_record().inputs] == [(None, None)] * 3
    assert [line.rows for line in folder.inputs()] == [25, 17, 31]
    assert all(len(line.sha256 or "") == 64 for line in folder.inputs())
    assert not folder.checkpoint.path.exists()


def test_a_folder_that_is_no_run_says_so(home: Path, tmp_path: Path) -> None:
    with pytest.raises(CofactorError, match=r"expected a run folder \(with manifest.json\), found none"):
        RunFolder.open(tmp_path)
    config = Config([str(home / "a.csv")], 2, rounds=2)
    folder = RunFolder.create(tmp_path / "run", config, [Input("a", str(home / "a.csv"), 12, "x", 3)])
    for ask in (folder.evaluation, folder.factor):
        with pytest.raises(CofactorError, match="cofactor resume"):
            ask()
    with pytest.raises(CofactorError, match="already holds a run"):
        RunFolder.create(tmp_path / "run", config, [])
    (tmp_path / "file").write_text("")
    with pytest.raises(CofactorError, match="expected a folder to write to, found a file"):
        RunFolder.create(tmp_path / "file", config, [])


def test_a_run_that_has_not_begun_is_taken_back(home: Path, tmp_path: Path) -> None:
    config = Config([str(home / "a.csv")], 2)
    made = RunFolder.create(tmp_path / "run", config, [])
    made.client("a").write_json("input.json", {"rows": 3})
    made.rewind(0)
    made.withdraw()
    assert not made.path.exists()
    made = RunFolder.create(tmp_path / "run", config, [])
    (made.path / "rank.json").write_text("{}")
    made.withdraw()
    assert [path.name for path in made.path.iterdir()] == ["rank.json"]
    made = RunFolder.create(tmp_path / "run", config, [])
    (made.path / ledger.FILE).write_text("{}\n")
    made.withdraw()
    assert made.manifest_file.exists()


def test_names_of_rows_stay_with_their_codes_whatever_is_in_them(tmp_path: Path) -> None:
    own = ClientFolder(tmp_path)
    own.write_codes(np.eye(4), ["a\u2028b", "c\r\nd", "é\x85", "last"])
    assert own.row_names() == ["a\u2028b", "c d", "é\x85", "last"]
    assert ClientFolder(tmp_path / "none").row_names() == []


@pytest.fixture
def ended(tmp_path: Path) -> Path:
    """A small run with markers, beside new rows."""
    for name, seed in (("a", 0), ("b", 1), ("new", 2)):
        X = np.random.default_rng(seed).random((20, 5))
        pd.DataFrame(X, columns=list("vwxyz")).to_csv(tmp_path / f"{name}.csv", index=False)
    fit(Config(inputs=(str(tmp_path / "a.csv"), str(tmp_path / "b.csv")), rank=2, rounds=2), tmp_path / "run")
    return tmp_path


def _spoiled(file: Path, **arrays: Any) -> None:
    with np.load(file) as held:
        found = {**held, **{name: make(held[name]) for name, make in arrays.items()}}
    np.savez(file, **found)


@pytest.mark.parametrize(
    ("arrays", "told"),
    [
        ({"factor": lambda H: np.where(H == H.max(), np.nan, H)}, "expected a finite factor .k x m., found float64"),
        ({"factor": lambda H: np.full_like(H, np.inf)}, "expected a finite factor"),
        ({"factor": lambda H: H[0]}, r"found float64 of shape \(5,\)"),
        ({"factor": lambda H: H[None]}, "expected a finite factor"),
        ({"factor": lambda H: H[:0]}, "expected a finite factor"),
        ({"factor": lambda H: H.astype(str)}, "expected a finite factor"),
        ({"factor": lambda H: H * 1j}, "expected a finite factor"),
        ({"factor": lambda H: np.hstack([H, H])}, "expected 10 feature_names"),
        ({"factor": lambda H: np.vstack([H, H])}, "expected finite marker_scores"),
        ({"marker_scores": lambda S: S.astype(str)}, "expected finite marker_scores"),
        ({"feature_names": lambda names: names[:2]}, "expected 5 feature_names"),
    ],
)
def test_a_factor_from_a_stranger_is_checked_by_whoever_reads_it(arrays: Any, told: str, ended: Path) -> None:
    """Codes of NaN came out of it without a word, or an error of numpy."""
    folder = RunFolder.open(ended / "run")
    _spoiled(folder.factor_file, **arrays)
    readers: list[Any] = [
        lambda: new_rows.transform(folder, ended / "new.csv"),
        lambda: new_rows.markers(folder, 3),
        lambda: inspect.audit(folder.path),
        lambda: read_factor(folder.factor_file),
    ]
    for read in readers:
        with pytest.raises(CofactorError, match=told):
            read()


def test_lines_of_history_from_a_stranger_are_no_rounds(ended: Path) -> None:
    folder = RunFolder.open(ended / "run")
    history = folder.path / "history.jsonl"
    with history.open("a") as file:
        file.write('{"round": 1e400}\n' + "[" * 100_000 + "\n")
    assert folder.verify().ok
    history.write_bytes(b"\xff\xfe")
    with pytest.raises(CofactorError, match=r"history.jsonl: expected text"):
        folder.verify()


def test_a_place_to_write_to_may_be_a_link_and_no_file_stands_in_its_way(ended: Path) -> None:
    config = Config(inputs=(str(ended / "a.csv"), str(ended / "b.csv")), rank=2, rounds=1)
    (ended / "link").symlink_to(ended / "elsewhere" / "run")
    assert fit(config, ended / "link").finished
    assert (ended / "elsewhere" / "run" / "manifest.json").exists()
    (ended / "loop").symlink_to("loop")
    with pytest.raises(CofactorError, match="loop: expected a folder to write to, found a link that leads to itself"):
        fit(config, ended / "loop")
    for within in ("a.csv/run", "a.csv/deep/run"):
        with pytest.raises(CofactorError, match="run: expected a folder to write to, found that a file is in its way"):
            fit(config, ended / within)
