"""The processes in which FLARE runs jobs, forked from one that has read everything: a job begins in a moment.

FLARE starts a new Python for each job at each client, which reads NVIDIA FLARE, this package and its compilers anew:
seconds of work, every time. Here one process (``python -m cofactor.federation.workers``) reads them once, when the
client or the server is started, and waits; every job is a fork of it, in a session of its own. It ends with the process
that started it, and what it has forked ends with it, also in the middle of a step: FLARE asks a job whose parent is
gone to stop, which a step does not hear. Nothing is drawn at random before a fork.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import selectors
import shlex
import signal
import socket
import subprocess
import sys
import threading
import traceback
from typing import Any

import numpy as np
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_launcher_spec import JobProcessArgs
from nvflare.app_common.job_launcher.process_launcher import ProcessHandle, ProcessJobLauncher
from nvflare.fuel.f3.mpm import MainProcessMonitor
from nvflare.utils.job_launcher_utils import get_client_job_args, get_credential_env, get_server_job_args
from nvflare.utils.process_utils import ProcessAdapter

from cofactor.federation.bound import end_with
from cofactor.local.updates import HALS
from cofactor.types import Stats

GRACE = 0.1
"""Seconds that a job's process waits for others when all is done; FLARE has 3, after everything is closed."""
JOBS = {
    "nvflare.private.fed.app.client.worker_process": "cofactor.federation.executor",
    "nvflare.private.fed.app.server.runner_process": "cofactor.federation.controller",
}
"""What a job's process may run, and what this package adds to it."""
EARLY = ("jinja2", "cofactor.report.html", "cofactor.jobs.judge")
"""What a run reads later on."""


class Forked(ProcessAdapter):
    """A job's process, whose parent is not this one: how it ended is told, and not waited for."""

    def __init__(self, pid: int) -> None:
        super().__init__(pid=pid)
        self.code: int | None = None
        self.ended = threading.Event()

    def poll(self) -> int | None:
        """Return how it ended, None while it runs."""
        return self.code

    def wait(self) -> None:
        """Wait until it has ended."""
        self.ended.wait()

    def end(self, code: int) -> None:
        """Hear how it ended."""
        self.code = code
        self.ended.set()


class Nursery:
    """The process that forks, seen from the one that asks it to."""

    def __init__(self, module: str) -> None:
        here, there = socket.socketpair()
        command = [sys.executable, "-m", __name__, str(there.fileno()), module]
        with there:
            self.process = subprocess.Popen(command, pass_fds=[there.fileno()])
        self.asked, self.told, self.lock = here.makefile("w"), here.makefile("r"), threading.Lock()
        self.born, self.started = dict[int, Forked](), threading.Semaphore(0)
        self.next: Forked | None = None
        threading.Thread(target=self._listen, daemon=True).start()

    def fork(self, arguments: list[str], environment: dict[str, str]) -> Forked | None:
        """Start a job; None if there is nobody to do it."""
        with self.lock:
            self.next = None
            try:
                self.asked.write(json.dumps([arguments, environment]) + "\n")
                self.asked.flush()
            except OSError:
                return None
            self.started.acquire()
            return self.next

    def _listen(self) -> None:
        """Hear of every job that it has begun, and how it ended; when it is gone itself, so are they."""
        try:
            for text in self.told:
                pid, code = json.loads(text)
                if code is None:
                    self.next = self.born[pid] = Forked(pid)
                    self.started.release()
                else:
                    self.born.pop(pid).end(code)
        except (OSError, ValueError):
            pass
        for one in self.born.values():
            one.end(1)
        self.next = None
        self.started.release()
        self.process.wait()


class _Launcher(ProcessJobLauncher):
    """FLARE's launcher of processes, with forks instead."""

    module = ""

    def __init__(self) -> None:
        super().__init__()
        self.nursery: Nursery | None = None

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Have somebody ready before the first job."""
        super().handle_event(event_type, fl_ctx)
        if event_type == EventType.SYSTEM_START and sys.platform == "linux":
            self.nursery = Nursery(self.module)

    def launch_job(self, job_meta: dict[str, Any], fl_ctx: FLContext) -> Any:
        """Start the process of a job; where there is nobody to fork it (on Linux alone that is safe), as FLARE does."""
        if self.nursery is None:
            return super().launch_job(job_meta, fl_ctx)
        environment = {**os.environ, **get_credential_env(fl_ctx.get_prop(FLContextKey.JOB_PROCESS_ARGS) or {})}
        arguments = shlex.split(self.get_command(job_meta, fl_ctx), True)[3:]
        made = self.nursery.fork(arguments, environment)
        if made is None:
            self.nursery = Nursery(self.module)
            return super().launch_job(job_meta, fl_ctx)
        return ProcessHandle(process_adapter=made)


def command(fl_ctx: FLContext, names: list[str]) -> str:
    """Return the command of a job's process, by the ``names`` of its arguments.

    FLARE's own form takes folders as they are called, and falls apart where a name has a space in it.
    """
    given = fl_ctx.get_prop(FLContextKey.JOB_PROCESS_ARGS)
    parts = [shlex.quote(sys.executable)]
    for name in names:
        if pair := given.get(name):
            flag, value = map(str, pair)
            parts += [flag, value if name == JobProcessArgs.OPTIONS else shlex.quote(value)]  # which are several
    return " ".join(parts)


class ClientWorkers(_Launcher):
    """At a client."""

    module = "nvflare.private.fed.app.client.worker_process"

    def get_command(self, job_meta: dict[str, Any], fl_ctx: FLContext) -> str:
        """Return what FLARE would start."""
        return command(fl_ctx, get_client_job_args())


class ServerWorkers(_Launcher):
    """At the server."""

    module = "nvflare.private.fed.app.server.runner_process"

    def get_command(self, job_meta: dict[str, Any], fl_ctx: FLContext) -> str:
        """Return what FLARE would start."""
        return command(fl_ctx, get_server_job_args())


def nurse(line: socket.socket, module: str) -> None:
    """Read everything, and fork a job for each line that asks for one, until nobody can ask any more."""
    for name in (module, JOBS[module], *EARLY):
        importlib.import_module(name)
    HALS()(np.ones((2, 2)), Stats(np.eye(2), np.ones((2, 2))))  # numba reads itself at its first call
    children, (bell, ringer), (life, held) = set[int](), socket.socketpair(), os.pipe()
    for end in (bell, ringer):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends when nobody can ask any more
    signal.set_wakeup_fd(ringer.fileno())
    asked, told = line.makefile("r"), line.makefile("w")
    with selectors.DefaultSelector() as selector:
        selector.register(line, selectors.EVENT_READ)
        selector.register(bell, selectors.EVENT_READ)
        while True:
            ready = [key.fileobj for key, _ in selector.select()]
            if line in ready:
                text = asked.readline()
                if not text:
                    return
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    signal.signal(signal.SIGINT, signal.default_int_handler)
                    os.close(line.detach())
                    os.close(held)  # by nobody but this process's parent, whose end closes it
                    end_with(life)
                    _run(module, *json.loads(text))
                children.add(pid)
                _say(told, pid, None)
            if bell in ready:
                bell.recv(4096)
            for pid in list(children):
                found, status = os.waitpid(pid, os.WNOHANG)
                if found:
                    children.discard(pid)
                    _say(told, pid, os.waitstatus_to_exitcode(status))


def _say(line: Any, pid: int, code: int | None) -> None:
    line.write(json.dumps([pid, code]) + "\n")
    line.flush()


def _run(module: str, arguments: list[str], environment: dict[str, str]) -> None:
    """Be the process of a job, from its first line to its end."""
    code = 1
    try:
        os.setsid()
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = [module, *arguments]
        found = importlib.import_module(module)
        args = found.parse_arguments()
        folder = os.path.join(args.workspace, args.job_id)
        code = MainProcessMonitor.run(found.main, folder, shutdown_grace_time=GRACE, args=args) or 0
    except BaseException:
        traceback.print_exc()
    finally:
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    nurse(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
