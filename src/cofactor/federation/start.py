"""The long-lived processes of a federation: the server's and a client's, started and started again."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cofactor.federation import hand_over, kits, policy
from cofactor.federation.invite import Federation, Invite, join
from cofactor.types import CofactorError

SERVER = "nvflare.private.fed.app.server.server_train"
CLIENT = "nvflare.private.fed.app.client.client_train"
SETTINGS = {"NVFLARE_CLIENT_OUTCOME_WAIT_TIMEOUT": "10", "PYTHONUNBUFFERED": "1", "MALLOC_ARENA_MAX": "4"}
PAUSE = 2.0


def serve(home: Path, *, say: Callable[[str], Any] = print) -> None:
    """Run the server of a federation until it is stopped, and let invited clients in."""
    needs_flare()
    federation = Federation.read(home)
    _check_expiry(home / "server" / "startup" / "server.crt")
    _check_port(federation.port)
    door = federation.listen()
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
    passphrase: str | None = None,
    say: Callable[[str], Any] = print,
) -> None:
    """Run a client of a federation until it is stopped; the first time, become a member with the invite."""
    needs_flare()
    found = Invite.read(invite, passphrase)
    home = (home or Path(f"{found.client}-home")).resolve()
    if not data.exists():
        raise CofactorError(f"{data}: expected the data of this client, found no such file.")
    join(found, home)
    _check_expiry(home / "startup" / "client.crt")
    if not (home / policy.FILE).exists():
        (home / policy.FILE).write_text(policy.TEXT)
    policy.Policy.read(home)
    own = {"data": str(data.resolve()), "salt": found.salt, "layer": layer, "client": found.client}
    (home / "local" / "cofactor.json").write_text(json.dumps(own))
    print_ = hand_over.make(home, found.client)
    say(f"client {found.client} of {found.federation} at {found.host}, port {found.port}; policy {home / policy.FILE}")
    say(f"key for secure sums {home / hand_over.FOLDER / found.client}.pub, {print_}")
    _keep(home, CLIENT, "fed_client.json", [f"uid={found.client}", "org=cofactor"], say)


def needs_flare() -> None:
    """Say at once if FLARE is missing."""
    try:
        import nvflare  # noqa: F401
    except ImportError as error:
        raise CofactorError(f"a federation needs NVIDIA FLARE: pip install 'cofactor[flare]' ({error}).") from error


def _check_expiry(certificate: Path) -> None:
    ends = kits.expiry(certificate)
    if ends < datetime.now(UTC):
        raise CofactorError(
            f"{certificate}: expected a certificate that is valid, found one that ended on {ends:%Y-%m-%d}."
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
    command = [sys.executable, "-m", module, "-m", str(home.resolve()), "-s", config]
    command += ["--set", "secure_train=true", *who, "config_folder=config"]
    (home / "transfer").mkdir(exist_ok=True)
    signal.signal(signal.SIGTERM, _end)
    child: subprocess.Popen[bytes] | None = None
    try:
        while True:
            with open(home / "console.txt", "ab") as console:
                environment = {**os.environ, **SETTINGS}
                child = subprocess.Popen(command, env=environment, stdout=console, stderr=console, cwd=home)
            code = child.wait()
            say(f"ended with code {code}; starts again")
            time.sleep(PAUSE)
    finally:
        if child is not None and child.poll() is None:
            child.terminate()
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:
                child.kill()


def _end(number: int, frame: Any) -> None:
    raise KeyboardInterrupt
