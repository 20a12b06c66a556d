"""Checkpoints: a run that was cut goes on to the same bits, whatever was cut and wherever."""

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from tests.helpers.methods import KIND, NAMES, ROUNDS, case, same_bits

from cofactor import run
from cofactor.data import synthetic
from cofactor.engines import loop
from cofactor.engines.checkpoint import Checkpoint
from cofactor.engines.team import Team
from cofactor.files import atomic
from cofactor.methods import catalog
from cofactor.types import CofactorError

ROWS = (23, 3, 31, 1, 17, 5)
"""Some clients are tiny, and stacked where the method allows it."""


@pytest.fixture
def Xs():
    data = synthetic.blocks(4, 30, features=20, rank=4, seed=3).Xs
    return [*data, *(data[0][i : i + 1] for i in range(5))]


class Cut(Exception):
    """The power fails."""


def cut_after(rounds):
    def cut(line, shared):
        if line.round + 1 == rounds:
            raise Cut

    return cut


def cut_and_gone_on(method, Xs, after, file, **plan):
    """Run until the power fails after some rounds, then again."""
    with pytest.raises(Cut):
        run(method, Xs, checkpoint=file, callbacks=[cut_after(after)], **plan)
    begun = []
    result = run(method, Xs, checkpoint=file, begun=begun.append, **plan)
    assert begun == [after]
    return result


SHARED = [(name, share) for name in NAMES for share in (1.0, 0.5) if share == 1 or KIND[name] != "blocks"]
"""Methods on blocks cannot miss a client."""


@pytest.mark.parametrize("after", [1, 3])
@pytest.mark.parametrize(("name", "participation"), SHARED)
def test_a_run_cut_in_two_ends_like_the_whole_run_bit_for_bit(name, participation, after, tmp_path):
    """Methods of one round are over when they are cut."""
    options = {"sweeps": 10} if name.startswith("fnmf") else {}
    _, method, Xs = case(name, rows=ROWS, **options)
    plan = {"rounds": ROUNDS, "seed": 1, "participation": participation}
    whole = run(method, Xs, **plan)
    rest = cut_and_gone_on(method, Xs, min(after, len(whole.history)), Checkpoint(tmp_path / "c.npz"), **plan)
    same_bits(whole, rest)
    assert rest.converged == whole.converged


@pytest.mark.parametrize("name", ["exact", "felb", "exact-als", "k-means"])
def test_a_shorter_run_may_be_made_longer(name, tmp_path):
    _, method, Xs = case(name, rows=ROWS)
    file = Checkpoint(tmp_path / "c.npz", every=2)
    run(method, Xs, rounds=5, checkpoint=file)  # the fifth round is in no checkpoint
    seen = []
    longer = run(method, Xs, rounds=7, checkpoint=file, callbacks=[lambda line, shared: seen.append(line.round)])
    same_bits(longer, run(method, Xs, rounds=7))
    assert seen == [4, 5, 6]


def test_with_a_pause_rounds_are_left_out_but_for_the_last(Xs, tmp_path, monkeypatch):
    clock, seen, file = [0.0], [], Checkpoint(tmp_path / "c.npz", pause=1.0)
    monkeypatch.setattr(loop.time, "monotonic", lambda: clock[0])

    def second(line, shared):
        seen.append(file.rounds())
        clock[0] += 0.6

    whole = run(catalog.make("exact", 3), Xs, rounds=6, checkpoint=file, callbacks=[second])
    assert seen == [None, None, 3, 3, 5, 6]
    longer = run(catalog.make("exact", 3), Xs, rounds=8, checkpoint=file)
    same_bits(longer, run(catalog.make("exact", 3), Xs, rounds=8))
    assert len(whole.history) == 6


def test_checkpoints_hold_no_pickle_and_a_damaged_one_is_named(Xs, tmp_path):
    file = Checkpoint(tmp_path / "checkpoint.npz")
    run(catalog.make("exact", 3), Xs, rounds=2, checkpoint=file)
    with np.load(file.path, allow_pickle=False) as held:
        assert {held[name].dtype.hasobject for name in held.files} == {False}
    file.path.write_bytes(file.path.read_bytes()[:-200])
    with pytest.raises(CofactorError, match=r"checkpoint.npz: expected a checkpoint"):
        run(catalog.make("exact", 3), Xs, rounds=4, checkpoint=file)


def test_a_checkpoint_of_other_data_is_refused(Xs, tmp_path):
    file = Checkpoint(tmp_path / "checkpoint.npz")
    run(catalog.make("exact", 3), Xs, rounds=2, checkpoint=file)
    with pytest.raises(CofactorError, match="belongs to other data"):
        run(catalog.make("exact", 3), Xs[:2], rounds=4, checkpoint=file)


def test_an_interrupted_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def write():
        with atomic(path) as file:
            file.write(b"new")
            raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk"):
        write()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_kill_in_a_round_loses_at_most_that_round(tmp_path):
    script = textwrap.dedent(
        """
        import os, signal, sys
        from pathlib import Path
        from cofactor import run
        from cofactor.data import synthetic
        from cofactor.engines.checkpoint import Checkpoint
        from cofactor.methods import catalog
        kill_at = int(sys.argv[2])
        def kill(line, shared):
            if line.round == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
        Xs = synthetic.blocks(3, 40, features=25, rank=4, seed=0).Xs
        run(catalog.make("exact", 4), Xs, rounds=8, checkpoint=Checkpoint(Path(sys.argv[1])), callbacks=[kill])
        """
    )
    path = tmp_path / "checkpoint.npz"
    died = subprocess.run([sys.executable, "-c", script, str(path), "4"], check=False)
    assert died.returncode == -9
    assert len(Checkpoint(path).load(Team()).history) == 5
    Xs = synthetic.blocks(3, 40, features=25, rank=4, seed=0).Xs
    resumed = run(catalog.make("exact", 4), Xs, rounds=8, checkpoint=Checkpoint(path))
    assert np.array_equal(resumed.factor, run(catalog.make("exact", 4), Xs, rounds=8).factor)
