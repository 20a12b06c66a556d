"""Processes of jobs are forked from one that waits for them: how they end is told, also when that one is gone."""

import os
import sys

import pytest

pytest.importorskip("nvflare")
if sys.platform != "linux":
    pytest.skip("only Linux forks", allow_module_level=True)

from cofactor.federation.workers import ClientWorkers, Forked, Nursery


def test_a_job_is_forked_and_how_it_ended_is_told(capfd):
    nursery = Nursery(ClientWorkers.module)
    made = nursery.fork(["--unknown"], dict(os.environ))
    made.wait()
    assert made.poll() == 1
    assert "the following arguments are required: --workspace" in capfd.readouterr().err
    last = nursery.born[0] = Forked(0)  # one that still runs
    nursery.process.kill()
    last.wait()
    assert last.poll() == 1  # it notices by itself that nobody is there any more, and ends
    assert nursery.fork(["--unknown"], dict(os.environ)) is None
