"""How a client becomes a member: a key of its own, a token that is good once, a server that it knows."""

import dataclasses
import http.client
import json
import shutil
import socket
import ssl
import stat
from datetime import UTC, datetime, timedelta

import pytest
from tests.helpers.command import cofactor
from tests.helpers.federation import free_ports

from cofactor import __version__
from cofactor.federation import examine as looks
from cofactor.federation import invite, kits, presence, start
from cofactor.federation.examine import examine
from cofactor.federation.invite import Federation, Invite, join
from cofactor.types import CofactorError

pytest.importorskip("cryptography")
pytest.importorskip("nvflare")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    home = tmp_path_factory.mktemp("coordinator") / "federation"
    return Federation.init(home, ["alice", "bob"], host="localhost", port=free_ports(2))


@pytest.fixture(scope="module")
def door(made):
    door = made.listen()
    yield door
    door.shutdown()


def invite_of(made, name):
    return Invite.read(made.home / "invites" / f"{name}.cofactor")


def test_an_invite_holds_no_key_and_keys_are_their_owners(made):
    for name in made.clients:
        assert "PRIVATE" not in (made.home / "invites" / f"{name}.cofactor").read_text()
    for key in (*made.home.rglob("*.key"), *made.home.glob("invites/*"), made.home / "federation.json"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert invite_of(made, "alice").token not in (made.home / "federation.json").read_text()
    assert Federation.read(made.home) == made


@pytest.mark.parametrize("name", ["../../elsewhere", "/tmp/elsewhere", "a/b", "..", "", "alice*"])
def test_the_folder_of_a_client_is_where_it_joins_whatever_an_invite_says(made, tmp_path, name):
    told = json.loads((made.home / "invites" / "alice.cofactor").read_text())
    (tmp_path / "alice.cofactor").write_text(json.dumps({**told, "client": name}))
    with pytest.raises(CofactorError, match="expected names of small letters"):
        Invite.read(tmp_path / "alice.cofactor")


def test_a_client_joins_once_with_a_key_that_stays(made, door, tmp_path):
    invite = invite_of(made, "alice")
    join(invite, tmp_path / "a")
    key = kits.read_key(tmp_path / "a" / "startup" / "client.key")
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate((tmp_path / "a" / "startup" / "client.crt").read_bytes())
    assert certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value == "alice"
    assert certificate.public_key().public_numbers() == key.public_key().public_numbers()
    here = [path for path in made.home.rglob("*") if path.is_file()]
    pem = (tmp_path / "a" / "startup" / "client.key").read_text().splitlines()[3]
    assert not any(pem in path.read_text(errors="replace") for path in here)
    join(invite, tmp_path / "a")  # a restart
    with pytest.raises(CofactorError, match="this invite was used already"):
        join(invite, tmp_path / "thief")
    (tmp_path / "a" / "startup" / "client.crt").unlink()
    join(invite, tmp_path / "a")  # the same key again: the certificate was lost on the way
    resources = json.loads((tmp_path / "a" / "local" / "resources.json").read_text())
    assert resources["allow_log_streaming"] is False
    assert resources["class_allow_list"] == [kits.EXECUTOR]
    assert "site_log_streamer" not in json.dumps(resources)
    rights = json.loads((tmp_path / "a" / "local" / "authorization.json").read_text())["permissions"]["lead"]
    assert {rights[name] for name in ("shell_commands", "byoc", "view", "operate", "download_job")} == {"none"}


def test_strangers_are_refused(made, door, tmp_path):
    invite = invite_of(made, "bob")
    for wrong in ({"token": "0" * 64}, {"client": "eve"}, {"client": "alice"}):
        with pytest.raises(CofactorError, match="not one of this federation"):
            join(Invite(**{**vars(invite), **wrong}), tmp_path / str(wrong))
    other = Federation.init(tmp_path / "other", ["bob"], host="localhost", port=made.port)
    with pytest.raises(CofactorError, match="found one with another certificate"):
        join(invite_of(other, "bob"), tmp_path / "b")
    assert "bob" not in made.enrolled()


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"x" * 100_000, b'{"client": 1, "token": 2, "request": 3}'])
def test_garbage_at_the_door(made, door, body):
    context = ssl.create_default_context(cadata=(made.home / "root" / "rootCA.pem").read_text())
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    line = http.client.HTTPSConnection("localhost", made.enrol_port, context=context, timeout=10)
    try:
        line.request("POST", "/", body)
        assert line.getresponse().status == 400
    except OSError:
        assert len(body) > 50_000  # it hangs up on what is too long
    for raw in (b"\x00" * 64, b"GET / HTTP/1.0\r\n\r\n"):
        with socket.create_connection(("localhost", made.enrol_port), timeout=5) as bare:
            bare.sendall(raw)
    garbage = {"client": "bob", "token": invite_of(made, "bob").token, "request": "-----BEGIN CERTIFICATE REQUEST-----"}
    assert made.enrol(garbage)[0] == 400
    assert "bob" not in made.enrolled()


def test_mistakes_are_said_in_words(made, tmp_path):
    with pytest.raises(CofactorError, match="already holds a federation"):
        Federation.init(made.home, ["a"], host="localhost", port=8002)
    for names in ([], ["a", "a"], ["A"], ["a b"], ["server"], ["../x"]):
        with pytest.raises(CofactorError, match="clients: expected names"):
            Federation.init(tmp_path / "f", names, host="localhost", port=8002)
    with pytest.raises(CofactorError, match="expected an invite"):
        Invite.read(tmp_path / "none.cofactor")
    (tmp_path / "bad.cofactor").write_text("{}")
    with pytest.raises(CofactorError, match=r"bad\.cofactor"):
        Invite.read(tmp_path / "bad.cofactor")
    with pytest.raises(CofactorError, match="`cofactor federation init` makes one"):
        Federation.read(tmp_path)
    closed = Invite(**{**vars(invite_of(made, "bob")), "enrol_port": free_ports(1)})
    with pytest.raises(CofactorError, match="Ask your network people for outgoing TCP to localhost, ports"):
        join(closed, tmp_path / "c")
    with pytest.raises(CofactorError, match="expected the data of this client, found no such file"):
        start.take_part(made.home / "invites" / "bob.cofactor", tmp_path / "none.npy", tmp_path / "d")


def test_a_port_that_is_taken_and_a_certificate_that_has_ended(made, tmp_path, monkeypatch):
    with socket.create_server(("", made.port)), pytest.raises(CofactorError, match="expected a free one to listen on"):
        start.serve(made.home)
    monkeypatch.setattr(kits, "DAYS", -1 / 1440)
    old = Federation.init(tmp_path / "old", ["a"], host="localhost", port=free_ports(2))
    with pytest.raises(CofactorError, match="found one that ended on"):
        start.serve(old.home)


def test_a_doctor_for_federations(made, door, tmp_path):
    def found(path):
        return {finding.what: finding for finding in examine(path)}

    closed = found(made.home)
    assert not closed["server"].good  # nobody serves
    assert f"outgoing TCP to localhost, port {made.port}" in closed["server"].words
    with socket.create_server(("", made.port)):
        good = found(made.home / "invites" / "bob.cofactor")
        assert all(finding.good for finding in good.values())
        assert {"cofactor", "nvflare", "disk", "server", "TLS", "clock"} <= set(good)
        assert "as here" in good["cofactor of the server"].words
        assert good["nvflare of the server"].good
        other = Federation.init(tmp_path / "other", ["bob"], host="localhost", port=made.port)
        assert "is not the server of this federation" in found(other.home)["TLS"].words
        join(invite_of(made, "bob"), tmp_path / "bob-home")
        member = found(tmp_path / "bob-home")
        assert all(finding.good for finding in member.values())
        assert "certificate client.crt" in member
    with pytest.raises(CofactorError, match="found none"):
        examine(tmp_path / "none")


def test_a_doctor_says_what_to_do(made, door, monkeypatch):
    """A certificate that ends soon, a full disk, a clock that is wrong, a port for joining that is closed."""

    def bad():
        with socket.create_server(("", made.port)):
            return {finding.what: finding.words for finding in examine(made.home) if not finding.good}

    assert bad() == {}
    monkeypatch.setattr(looks, "SOON", timedelta(days=400))
    monkeypatch.setattr(looks, "LEAST", 1 << 60)
    later = datetime.now(UTC) + timedelta(hours=2)
    monkeypatch.setattr(looks, "parsedate_to_datetime", lambda text: later)
    found = bad()
    assert set(found) == {"certificate rootCA.pem", "certificate server.crt", "disk", "clock"}
    assert "make a new federation, or, at a client, delete" in found["certificate server.crt"]
    assert "free at least 1 GB" in found["disk"]
    assert found["clock"].endswith("from the server's: set this machine's clock")
    monkeypatch.undo()
    away = dataclasses.replace(Federation.read(made.home), enrol_port=free_ports(1))
    monkeypatch.setattr(Federation, "read", lambda home: away)
    assert "needed once, to join" in bad()["TLS"]


def test_a_doctor_compares_versions_with_the_server(made, door, monkeypatch):
    here, ask = invite.versions(), "all need the same; here, pip install"
    for name, there, good, words in [
        ("cofactor", "9.9.9", False, f"9.9.9, and {__version__} here: {ask} 'cofactor==9.9.9'"),
        ("nvflare", "9.8.7", False, f"here: {ask} 'nvflare==9.8.7'"),
        ("nvflare", f"{here['nvflare']}.post1", True, f"post1, and {here['nvflare']} here"),
        ("cofactor", None, False, "does not say which version it runs: update cofactor there"),
    ]:
        told = {**here, name: there} if there else {}
        monkeypatch.setattr(invite, "versions", lambda told=told: told)  # what the door says
        with socket.create_server(("", made.port)):
            found = {finding.what: finding for finding in examine(made.home)}[f"{name} of the server"]
        assert found.good is good
        assert words in found.words


def test_a_folder_that_was_copied_is_noticed(made, door, tmp_path, monkeypatch):
    """It may begin when the other place has gone, or was silent for long; nobody else can speak for a client."""
    first, second = tmp_path / "bob-home", tmp_path / "copy"
    Federation.read(made.home).invite("bob")
    told = invite_of(made, "bob")
    join(told, first)
    shutil.copytree(first, second)

    def ask(told_by):
        return invite.at_door(told, told_by)[0]

    with presence.shown(first, "bob", ask):
        with pytest.raises(CofactorError, match="a copy of it takes part from another machine or folder"):
            presence.shown(second, "bob", ask).__enter__()
        with presence.shown(first, "bob", ask):  # started again at its place
            pass
        assert ask(presence.sign(first, "bob")) == 200
        assert ask(presence.sign(second, "bob")) == 409
        assert ask({**presence.sign(second, "bob"), "place": presence.place(first)}) == 403  # it is signed
        assert ask(presence.sign(first, "alice")) == 403
        monkeypatch.setattr(presence, "GONE", 0.0)
        assert ask(presence.sign(second, "bob")) == 200
        monkeypatch.undo()
        assert ask(presence.sign(second, "bob", here=False)) == 200
    with presence.shown(second, "bob", ask):
        pass
    away = dataclasses.replace(told, enrol_port=free_ports(1))
    with presence.shown(first, "bob", lambda told_by: invite.at_door(away, told_by)[0]):
        pass  # a closed door keeps nobody from its runs


def test_an_invite_under_a_passphrase(tmp_path):
    port = free_ports(2)
    made = Federation.init(tmp_path / "federation", ["alice"], host="localhost", port=port, passphrase="apple tree")
    file = made.home / "invites" / "alice.cofactor"
    assert set(json.loads(file.read_text())) == {"sealed"}
    assert Invite.read(file, "apple tree").client == "alice"
    words = ["join", "federation/invites/alice.cofactor", "--data", "federation/federation.json"]
    said = cofactor(*words, cwd=tmp_path, check=2).stderr
    assert "expected the passphrase of this invite (--passphrase), found none" in said
    said = cofactor(*words, "--passphrase", "pear tree", cwd=tmp_path, check=2).stderr
    assert "found another one (or a damaged file). Nothing was used up" in said
    assert "server" in {finding.what for finding in examine(file, "apple tree")}
    door = made.listen()
    join(Invite.read(file, "apple tree"), tmp_path / "a")
    door.shutdown()
    file.write_text('{"sealed": "no base64"}')
    assert "damaged file" in cofactor(*words, "--passphrase", "apple tree", cwd=tmp_path, check=2).stderr


def test_an_invite_can_be_made_anew_while_the_server_listens(tmp_path):
    """For a client that has lost its folder, and for a new one: the old invite is good for nothing then."""
    made = Federation.init(tmp_path / "federation", ["alice"], host="localhost", port=free_ports(2))
    heard = []
    door, old = made.listen(heard.append), invite_of(made, "alice")
    try:
        join(old, tmp_path / "a")
        made.invite("alice")
        again = Federation.read(made.home).invite("dave", "apple tree")
        with pytest.raises(CofactorError, match="not one of this federation"):
            join(old, tmp_path / "b")
        join(invite_of(made, "alice"), tmp_path / "c")
        join(Invite.read(made.home / "invites" / "dave.cofactor", "apple tree"), tmp_path / "d")
    finally:
        door.shutdown()
    assert again.clients == ["alice", "dave"]
    assert heard == ["alice has a certificate", "alice has a certificate", "dave has a certificate"]
    with pytest.raises(CofactorError, match="clients: expected names"):
        made.invite("../x")


def test_mistakes_of_commands_end_with_code_2(made, tmp_path):
    """A name given twice, a port that is taken, data that are missing, a server that is not there."""
    twice = ["federation", "init", "--clients", "bob,bob", "--home", "other"]
    assert "each one once" in cofactor(*twice, cwd=tmp_path, check=2).stderr
    with socket.create_server(("", made.port)):
        assert "expected a free one" in cofactor("serve", "--home", str(made.home), cwd=tmp_path, check=2).stderr
    invite = str(made.home / "invites" / "bob.cofactor")
    assert "found no such file" in cofactor("join", invite, "--data", "none.npy", cwd=tmp_path, check=2).stderr
    (tmp_path / "x.npy").write_bytes(b"")
    away = json.loads((made.home / "invites" / "bob.cofactor").read_text()) | {"enrol_port": free_ports(1)}
    (tmp_path / "away.cofactor").write_text(json.dumps(away))
    said = cofactor("join", "away.cofactor", "--data", "x.npy", cwd=tmp_path, check=2).stderr
    assert "Ask your network people for outgoing TCP to localhost" in said
