"""Files that are there as a whole or not at all, also where several write the same one."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cofactor import files
from cofactor.types import CofactorError


def test_arrays_that_say_they_are_larger_than_memory_are_a_file_with_a_name(tmp_path: Path) -> None:
    """A header of 128 bytes says what is asked for."""
    file = tmp_path / "factor.npy"
    with file.open("wb") as stream:
        np.lib.format.write_array_header_1_0(stream, {"descr": "<f8", "fortran_order": False, "shape": (10**9, 10**6)})
    with (
        pytest.raises(CofactorError, match=r"factor.npy: expected a factor, found more than memory holds"),
        files.undamaged(file, "a factor"),
    ):
        np.load(file)


def test_arrays_that_are_cut_or_changed_are_a_file_with_a_name(tmp_path: Path) -> None:
    """Whatever zip, zlib and numpy find wrong with it."""
    file, rng, found = tmp_path / "factor.npz", np.random.default_rng(0), []
    np.savez_compressed(file, factor=rng.random((3, 20)), names=np.array([f"g{i}" for i in range(20)]))
    whole = file.read_bytes()
    for turn in range(600):
        held = bytearray(whole if turn % 3 else whole[: rng.integers(len(whole))])
        for place in rng.integers(len(held), size=2) if held else ():
            held[place] = rng.integers(256)
        file.write_bytes(held)
        try:
            with files.undamaged(file, "a factor"), np.load(file, allow_pickle=False) as arrays:
                dict(arrays)
        except CofactorError as error:
            found.append(str(error))
    assert len(found) > 500
    assert all(f"{file}: expected a factor, found another file, or a damaged one" in said for said in found)


def test_arrays_that_are_not_there_or_whose_errors_are_known_keep_theirs(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), files.undamaged(tmp_path / "none"), np.load(tmp_path / "none"):
        pass
    with pytest.raises(CofactorError, match=r"^said$"), files.undamaged(tmp_path):
        raise CofactorError("said")


def test_two_writers_of_one_file_do_not_meet(tmp_path: Path) -> None:
    """Each has its own beginning: whoever ends last is there, as a whole, and nothing is left."""
    target = tmp_path / "report.html"
    with files.atomic(target) as first:
        first.write(b"first, and long")
        with files.atomic(target) as second:
            second.write(b"second")
        assert target.read_bytes() == b"second"
    assert target.read_bytes() == b"first, and long"
    assert os.listdir(tmp_path) == ["report.html"]


def test_what_a_killed_process_began_is_gone_after_the_next_writes(tmp_path: Path) -> None:
    target = tmp_path / "odd[name].html"
    script = "import os, sys; from pathlib import Path; from cofactor import files\n"
    script += "with files.atomic(Path(sys.argv[1])) as f: f.write(b'half'); f.flush(); os._exit(9)"
    assert subprocess.run([sys.executable, "-c", script, str(target)], check=False).returncode == 9
    assert [name.endswith(".part") for name in os.listdir(tmp_path)] == [True]
    with files.atomic(target) as file, files.atomic(target.with_suffix(".txt")) as other:
        file.write(b"whole")
        other.write(b"another")
    assert sorted(os.listdir(tmp_path)) == ["odd[name].html", "odd[name].txt"]


def test_what_another_machine_writes_is_left_alone(tmp_path: Path) -> None:
    """Nobody here knows which processes there are."""
    theirs = tmp_path / "a.html.00000000.1.0123456789ab.part"
    theirs.write_bytes(b"half")
    with pytest.raises(KeyError), files.atomic(tmp_path / "a.html"):
        raise KeyError
    assert os.listdir(tmp_path) == [theirs.name]


def test_errors_name_the_file_and_not_how_it_was_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(name: str, *_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied", str(name))

    monkeypatch.setattr(files.os, "open", refused)
    with pytest.raises(PermissionError) as caught, files.atomic(tmp_path / "x.json") as file:
        file.write(b"")
    assert caught.value.filename == str(tmp_path / "x.json")
    with pytest.raises(PermissionError) as caught, files.held(tmp_path / "run" / ".lock", "run"):
        pass
    assert caught.value.filename == str(tmp_path / "run")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
@pytest.mark.parametrize("sure", [True, False])
def test_a_full_disk_is_named_where_lines_are_added(tmp_path: Path, sure: bool) -> None:
    """Such as those of history and ledger: what failed when they were flushed had no name."""
    (tmp_path / "ledger.jsonl").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as caught:
        files.add(tmp_path / "ledger.jsonl", "a line\n", sure=sure)
    assert caught.value.filename == str(tmp_path / "ledger.jsonl")
