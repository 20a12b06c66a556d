"""Federations for tests: clients behind a wire of calls in this process, and real ones of processes on loopback."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from cofactor.engines.flare import Flare
from cofactor.engines.flare_clients import Clients, Patience
from cofactor.engines.flare_member import Desk, Member
from cofactor.kinds import check
from cofactor.method import Method
from cofactor.methods.build import adapted
from cofactor.plan import Plan

ROOT = Path(__file__).parents[2]
Tamper = Callable[[str, bytes, bytes], bytes | None]


class CallWire:
    """A wire to desks in this process; ``tamper`` may change, hold back (None) or record what is carried."""

    def __init__(self, desks: dict[str, Any], tamper: Tamper | None = None) -> None:
        self.desks, self.tamper = desks, tamper or (lambda client, frame, reply: reply)
        self.replies: queue.Queue[tuple[int, bytes | None]] = queue.Queue()
        self.count = 0

    def submit(self, client: str, frame: bytes, timeout: float) -> int:
        self.count += 1
        ticket = self.count

        def carry() -> None:
            reply = self.desks[client].handle(frame)
            self.replies.put((ticket, self.tamper(client, frame, reply)))

        threading.Thread(target=carry, daemon=True).start()
        return ticket

    def wait(self, timeout: float) -> list[tuple[int, bytes | None]]:
        try:
            return [self.replies.get(timeout=max(timeout, 0.001))]
        except queue.Empty:
            return []


def flare_over(
    method: Method,
    Xs: Sequence[Any],
    plan: Plan,
    *,
    keep: Path | None = None,
    tamper: Any = None,
    patience: Patience | None = None,
    tell: Any = None,
) -> tuple[Flare, dict[str, Desk]]:
    """Return a flare engine whose clients are members in this process."""
    data = check(method.traits.kind, Xs)
    formed, limit, _ = adapted(method, plan)
    if plan.stream is not None:
        limit = plan.stream.updates
    desks = {}
    for j, X in enumerate(data):
        member = Member(formed, X, j, plan.seed, limit, keep=keep / str(j) if keep else None, masks=plan.secure)
        desks[f"c{j}"] = Desk("run", member.ops)
    wire = CallWire(desks, tamper)
    clients = Clients(wire, list(desks), "run", patience or Patience(silence=1.0), tell or (lambda c, what: None))
    return Flare(clients, data[0].shape[1]), desks


def blocks(rows: Sequence[int] = (30, 40, 25, 35), features: int = 20, rank: int = 3, seed: int = 0) -> list[Any]:
    """Clients' data with a planted factor."""
    rng = np.random.default_rng(seed)
    H = rng.uniform(size=(rank, features)) * (rng.uniform(size=(rank, features)) < 0.6)
    return [rng.gamma(1.0, size=(n, rank)) @ H + 0.01 * rng.uniform(size=(n, features)) for n in rows]


class Real:
    """A federation of processes on loopback with real certificates: one server, and a client for each matrix.

    Everything is started as a user starts it; what was started is ended, and nothing else.
    """

    proxy: Proxy
    controlled = False
    """Whether files say what happens to clients: see :meth:`fall_asleep`, :meth:`fill`."""

    def __init__(self, home: Path, Xs: Sequence[Any], names: Sequence[str] = ("alice", "bob", "carol", "dave")) -> None:
        self.home, self.names = home, list(names[: len(Xs)])
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.port = free_ports(2)
        home.mkdir(parents=True, exist_ok=True)
        for name, X in zip(self.names, Xs, strict=True):
            self.give(name, X)
        if not self.names:
            return
        clients = ",".join(self.names)
        self.command("federation", "init", "--clients", clients, "--port", str(self.port))

    def give(self, name: str, X: Any) -> None:
        """Put a client's data where it reads them."""
        np.save(self.home / f"{name}.npy", X)

    def command(self, *words: str, expect: int = 0) -> str:
        """Run a command of cofactor to its end; return what it printed."""
        told: Any = {"cwd": self.home, "capture_output": True, "text": True, "timeout": 600}
        done = subprocess.run([*COFACTOR, *words], check=False, **told)
        assert done.returncode == expect, done.stdout + done.stderr
        return done.stdout + done.stderr

    def start(self, name: str, *words: str, env: dict[str, str] | None = None) -> None:
        """Start a command of cofactor that runs until it is stopped."""
        with open(self.home / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(
                [*COFACTOR, *words], cwd=self.home, stdout=log, stderr=log, start_new_session=True, env=env
            )

    def serve(self, env: dict[str, str] | None = None) -> None:
        self.start("server", "serve", env=env)
        wait_for(lambda: is_open(self.port) and is_open(self.port + 1), "the server")

    def join(self, name: str, *words: str, env: dict[str, str] | None = None) -> None:
        if self.controlled:
            env = listening(COFACTOR_TEST_CONTROL=str(self.home / name))
        self.start(name, "join", f"federation/invites/{name}.cofactor", "--data", f"{name}.npy", *words, env=env)

    def fall_asleep(self, name: str, seconds: float) -> None:
        """Let a client sleep in its next step; return when it does."""
        asleep = self.home / f"{name}.asleep"
        asleep.unlink(missing_ok=True)
        (self.home / "sleep").write_text(str(seconds))
        (self.home / "sleep").rename(self.home / f"{name}.sleep")
        wait_for(asleep.exists, f"a step of {name}")

    def fill(self, name: str) -> None:
        """Let a client's disk be full from now on."""
        (self.home / f"{name}.full").touch()

    def wait_for_clients(self) -> None:
        """Wait until all clients are registered."""
        for name in self.names:
            wait_for(lambda name=name: self.registrations(name) > 0, name)

    def registrations(self, name: str) -> int:
        """How often a client has registered with the server."""
        log = self.home / f"{name}-home" / "log.txt"
        return log.read_text().count("Successfully registered") if log.exists() else 0

    def kill(self, name: str) -> None:
        """End a process and all that it started, at once."""
        process = self.processes.pop(name)
        for one in self._all(process):
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        process.wait()

    def _all(self, process: subprocess.Popen[bytes]) -> list[psutil.Process]:
        """Return a process and all that it started."""
        try:
            first = psutil.Process(process.pid)
            return [first, *first.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def worker(self, name: str) -> list[int]:
        """Return the processes that run a job of a client, or of the server: forks of the one that waits for jobs."""
        waiting = [one for one in self._all(self.processes[name]) if WORKERS in one.cmdline()]
        return [one.pid for one in waiting if one.ppid() in {other.pid for other in waiting}]

    def signal(self, name: str, number: int) -> None:
        """Send a signal to all processes of a client."""
        for one in self._all(self.processes[name]):
            one.send_signal(number)

    def write(self, name: str, **settings: Any) -> str:
        """Write a configuration; return its name."""
        waits = settings.pop("federation", {})
        options = settings.pop("options", {})
        lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
        lines += ["[options]", *(f"{key} = {json.dumps(value)}" for key, value in options.items())]
        lines += ["[federation]", *(f"{key} = {json.dumps(value)}" for key, value in waits.items())]
        (self.home / f"{name}.toml").write_text("\n".join(lines))
        return f"{name}.toml"

    def fit(self, name: str, **settings: Any) -> Path:
        """Run a configuration to its end; return its folder."""
        self.command("fit", "--engine", "flare", "--config", self.write(name, **settings), "--out", name)
        return self.home / name

    def begin(self, name: str, **settings: Any) -> subprocess.Popen[bytes]:
        """Start a run; return its process."""
        self.start(name, "fit", "--engine", "flare", "--config", self.write(name, **settings), "--out", name)
        return self.processes.pop(name)

    def rounds(self, name: str) -> int:
        """How many rounds of a run the server has written down."""
        note = self.home / name / "federation.json"
        if not note.exists():
            return 0
        run = json.loads(note.read_text())["terms"]["run"]
        file = self.home / "federation" / "server" / "runs" / run / "history.jsonl"
        return len(file.read_text().splitlines()) if file.exists() else 0

    def reach(self, name: str, rounds: int) -> None:
        """Wait until a run has come so far."""
        wait_for(lambda: self.rounds(name) >= rounds, f"round {rounds}")

    def events(self, name: str) -> list[dict[str, str]]:
        return [json.loads(line) for line in (self.home / name / "events.jsonl").read_text().splitlines()]

    def close(self) -> None:
        for name in list(self.processes):
            self.kill(name)


@contextlib.contextmanager
def running(home: Path, Xs: Sequence[Any], *, proxied: str = "", controlled: bool = False) -> Iterator[Real]:
    """Start a federation, and end it; ``proxied`` is a client behind a line that can be cut (``real.proxy``)."""
    real = Real(home, Xs)
    real.controlled = controlled
    if proxied:
        real.proxy = Proxy(real.port)
        invite = home / "federation" / "invites" / f"{proxied}.cofactor"
        invite.write_text(json.dumps({**json.loads(invite.read_text()), "port": real.proxy.port}))
    try:
        real.serve()
        for name in real.names:
            real.join(name)
        real.wait_for_clients()
        yield real
    finally:
        real.close()


def listening(**more: str) -> dict[str, str]:
    """Return the environment of a process that records, is hostile or controlled: ``recording/sitecustomize.py``."""
    paths = [ROOT / "tests" / "helpers" / "recording", ROOT, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), **more}


def factor_of(folder: Path) -> Any:
    """Return the factor of a run folder."""
    with np.load(folder / "factor.npz") as file:
        return file["factor"]


class Proxy:
    """A line between a client and the server that can be cut."""

    def __init__(self, target: int) -> None:
        self.target, self.port = target, free_ports(1)
        self.open, self.lines = True, list[socket.socket]()
        self.door = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            near, _ = self.door.accept()
            if not self.open:
                near.close()
                continue
            try:
                far = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                near.close()
                continue
            self.lines += [near, far]
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(one, other), daemon=True).start()

    def _pump(self, one: socket.socket, other: socket.socket) -> None:
        try:
            while data := one.recv(1 << 16):
                self.carried(data)
                other.sendall(data)
        except OSError:
            pass
        for line in (one, other):
            line.close()

    def carried(self, data: bytes) -> None:
        """See what is carried."""

    def cut(self, seconds: float) -> None:
        """Cut the line for a while."""
        self.open = False
        for line in self.lines:
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
            line.close()
        self.lines.clear()
        time.sleep(seconds)
        self.open = True


WORKERS = "cofactor.federation.workers"
COFACTOR = [sys.executable, "-m", "cofactor"]


def free_ports(count: int) -> int:
    """Return the first of so many neighbouring ports that are free, below those of outgoing connections."""
    while True:
        first = 20_000 + secrets.randbelow(12_000)  # whatever other tests have seeded
        if not any(is_open(first + i) for i in range(count)):
            return first


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_for(done: Callable[[], bool], what: str, seconds: float = 300) -> None:
    """Wait until it is so."""
    until = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < until, f"{what}: not within {seconds} s"
        time.sleep(0.1)
