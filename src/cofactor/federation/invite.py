"""The coordinator's folder of a federation, the files it hands out, and how a client becomes a member with one.

An invite holds no private key: only where the server is, the root certificate to know it by, and a token that is good
for one certificate. The client makes its key, sends a signing request over TLS, and gets its certificate back.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import http.server
import json
import re
import secrets
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from cofactor import __version__, records
from cofactor.federation import kits, sealed
from cofactor.federation.presence import Places
from cofactor.files import atomic
from cofactor.types import CofactorError

FILE, ENROLLED = "federation.json", "enrolled.json"
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,60}[a-z0-9])?")
LARGEST, REACH = 1 << 14, 10.0
"""Bytes of what is said at the door, and seconds for a server to answer at all."""


@dataclass(frozen=True)
class Invite:
    """One client's file: it is handed over once, and used once."""

    federation: str
    client: str
    host: str
    port: int
    enrol_port: int
    root: str
    token: str
    salt: str

    @classmethod
    def read(cls, path: Path, passphrase: str | None = None) -> Invite:
        """Read an invite; its client gives a folder its name, which must lead nowhere else."""
        if not path.exists():
            raise CofactorError(f"{path}: expected an invite of a federation, found no such file.")
        found = records.decode(cls, sealed.opened(records.read_json(path), passphrase, str(path)), path.name)
        _check_name(found.client)
        return found


@dataclass(frozen=True)
class Federation:
    """The coordinator's folder: root, server, lead, invites; ``federation.json`` says who is invited."""

    home: Path
    name: str
    host: str
    port: int
    enrol_port: int
    clients: list[str]
    salt: str
    tokens: dict[str, str]

    @classmethod
    def init(
        cls,
        home: Path,
        clients: list[str],
        *,
        host: str,
        port: int,
        name: str = "federation",
        passphrase: str | None = None,
    ) -> Federation:
        """Make root, server and lead, and one invite for each client; an existing federation is never written over.

        Invites are sealed with a ``passphrase``, if there is one.
        """
        if (home / FILE).exists():
            raise CofactorError(f"{home}: already holds a federation; choose another folder.")
        list(map(_check_name, clients))
        if len(set(clients)) < len(clients) or not clients:
            raise CofactorError("clients: expected names, each one once; found none, or one twice.")
        if not (1 <= port < 65535):
            raise CofactorError(f"port: expected 1 to 65534, found {port}.")
        kits.new_root(home / "root", name)
        root = (home / "root" / "rootCA.pem").read_text(encoding="utf-8")
        for folder, own in (("server", "server"), ("lead", "client")):
            key = kits.new_key(home / folder / "startup" / f"{own}.key")
            common, role = (host, None) if folder == "server" else (kits.LEAD, "lead")
            signed = kits.sign(home / "root", key.public_key(), common, host=host, role=role)
            (home / folder / "startup" / f"{own}.crt").write_bytes(signed)
            (home / folder / "startup" / "rootCA.pem").write_text(root)
        kits.write_server(home / "server", name, host, port)
        kits.write_lead(home / "lead", name, host, port)
        found = cls(home, name, host, port, port + 1, [], secrets.token_hex(16), {})
        for client in clients:
            found = found.invite(client, passphrase)
        return found

    def invite(self, client: str, passphrase: str | None = None) -> Federation:
        """Make an invite: of a new client, or a new one of a client that has lost its folder.

        The invite before it is good for nothing then; a certificate that was given for it stays valid until it ends.
        """
        _check_name(client)
        token, root = secrets.token_hex(32), (self.home / "root" / "rootCA.pem").read_text(encoding="utf-8")
        made = Invite(self.name, client, self.host, self.port, self.enrol_port, root, token, self.salt)
        told = asdict(made) if passphrase is None else sealed.seal(asdict(made), passphrase)
        clients = [*self.clients, *([] if client in self.clients else [client])]
        found = replace(self, clients=clients, tokens={**self.tokens, client: _hash(token)})
        if known := self.enrolled():
            _save(self.home / ENROLLED, {name: key for name, key in known.items() if name != client})
        _save(self.home / FILE, {key: value for key, value in asdict(found).items() if key != "home"})
        _save(self.home / "invites" / f"{client}.cofactor", told)
        return found

    @classmethod
    def read(cls, home: Path) -> Federation:
        """Read the coordinator's folder."""
        if not (home / FILE).exists():
            raise CofactorError(f"{home}: expected the folder of a federation; `cofactor federation init` makes one.")
        return cls(home, **records.read_json(home / FILE))

    def enrolled(self) -> dict[str, str]:
        """Return the hash of the public key of every client that has a certificate."""
        file = self.home / ENROLLED
        return records.read_json(file) if file.exists() else {}

    def enrol(self, asked: Any) -> tuple[int, dict[str, str]]:
        """Sign a client's request, if its token is good and was not used for another key."""
        match asked:
            case {"client": str(client), "token": str(token), "request": str(pem), **rest} if not rest:
                pass
            case _:
                return 400, {"error": "expected a request to join"}
        if not hmac.compare_digest(self.tokens.get(client, ""), _hash(token)):
            return 403, {"error": "this invite is not one of this federation"}
        try:
            public = kits.public_of(pem.encode())
        except Exception:  # hostile bytes may fail in any way
            return 400, {"error": "expected a certificate signing request"}
        print_, known = hashlib.sha256(kits.der_of(public)).hexdigest(), self.enrolled()
        if known.get(client, print_) != print_:
            return 409, {"error": "this invite was used already; ask the coordinator for a new one"}
        _save(self.home / ENROLLED, {**known, client: print_})
        return 200, {"certificate": kits.sign(self.home / "root", public, client).decode()}

    def listen(self, say: Callable[[str], Any] = lambda text: None) -> http.server.ThreadingHTTPServer:
        """Answer requests to join on the port next to the server's, over TLS, until it is closed."""
        home, lock, places = self.home, threading.Lock(), Places()

        class Door(http.server.BaseHTTPRequestHandler):
            timeout = 10

            def do_POST(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                status, answer = 400, {"error": "expected a request to join"}
                if 0 < size <= LARGEST:
                    try:
                        asked = json.loads(self.rfile.read(size))
                    except ValueError:
                        asked = None
                    with lock:
                        found, here = Federation.read(home), isinstance(asked, dict) and "place" in asked
                        # invites may have been made since
                        status, answer = places.hear(asked, found.enrolled()) if here else found.enrol(asked)
                    if status == 200 and not here:
                        say(f"{asked['client']} has a certificate")
                self._send(status, answer)

            def do_GET(self) -> None:
                """Say which versions run here: `cofactor doctor --federation` compares them."""
                self._send(200, versions())

            def _send(self, status: int, answer: dict[str, str]) -> None:
                body = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        startup = self.home / "server" / "startup"
        context.load_cert_chain(startup / "server.crt", startup / "server.key")
        try:
            door = _Quiet(("", self.enrol_port), Door)
        except OSError as error:
            raise CofactorError(f"port {self.enrol_port}: expected a free one to listen on, found: {error}.") from error
        door.socket = context.wrap_socket(door.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=door.serve_forever, daemon=True).start()
        return door


def versions() -> dict[str, str]:
    """Return the versions that must fit together in a federation, of packages that are here."""
    found = {"cofactor": __version__}
    with suppress(metadata.PackageNotFoundError):
        found["nvflare"] = metadata.version("nvflare")
    return found


def _check_name(client: str) -> None:
    if not NAME.fullmatch(client) or client in ("server", "lead", "all"):
        raise CofactorError(f"clients: expected names of small letters, digits and hyphens; found {client!r}.")


class _Quiet(http.server.ThreadingHTTPServer):
    """A door at which strangers may knock as they like."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing."""


def join(invite: Invite, home: Path) -> None:
    """Become a member: make a key here, get a certificate for it, write the folder; nothing happens a second time."""
    startup = home / "startup"
    if (startup / "client.crt").exists():
        known = (startup / "rootCA.pem").read_text(encoding="utf-8") if (startup / "rootCA.pem").exists() else ""
        if known != invite.root:
            raise CofactorError(f"{home}: is the home of a client of another federation; choose another --home.")
        return
    key_file = startup / "client.key"
    key = kits.read_key(key_file) if key_file.exists() else kits.new_key(key_file)
    certificate = _ask(invite, kits.request(key, invite.client).decode())
    (startup / "rootCA.pem").write_text(invite.root)
    kits.write_client(home, invite.federation, invite.client, host=invite.host, port=invite.port, identity=invite.host)
    (startup / "client.crt").write_text(certificate)


def _ask(invite: Invite, request: str) -> str:
    where = f"{invite.host}, port {invite.enrol_port}"
    try:
        status, found = at_door(invite, {"client": invite.client, "token": invite.token, "request": request})
    except ssl.SSLCertVerificationError as error:
        raise CofactorError(
            f"{where}: expected the server of this federation, found one with another certificate ({error.reason})."
        ) from error
    except OSError as error:
        raise unreachable(
            invite.host, [invite.port, invite.enrol_port], f"port {invite.enrol_port}: {error}"
        ) from error
    if status != 200:
        raise CofactorError(f"{where}: {found.get('error', 'refused')}.")
    return str(found["certificate"])


def at_door(invite: Invite, told: dict[str, str], *, timeout: float = 20.0) -> tuple[int, dict[str, Any]]:
    """Client: say something at the door of the server, if it is the one of this federation; else OSError."""
    context = ssl.create_default_context(cadata=invite.root)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    line = http.client.HTTPSConnection(invite.host, invite.enrol_port, timeout=timeout, context=context)
    try:
        line.request("POST", "/", json.dumps(told))
        answer = line.getresponse()
        return answer.status, json.loads(answer.read(LARGEST))
    except (json.JSONDecodeError, UnicodeDecodeError, http.client.HTTPException) as error:
        raise OSError(str(error)) from error
    finally:
        line.close()


def reach(host: str, port: int) -> None:
    """See whether anybody listens at the server's port; say in words what to do where nobody does."""
    try:
        socket.create_connection((host, port), timeout=REACH).close()
    except OSError as error:
        raise unreachable(host, [port], error) from error


def unreachable(host: str, ports: Sequence[int], error: object) -> CofactorError:
    """Return what to say where no server answers."""
    several = f"ports {' and '.join(map(str, ports))}" if len(ports) > 1 else f"port {ports[0]}"
    return CofactorError(
        f"{host}, {several}: expected the server of the federation, found none ({error}). Is `cofactor serve` running "
        f"there? Ask your network people for outgoing TCP to {host}, {several}."
    )


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _save(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic(path, 0o600) as file:  # a token lets whoever reads it in
        file.write((json.dumps(value, indent=1) + "\n").encode())
