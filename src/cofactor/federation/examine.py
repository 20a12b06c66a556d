"""Is this machine ready for its federation? Port, TLS, clock, versions, certificate, disk: each finding in words."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from cofactor.federation import kits
from cofactor.federation.invite import FILE, LARGEST, Federation, Invite, versions
from cofactor.types import CofactorError

SOON, LEAST = timedelta(days=30), 1 << 30


class Finding(NamedTuple):
    """One thing that was looked at, whether it is in order, and what to do."""

    what: str
    good: bool
    words: str


def examine(path: Path, passphrase: str | None = None) -> list[Finding]:
    """Look at a federation from where one stands: the coordinator's folder, a client's folder, or its invite."""
    if (path / FILE).exists():
        federation = Federation.read(path)
        root = (path / "root" / "rootCA.pem").read_text(encoding="utf-8")
        certificates = [path / "root" / "rootCA.pem", path / "server" / "startup" / "server.crt"]
        place = federation.host, federation.port, federation.enrol_port
    elif (path / "startup" / "fed_client.json").exists():
        service = json.loads((path / "startup" / "fed_client.json").read_text(encoding="utf-8"))["servers"][0][
            "service"
        ]["target"]
        host, _, port = service.rpartition(":")
        root, place = (path / "startup" / "rootCA.pem").read_text(encoding="utf-8"), (host, int(port), int(port) + 1)
        certificates = [path / "startup" / "client.crt"]
    elif path.is_file():
        invite = Invite.read(path, passphrase)
        root, place = invite.root, (invite.host, invite.port, invite.enrol_port)
        certificates = list(path.parent.glob(f"{invite.client}-home/startup/client.crt"))
    else:
        raise CofactorError(f"{path}: expected the folder of a federation or of a client, or an invite; found none.")
    return [*_versions(), *_certificates(certificates), *_disk(path), *_server(root, *place)]


def _versions() -> Iterator[Finding]:
    for name, extra in (("cofactor", "cli"), ("nvflare", "flare"), ("cryptography", "flare")):
        try:
            yield Finding(name, True, metadata.version(name))
        except metadata.PackageNotFoundError:
            yield Finding(name, False, f"not installed: pip install 'cofactor[{extra}]'")


def _certificates(files: list[Path]) -> Iterator[Finding]:
    for file in files:
        ends = kits.expiry(file)
        left = ends - datetime.now(UTC)
        words = f"valid until {ends:%Y-%m-%d}"
        if left < SOON:
            words = f"ends on {ends:%Y-%m-%d}: make a new federation, or, at a client, delete {file} and join again"
        yield Finding(f"certificate {file.name}", left >= SOON, words)


def _disk(path: Path) -> Iterator[Finding]:
    free = shutil.disk_usage(path).free
    more = "" if free >= LEAST else "; states of clients and results need room: free at least 1 GB"
    yield Finding("disk", free >= LEAST, f"{free / 1e9:.1f} GB free{more}")


def _server(root: str, host: str, port: int, enrol_port: int) -> Iterator[Finding]:
    ask = f"ask the network people for outgoing TCP to {host}, port {port}; is `cofactor serve` running there?"
    try:
        socket.create_connection((host, port), timeout=10).close()
        yield Finding("server", True, f"{host}, port {port} answers")
    except OSError as error:
        yield Finding("server", False, f"{host}, port {port} does not answer ({error}): {ask}")
        return
    context = ssl.create_default_context(cadata=root)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    try:
        line = http.client.HTTPSConnection(host, enrol_port, timeout=10, context=context)
        line.request("GET", "/")
        answer = line.getresponse()
        said, told = answer.getheader("Date"), answer.read(LARGEST)
    except ssl.SSLCertVerificationError as error:
        yield Finding("TLS", False, f"{host} is not the server of this federation ({error.verify_message})")
        return
    except (OSError, http.client.HTTPException) as error:
        yield Finding("TLS", False, f"{host}, port {enrol_port} does not answer ({error}); needed once, to join")
        return
    yield Finding("TLS", True, f"{host} is the server of this federation")
    if said is not None:
        apart = abs((parsedate_to_datetime(said) - datetime.now(UTC)).total_seconds())
        words = f"{apart:.0f} s from the server's" + ("" if apart < 60 else ": set this machine's clock")
        yield Finding("clock", apart < 60, words)
    yield from _compared(told, host)


def _compared(told: bytes, host: str) -> Iterator[Finding]:
    """Compare the server's versions with those of this machine: runs need the same cofactor, and FLARE's minor one."""
    try:
        there = {str(name): str(version) for name, version in json.loads(told).items()}
    except (ValueError, AttributeError):
        there = {}
    for name, here in versions().items():
        what, found = f"{name} of the server", there.get(name)
        if found is None:
            yield Finding(what, False, f"{host} does not say which version it runs: update cofactor there")
            continue
        same = found == here if name == "cofactor" else found.split(".")[:2] == here.split(".")[:2]
        words = f"{found}, as here" if found == here else f"{found}, and {here} here"
        if not same:
            words += f": all need the same; here, pip install '{name}=={found}', or the other way round at the server"
        yield Finding(what, same, words)
