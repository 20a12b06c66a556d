"""Mistakes at the commands of a federation, each in a process of its own: clear words, exit code 2, nothing lost.

Those that need a server that runs are in test_real.py, and data that change under a run in test_faults.py.
"""

import socket

import numpy as np
import pytest
from tests.helpers.federation import Real, free_ports

from cofactor.federation import kits
from cofactor.federation.invite import Federation, Invite, join

pytest.importorskip("cryptography")


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """A federation whose server does not run."""
    real = Real(tmp_path_factory.mktemp("mistakes"), [])
    Federation.init(real.home / "federation", ["alice", "bob"], host="localhost", port=real.port)
    np.save(real.home / "x.npy", np.ones((4, 3)))
    return real


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(real, *words):
    """Return what a command says that must end with code 2, in one line, and leave the federation as it was."""
    before = files(real.home / "federation")
    said = real.command(*words, expect=2)
    assert said.startswith("cofactor: "), said
    assert said.count("\n") == 1, said
    assert files(real.home / "federation") == before
    return said


def test_a_wrong_passphrase(real):
    made = Federation.init(real.home / "sealed", ["alice"], host="localhost", port=real.port, passphrase="apple tree")
    words = ["join", "sealed/invites/alice.cofactor", "--data", "x.npy", "--passphrase"]
    assert "found another one (or a damaged file). Nothing was used up" in refused(real, *words, "pear tree")
    assert made.enrolled() == {}
    assert Invite.read(real.home / "sealed" / "invites" / "alice.cofactor", "apple tree").client == "alice"


def test_certificates_that_have_ended(real, monkeypatch):
    monkeypatch.setattr(kits, "DAYS", -1 / 1440)
    Federation.init(real.home / "old", ["alice"], host="localhost", port=real.port)
    said = refused(real, "serve", "--home", "old")
    assert "expected a certificate that is valid, found one that ended on" in said
    assert "Make a new federation" in said
    said = refused(real, "fit", "--engine", "flare", "-k", "3", "--home", "old", "--quiet")
    assert "lead/startup/client.crt: expected a certificate that is valid, found one that ended on" in said
    assert not (real.home / "run").exists()
    monkeypatch.undo()

    made = Federation.init(real.home / "young", ["alice"], host="localhost", port=free_ports(2))
    invite, home, door = made.home / "invites" / "alice.cofactor", real.home / "alice-home", made.listen()
    try:
        monkeypatch.setattr(kits, "DAYS", -1 / 1440)
        join(Invite.read(invite), home)
        monkeypatch.undo()
        said = refused(real, "join", str(invite), "--data", "x.npy")
        assert "Delete this file and join again: the same key gets a new one" in said
        key = (home / "startup" / "client.key").read_bytes()
        (home / "startup" / "client.crt").unlink()
        join(Invite.read(invite), home)
    finally:
        door.shutdown()
    assert (home / "startup" / "client.key").read_bytes() == key
    assert kits.expiry(home / "startup" / "client.crt") > kits.expiry(real.home / "old" / "root" / "rootCA.pem")


def test_a_port_that_is_taken(real):
    for port in (real.port, real.port + 1):
        with socket.create_server(("", port)):
            assert f"port {port}: expected a free one to listen on" in refused(real, "serve")


def test_a_server_that_is_not_there(real):
    """For a client that joins, and for the coordinator who asks for a run: no folder is begun."""
    said = refused(real, "join", "federation/invites/bob.cofactor", "--data", "x.npy", "--home", "b")
    ports = f"ports {real.port} and {real.port + 1}"
    assert f"localhost, {ports}: expected the server of the federation, found none" in said
    assert f"Ask your network people for outgoing TCP to localhost, {ports}" in said
    (real.home / "run.toml").write_text("rank = 2\n")
    said = refused(real, "fit", "--engine", "flare", "--config", "run.toml", "--out", "run", "--quiet")
    assert f"Ask your network people for outgoing TCP to localhost, port {real.port}" in said
    assert not (real.home / "run").exists()


def test_names_and_files(real):
    """Two clients of one name, a federation that is there already, data that are missing, no invite at all."""
    assert "each one once" in refused(real, "federation", "init", "--clients", "bob,bob", "--home", "other")
    assert "already holds a federation" in refused(real, "federation", "init", "--clients", "bob")
    assert not (real.home / "other").exists()
    said = refused(real, "join", "federation/invites/bob.cofactor", "--data", "none.npy")
    assert "none.npy: expected the data of this client, found no such file" in said
    assert "expected an invite of a federation" in refused(real, "join", "none.cofactor", "--data", "x.npy")
