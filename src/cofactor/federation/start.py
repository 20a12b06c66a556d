"""The long-lived processes of a federation: the server's and a client's, started and started again."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cofactor.federation import hand_over, kits, policy, presence
from cofactor.federation.invite import Federation, Invite, at_door, join, reach
from cofactor.files import held
from cofactor.types import CofactorError

SERVER = "nvflare.private.fed.app.server.server_train"
CLIENT = "nvflare.private.fed.app.client.client_train"
BOUND = "cofactor.federation.bound"
SETTINGS = {"NVFLARE_CLIENT_OUTCOME_WAIT_TIMEOUT": str(kits.OUTCOME), "PYTHONUNBUFFERED": "1", "MALLOC_ARENA_MAX": "4"}
PAUSE, LOOK = 2.0, 0.5
CONNECTED = b"Successfully registered client"


def serve(home: Path, *, say: Callable[[str], Any] = print) -> None:
    """Run the server of a federation until it is stopped, and let invited clients in."""
    needs_flare()
    federation = Federation.read(home)
    check_expiry(home / "server" / "startup" / "server.crt", "Make a new federation in another folder: --home.")
    _check_port(federation.port)
    door = federation.listen(say)
    say(f"server {federation.host}, port {federation.port}; clients join on port {federation.enrol_port}")
    try:
        _keep(home / "server", SERVER, "fed_server.json", ["org=cofactor"], say)
    finally:
        door.shutdown()


def take_part(
    invite: Path,
    data: Path,
    home: Path | None = None,
    *,
    layer: str | None = None,
    left_out: Sequence[str] = (),
    passphrase: str | None = None,
    say: Callable[[str], Any] = print,
) -> None:
    """Run a client of a federation until it is stopped; the first time, become a member with the invite.

    ``left_out`` names columns or features of the data that no run reads.
    """
    needs_flare()
    found = Invite.read(invite, passphrase)
    home = (home or Path(f"{found.client}-home")).resolve()
    if not data.exists():
        raise CofactorError(f"{data}: expected the data of this client, found no such file.")
    home.mkdir(parents=True, exist_ok=True)
    with held(home / "running.lock", f"{home}, the folder of client {found.client}", wait=0):
        own = {"data": str(data.resolve()), "salt": found.salt, "layer": layer, "left_out": list(left_out)}
        _take_part(found, {**own, "client": found.client}, home, say)


def _take_part(found: Invite, own: dict[str, Any], home: Path, say: Callable[[str], Any]) -> None:
    """Become a member, write down what a run needs, and be there."""
    join(found, home)
    check_expiry(home / "startup" / "client.crt", "Delete this file and join again: the same key gets a new one.")
    if not (home / policy.FILE).exists():
        (home / policy.FILE).write_text(policy.TEXT)
    policy.Policy.read(home)
    (home / "local" / "cofactor.json").write_text(json.dumps(own))
    print_ = hand_over.make(home, found.client)
    say(f"client {found.client} of {found.federation} at {found.host}, port {found.port}; policy {home / policy.FILE}")
    say(f"key for secure sums {home / hand_over.FOLDER / found.client}.pub, {print_}")
    try:
        reach(found.host, found.port)
    except CofactorError as error:
        say(f"{error} This client goes on trying.")
    with presence.shown(home, found.client, lambda told: at_door(found, told, timeout=5.0)[0]):
        _keep(home, CLIENT, "fed_client.json", [f"uid={found.client}", "org=cofactor"], say)


def needs_flare() -> None:
    """Say at once if FLARE is missing."""
    try:
        import nvflare  # noqa: F401
    except ImportError as error:
        raise CofactorError(f"a federation needs NVIDIA FLARE: pip install 'cofactor[flare]' ({error}).") from error


def check_expiry(certificate: Path, what: str) -> None:
    """Refuse a certificate that has ended, and say what to do."""
    ends = kits.expiry(certificate)
    if ends < datetime.now(UTC):
        raise CofactorError(
            f"{certificate}: expected a certificate that is valid, found one that ended on {ends:%Y-%m-%d}. {what}"
        )


def _check_port(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            raise CofactorError(
                f"port {port}: expected a free one to listen on, found: {error}. Is another server running?"
            ) from error


def _keep(home: Path, module: str, config: str, who: list[str], say: Callable[[str], Any]) -> None:
    """Run a process of FLARE, again when it ends by itself, until this one is stopped."""
    command = [sys.executable, "-m", BOUND, module, "-m", str(home.resolve()), "-s", config]
    command += ["--set", "secure_train=true", *who, "config_folder=config"]
    (home / "transfer").mkdir(exist_ok=True)
    log = home / "log.txt"
    signal.signal(signal.SIGTERM, _end)
    child: subprocess.Popen[bytes] | None = None
    try:
        while True:
            with open(home / "console.txt", "ab") as console:
                environment = {**os.environ, **SETTINGS}
                begun = log.stat().st_size if log.exists() else 0
                child = subprocess.Popen(
                    command, env=environment, cwd=home, stdin=subprocess.PIPE, stdout=console, stderr=console
                )
            if module == CLIENT:
                _greet(child, log, begun, say)
            code = child.wait()
            say(f"ended with code {code}; starts again")
            time.sleep(PAUSE)
    except KeyboardInterrupt:
        say("stopped; the same command starts it again")
    finally:
        if child is not None and child.poll() is None:
            child.terminate()
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:
                child.kill()


def _greet(child: subprocess.Popen[bytes], log: Path, begun: int, say: Callable[[str], Any]) -> None:
    """Say that a client is connected, when its log says so."""
    while child.poll() is None:
        if log.exists() and CONNECTED in log.read_bytes()[begun:]:
            say("connected; waits for runs")
            return
        time.sleep(LOOK)


def _end(number: int, frame: Any) -> None:
    raise KeyboardInterrupt
