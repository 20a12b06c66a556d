"""The MPI engine: several processes give the inline result, fail together, and go on where they were killed."""

import json
import sys
from collections import Counter

import pytest
from tests.helpers.methods import NAMES
from tests.helpers.processes import script

from cofactor.engines.processes import Processes
from cofactor.privacy import account
from cofactor.types import CofactorError


def test_every_method_gives_the_inline_result(tmp_path):
    script(3, "equal.py", "equal.json", cwd=tmp_path)
    lines = json.loads((tmp_path / "equal.json").read_text())
    names = {line["name"] for line in lines}
    assert set(NAMES) <= names
    far = [line for line in lines if not line["gap"] <= (2e-5 if line["name"] == "single precision" else 1e-6)]
    assert not far
    assert [line for line in lines if not (line["same"] and line["alike"])] == []


def test_what_goes_wrong_on_one_process_is_raised_on_all(tmp_path):
    script(3, "failures.py", "failures.json", cwd=tmp_path)
    found = json.loads((tmp_path / "failures.json").read_text())
    expected = {
        "nan": "True process 2: client 2: NaN: expected finite values >= 0, found 1 such cell(s), the first at row 4",
        "step": "True process 2: client 2, round 2: MemoryError: no room for the codes",
        "message": "True process 2: client 2, round 0: expected finite numbers in 'cross'",
        "features": "True process 2: client 2: expected 9 features like client 0, found 8",
        "empty": "True process 2: expected at least one client on each of 3 processes, found none here and 2 in all",
        "callback": "True process 0: OSError: no space left",
        "disagree": "True process 1: expected at 'refit' like process 0, found at 'round 1'",
        "plan": "False rounds must be a whole number of at least 1",
        "ragged": "True process 0: ragged blocks: expected every one of 60 rows in the row block of one client, found",
        "short": "True process 0: ragged blocks: expected every one of 60 rows in the row block of one client, found",
        "fine": "done",
    }
    *others, own = found.pop("private")
    assert "NaN: expected finite values >= 0, found 1 such cell(s), the first at row 4, column 5" in own
    for other in others:
        assert other.startswith("True process 2: client 2: expected data of the declared kind")
        assert "row" not in other
        assert "NaN" not in other
    for name, text in expected.items():
        assert len(set(found[name])) == 1, name
        assert found[name][0].startswith(text)


def test_checkpoints_of_processes_that_were_cut_or_killed(tmp_path):
    script(2, "resumed.py", ".", "cut", cwd=tmp_path, check=9)  # it ends in a round that a process does not survive
    assert all(json.loads((tmp_path / "cut.json").read_text()).values())
    script(2, "resumed.py", ".", "resumed", cwd=tmp_path)
    found = json.loads((tmp_path / "resumed.json").read_text())
    assert found["same"]
    assert found["first"] in (4, 5)
    assert "expected the 2 processes that wrote the checkpoint, found 1" in found["told"]


def test_a_private_round_that_a_process_did_not_survive_is_charged_and_not_repeated(tmp_path):
    for name in ("one", "two"):
        account.new(tmp_path / f"{name}.jsonl", epsilon=1.2, delta=1e-3, unit="client")
    script(2, "charged.py", ".", "killed", cwd=tmp_path, check=9)
    script(2, "charged.py", ".", "again", cwd=tmp_path)
    found = json.loads((tmp_path / "found.json").read_text())
    for refusal in found["refusals"]:
        assert "expected the results of 3 rounds, as many as are charged; the checkpoint holds 2" in refusal
    assert found["epsilon"] == pytest.approx(1, rel=1e-9)
    assert 0.5 < found["spent"][0] < 1
    assert found["spent"][1] == pytest.approx(1, rel=1e-9)
    assert all("of which 1 is spent; with this run it would be 1." in refusal for refusal in found["over"])
    for name, rounds in (("killed.npz", 3), ("cut.npz", 4)):
        steps = Counter(line for here in (0, 1) for line in (tmp_path / f"{name}-{here}").read_text().split())
        assert set(steps.values()) == {1}
        assert {step.split("-")[1] for step in steps} == {str(t) for t in range(rounds)}


def test_the_stream_over_processes(tmp_path):
    """Real time: the order of arrivals differs from run to run, where it leads to does not."""
    script(4, "streamed.py", "streamed.json", cwd=tmp_path)
    found = json.loads((tmp_path / "streamed.json").read_text())
    for name in ("asyn-sd", "asyn-ssd-v"):
        line = found[name]
        assert line["error"] <= 1.05 * line["inline"]
        assert line["alike"]
        assert len(line["clients"]) == 150
        assert set(line["clients"]) == {0, 1, 2, 3}
        assert max(line["staleness"]) > 0
        assert min(line["staleness"]) >= 0
        assert line["clock"] == sorted(line["clock"])
        assert line["bytes"] == [[8 * 4 * 40 + 16, 8 * 4 * 40]]
    assert set(found["server only"]["clients"]) == {0, 1, 2}
    sleepy = found["sleepy"]
    assert sleepy["absent"] == [3]
    assert sleepy["clients"].count(3) == 2
    assert len(sleepy["clients"]) == 60
    assert sleepy["alike"]
    assert len([w for w in sleepy["warned"] if "client 3 did not answer within the deadline of 0.5 s" in w]) == 1
    expected = {
        "step": "process 3: client 3, round 2: MemoryError: no room for the codes",
        "callback": "process 0: OSError: no space left",
        "two": "process 0: a stream over MPI needs one client on each process",
        "speeds": "speeds: expected none with several processes",
        "after": "done",
    }
    for name, text in expected.items():
        assert all(text in told for told in found["errors"][name]), found["errors"][name]


def test_without_mpi4py_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(CofactorError, match=r"pip install 'cofactor\[mpi\]'"):
        Processes()
