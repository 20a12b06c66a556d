import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from cofactor import run
from cofactor.data import synthetic
from cofactor.engines.checkpoint import Checkpoint, atomic
from cofactor.methods import catalog
from cofactor.types import CofactorError

METHODS = ["exact", "fnmf-lap", "fedprox", "oneshot"]


@pytest.fixture
def Xs():
    data = synthetic.blocks(4, 30, features=20, rank=4, seed=3).Xs
    return [*data, *(data[0][i : i + 1] for i in range(5))]


@pytest.mark.parametrize("participation", [1.0, 0.5])
@pytest.mark.parametrize("name", METHODS)
def test_a_run_cut_in_two_ends_like_the_whole_run_bit_for_bit(name, participation, Xs, tmp_path):
    method = catalog.make(name, 4)
    whole = run(method, Xs, rounds=7, seed=1, participation=participation)
    file = Checkpoint(tmp_path / "checkpoint.npz")
    run(method, Xs, rounds=3, seed=1, participation=participation, checkpoint=file)
    rest = run(method, Xs, rounds=7, seed=1, participation=participation, checkpoint=file)
    assert np.array_equal(whole.factor, rest.factor)
    assert all(np.array_equal(a, b) for a, b in zip(whole.codes, rest.codes, strict=True))
    assert [r.loss for r in rest.history] == [r.loss for r in whole.history]


def test_checkpoints_hold_no_pickle_and_a_damaged_one_is_named(Xs, tmp_path):
    file = Checkpoint(tmp_path / "checkpoint.npz")
    run(catalog.make("exact", 3), Xs, rounds=2, checkpoint=file)
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
    assert len(Checkpoint(path).load().history) == 5
    Xs = synthetic.blocks(3, 40, features=25, rank=4, seed=0).Xs
    resumed = run(catalog.make("exact", 4), Xs, rounds=8, checkpoint=Checkpoint(path))
    assert np.array_equal(resumed.factor, run(catalog.make("exact", 4), Xs, rounds=8).factor)
