"""Certificates and the folders that FLARE starts from: one for the server, one for the lead, one for each client.

A folder has ``startup`` (who am I, whom do I trust, where is the server) and ``local`` (what I allow). Private keys are
made where they are used and never leave that folder.
"""

from __future__ import annotations

import ipaddress
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

DAYS = 365
OUTCOME = 5.0
"""Seconds that a job of the server waits for clients to say how theirs ended; one that was lost never does."""
LEAD = "lead@cofactor"
CONTROLLER, EXECUTOR = "cofactor.federation.controller.Rounds", "cofactor.federation.executor.Steps"
CLIENT_WORKERS, SERVER_WORKERS = (f"cofactor.federation.workers.{name}Workers" for name in ("Client", "Server"))
Key = rsa.RSAPrivateKey


def new_key(path: Path) -> Key:
    """Make a private key that only its owner can read."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(pem)
    return key


def read_key(path: Path) -> Key:
    """Read a private key."""
    key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    assert isinstance(key, rsa.RSAPrivateKey)
    return key


def _name(common: str, *, org: str | None = None, role: str | None = None) -> x509.Name:
    parts = [(NameOID.COMMON_NAME, common), (NameOID.ORGANIZATION_NAME, org), (NameOID.UNSTRUCTURED_NAME, role)]
    return x509.Name([x509.NameAttribute(oid, text) for oid, text in parts if text])


def new_root(folder: Path, federation: str) -> None:
    """Make the root of a federation: its key signs certificates, and stays with the coordinator."""
    key = new_key(folder / "rootCA.key")
    usage = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only"), False
    )
    builder = (
        _builder(_name(federation), _name(federation), key.public_key(), key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(
            x509.KeyUsage(digital_signature=True, key_cert_sign=True, crl_sign=True, decipher_only=False, **usage),
            critical=True,
        )
    )
    (folder / "rootCA.pem").write_bytes(_pem(builder.sign(key, hashes.SHA256())))


def _builder(subject: x509.Name, issuer: x509.Name, public: Any, signer: Key) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=DAYS))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )


def sign(root: Path, public: Any, common: str, *, host: str | None = None, role: str | None = None) -> bytes:
    """Return the certificate (PEM) of a public key: the name is the signer's choice, never the asker's."""
    key = read_key(root / "rootCA.key")
    issuer = x509.load_pem_x509_certificate((root / "rootCA.pem").read_bytes()).subject
    builder = _builder(_name(common, org="cofactor", role=role), issuer, public, key)
    names = x509.SubjectAlternativeName([_host(host or common)])
    return _pem(builder.add_extension(names, critical=False).sign(key, hashes.SHA256()))


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def request(key: Key, client: str) -> bytes:
    """Client: return a certificate signing request (PEM) for its key."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(_name(client))
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def public_of(pem: bytes) -> Any:
    """Return the public key of a signing request; refuses one that its own key has not signed."""
    found = x509.load_pem_x509_csr(pem)
    if not found.is_signature_valid:
        raise ValueError("signature")
    return found.public_key()


def expiry(certificate: Path) -> datetime:
    """Return when a certificate ends."""
    return x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc


def write_server(home: Path, federation: str, host: str, port: int) -> None:
    """Write the server's configuration; its storage is in its own folder."""
    server = {
        "name": federation,
        "service": {"target": f"{host}:{port}", "scheme": "grpc"},
        "admin_server": host,
        "admin_port": port,
        "ssl_private_key": "server.key",
        "ssl_cert": "server.crt",
        "ssl_root_cert": "rootCA.pem",
        "connection_security": "mtls",
    }
    _write(home / "startup" / "fed_server.json", {"format_version": 2, "servers": [server]})
    base = home.resolve()
    storage = "nvflare.app_common.storages.filesystem_storage.FilesystemStorage"
    state = "nvflare.app_common.state_persistors.storage_state_persistor.StorageStatePersistor"
    snapshots = {"path": storage, "args": {"root_dir": str(base / "snapshots"), "uri_root": "/"}}
    resources = {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": [CONTROLLER],
        "client_outcome_wait_timeout": OUTCOME,
        "servers": [
            {"admin_storage": "transfer", "max_num_clients": 1000, "heart_beat_timeout": 60, "admin_timeout": 10.0}
        ],
        "snapshot_persistor": {"path": state, "args": {"uri_root": "/", "storage": snapshots}},
        "components": [
            _component(
                "job_scheduler",
                "nvflare.app_common.job_schedulers.job_scheduler.DefaultJobScheduler",
                max_jobs=1,
                max_schedule_count=400,  # an hour for clients to come
                min_schedule_interval=1.0,
                max_schedule_interval=10.0,
            ),
            _component(
                "job_manager",
                "nvflare.apis.impl.job_def_manager.SimpleJobDefManager",
                uri_root=str(base / "jobs"),
                job_store_id="job_store",
            ),
            _component("job_store", storage),
            _component("process_launcher", SERVER_WORKERS),
        ],
    }
    _write(home / "local" / "resources.json", resources)
    _write(home / "local" / "authorization.json", _rights("any"))
    _write(home / "local" / "log_config.json", _logging())


def write_lead(home: Path, federation: str, host: str, port: int) -> None:
    """Write the configuration of whoever submits runs."""
    admin = {
        "project_name": federation,
        "username": LEAD,
        "server_identity": host,
        "scheme": "grpc",
        "host": host,
        "port": port,
        "connection_security": "mtls",
        "uid_source": "user_input",
        "with_file_transfer": True,
        "upload_dir": "transfer",
        "download_dir": "transfer",
        "client_key": "client.key",
        "client_cert": "client.crt",
        "ca_cert": "rootCA.pem",
    }
    _write(home / "startup" / "fed_admin.json", {"format_version": 1, "admin": admin})
    times = {"idle_timeout": 900.0, "login_timeout": 10.0, "with_debug": False, "authenticate_msg_timeout": 2.0}
    _write(home / "local" / "resources.json", {"format_version": 1, "admin": {**times, "prompt": "> "}})


def write_client(home: Path, federation: str, client: str, *, host: str, port: int, identity: str) -> None:
    """Write a client's configuration: only cofactor's own class may run here, no code, no shell, no logs go out."""
    connection = {
        "ssl_private_key": "client.key",
        "ssl_cert": "client.crt",
        "ssl_root_cert": "rootCA.pem",
        "fqsn": client,
        "is_leaf": True,
        "connection_security": "mtls",
    }
    service = {"target": f"{host}:{port}", "scheme": "grpc"}
    servers = [{"name": federation, "service": service, "identity": identity}]
    _write(home / "startup" / "fed_client.json", {"format_version": 2, "servers": servers, "client": connection})
    resources = {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": [EXECUTOR],
        "allow_log_streaming": False,
        "client": {"retry_timeout": 30, "compression": "Gzip"},
        "components": [
            _component(
                "resource_manager",
                "nvflare.app_common.resource_managers.gpu_resource_manager.GPUResourceManager",
                num_of_gpus=0,
                mem_per_gpu_in_GiB=0,
                expiration_period=300,
            ),
            _component(
                "resource_consumer", "nvflare.app_common.resource_consumers.gpu_resource_consumer.GPUResourceConsumer"
            ),
            _component("process_launcher", CLIENT_WORKERS),
        ],
    }
    _write(home / "local" / "resources.json", resources)
    _write(home / "local" / "authorization.json", _rights("none"))
    _write(home / "local" / "log_config.json", _logging())


def _rights(here: str) -> dict[str, Any]:
    """The lead may submit and end runs everywhere, and look at the server; nobody may run a shell, or bring code."""
    runs = dict.fromkeys(("submit_job", "manage_job"), "any")
    none = dict.fromkeys(("clone_job", "shell_commands", "byoc"), "none")
    looks = dict.fromkeys(("view", "operate", "download_job", "app_command"), here)
    return {"format_version": "1.0", "permissions": {"lead": {**runs, **none, **looks}}}


def _component(name: str, path: str, **args: Any) -> dict[str, Any]:
    return {"id": name, "path": path, "args": args}


def _logging() -> dict[str, Any]:
    """A log file in the own folder, and nothing else."""
    form = {"plain": {"format": "%(asctime)s %(name)s %(levelname)s %(message)s"}}
    rotating: dict[str, Any] = {
        "class": "logging.handlers.RotatingFileHandler",
        "formatter": "plain",
        "filename": "log.txt",
        "mode": "a",
        "maxBytes": 20_000_000,
        "backupCount": 3,
    }
    root = {"level": "INFO", "handlers": ["file"]}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": form,
        "handlers": {"file": rotating},
        "loggers": {"root": root},
    }


def _write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def der_of(public: Any) -> bytes:
    """Return the bytes of a public key."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return bytes(public.public_bytes(serialization.Encoding.DER, form))
