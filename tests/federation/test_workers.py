"""Processes of jobs are forked from one that waits for them: how they end is told, also when that one is gone."""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time

import psutil
import pytest

pytest.importorskip("nvflare")
if sys.platform != "linux":
    pytest.skip("only Linux forks", allow_module_level=True)

from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_launcher_spec import JobProcessArgs

from cofactor.federation.workers import ClientWorkers, Forked, Nursery, ServerWorkers

BUSY = """
import argparse, time
from pathlib import Path


def parse_arguments():
    return argparse.Namespace(workspace=".", job_id="job")


def main(args):
    while True:  # a step that hears nothing
        Path("tick").write_text(str(time.monotonic()))
"""
NURSE = """
import socket, sys
from cofactor.federation import workers
workers.JOBS["busy"], workers.EARLY = "busy", ()
workers.nurse(socket.socket(fileno=int(sys.argv[1])), "busy")
"""


@pytest.mark.parametrize("workers", [ClientWorkers, ServerWorkers])
def test_folders_of_a_federation_may_have_spaces(workers):
    """A run was submitted again and again: each of its processes ended at once, with words about arguments."""
    made = {
        JobProcessArgs.EXE_MODULE: ("-m", workers.module),
        JobProcessArgs.WORKSPACE: ("--workspace", "/our home"),
        JobProcessArgs.OPTIONS: ("--set", "secure_train=true org=home"),
    }
    context = FLContext()
    context.set_prop(FLContextKey.JOB_PROCESS_ARGS, made, private=True, sticky=False)
    found = shlex.split(workers().get_command({}, context), True)
    expected = ["-m", workers.module, "--workspace", "/our home", "--set", "secure_train=true", "org=home"]
    assert found == [sys.executable, *expected]


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


def test_a_job_in_the_middle_of_a_step_does_not_outlive_the_client(tmp_path):
    """It went on at full speed until its step was done, for nobody, after `join` was stopped."""
    (tmp_path / "busy.py").write_text(BUSY)
    tick, (here, there) = tmp_path / "tick", socket.socketpair()
    with there:
        command = [sys.executable, "-c", NURSE, str(there.fileno())]
        nurse = subprocess.Popen(command, pass_fds=[there.fileno()], cwd=tmp_path)
    with nurse, here, here.makefile("rw") as line:  # `here` is closed first, as that of a client that is gone
        line.write(json.dumps([[], {"PATH": os.environ["PATH"]}]) + "\n")
        line.flush()
        pid = json.loads(line.readline())[0]
        while not tick.exists():
            assert nurse.poll() is None
            time.sleep(0.02)
    for _ in range(500):
        if not psutil.pid_exists(pid):
            return
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    raise AssertionError("it still runs")
