"""Key files: made once, read by their owner alone, and believed instead of what a server says."""

from __future__ import annotations

import os
import shutil
import subprocess

import numpy as np
import pytest
from tests.helpers.kills import Killed, kill_at

from cofactor import run
from cofactor.engines import secure
from cofactor.engines.inline import Inline
from cofactor.engines.secure import Secure, in_words
from cofactor.methods import catalog
from cofactor.plan import Plan
from cofactor.privacy.allowance import Privacy
from cofactor.privacy.errors import KeyFileError, PrivacyError, SignatureError
from cofactor.privacy.secure_sum import keys
from cofactor.privacy.secure_sum.keys import Keys
from cofactor.privacy.secure_sum.protocol import Members, add_up, terms_of
from cofactor.types import Message

NAMES = ("berlin", "st. gallen", "a/b")


@pytest.fixture
def folder(tmp_path):
    for name in NAMES:
        keys.make(tmp_path / "keys", name)
    return tmp_path / "keys"


def test_keys_are_made_once_and_for_their_owner_alone(folder):
    path = folder / "berlin.key"
    assert path.stat().st_mode & 0o777 == 0o600
    assert b"PRIVATE KEY" in path.read_bytes()
    assert b"PRIVATE" not in (folder / "berlin.pub").read_bytes()
    with pytest.raises(
        KeyFileError, match=r"berlin\.key: expected no key yet, found one\. Keys are never written over"
    ):
        keys.make(folder, "berlin")
    for name in ("", " ", "a\nb"):
        with pytest.raises(KeyFileError, match="expected the name of a client"):
            keys.make(folder, name)


def test_keys_that_a_crash_cut_off_are_there_as_a_whole_or_not_at_all(tmp_path, monkeypatch):
    """Killed at every write, and made again: nobody else can read a byte of the private one at any time."""
    seen = []
    written = keys.primitives.private_text

    def look(private):
        seen.extend(p.stat().st_mode & 0o777 for p in tmp_path.rglob("*.part"))
        return written(private)

    monkeypatch.setattr(keys.primitives, "private_text", look)
    point = 0
    while True:
        folder = tmp_path / str(point)
        try:
            with kill_at(point):
                keys.make(folder, "berlin")
            break
        except Killed:
            pass
        if (folder / "berlin.key").exists():
            before = keys.read_private(folder / "berlin.key")
            assert (folder / "berlin.pub").exists() or keys.make(folder, "berlin")
            assert keys.read_private(folder / "berlin.key") == before
        else:
            keys.make(folder, "berlin")
        assert [found.private for found in keys.inspect(folder)] == [True]
        assert not list(folder.glob("*.part"))
        point += 1
    assert point == 4
    assert set(seen) == {0o600}


def test_of_two_who_make_a_key_at_once_one_does(tmp_path, monkeypatch):
    monkeypatch.setattr(keys.primitives, "private_text", lambda private: _overtaken(tmp_path))
    with pytest.raises(KeyFileError, match="Keys are never written over"):
        keys.make(tmp_path, "berlin")
    assert (tmp_path / "berlin.key").read_bytes() == b"the other one"
    assert not list(tmp_path.glob("*.part"))


def _overtaken(folder):
    (folder / "berlin.key").write_bytes(b"the other one")
    return b"mine"


def test_what_is_read_is_what_was_made(folder):
    ring = Keys(str(folder), NAMES)
    registry = ring.registry()
    assert [ring.pair(c).public for c in range(3)] == [registry[c] for c in range(3)]
    assert len(set(registry.values())) == 3
    # one file may hold the keys of several
    together = "# all of us\n\n" + "".join(file.read_text() for file in sorted(folder.glob("*.pub")))
    for file in folder.glob("*.pub"):
        file.unlink()
    (folder / "clients.pub").write_text(together)
    assert ring.registry() == registry
    assert [line.client for line in keys.inspect(folder)] == sorted(NAMES)


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs OpenSSH")
def test_fingerprints_are_those_of_openssh(folder):
    told = subprocess.run(["ssh-keygen", "-lf", folder / "berlin.pub"], capture_output=True, text=True, check=True)
    assert told.stdout.split()[1] == keys.fingerprint(Keys(str(folder), NAMES).registry()[0])
    told = subprocess.run(["ssh-keygen", "-yf", folder / "berlin.key"], capture_output=True, text=True, check=True)
    assert told.stdout.split()[:2] == (folder / "berlin.pub").read_text().split()[:2]


def damage(folder, how):
    """Spoil the key files of berlin; return the path that the refusal names."""
    own, public = folder / "berlin.key", folder / "berlin.pub"
    if how == "lost":
        own.unlink()
    elif how == "damaged":
        own.write_bytes(own.read_bytes()[:100])
        own.chmod(0o600)
    elif how == "of somebody else":
        shutil.copy(folder / "st. gallen.key", own)
    elif how == "no public key":
        public.unlink()
    elif how == "two public keys":
        keys.make(folder / "other", "berlin")
        shutil.copy(folder / "other" / "berlin.pub", folder / "new.pub")
    elif how == "one key for two":
        public.write_text((folder / "st. gallen.pub").read_text().replace("st. gallen", "berlin"))
    elif how == "no key":
        public.write_text("ssh-rsa AAAAB3NzaC1yc2E= berlin\n")
    else:
        own.chmod(int(how, 8))


REFUSED = {
    "644": r"berlin\.key: expected permissions 600 \(its owner alone may read it\), found 644\. Run: chmod 600",
    "640": r"found 640",
    "602": r"found 602",
    "lost": r"berlin\.key: expected the private key of a client, found: No such file",
    "damaged": r"berlin\.key: expected an Ed25519 private key as `cofactor keys make` writes it",
    "of somebody else": r"berlin\.key: expected the private part of the public key of 'berlin', found another key",
    "no public key": r"expected public keys of all clients, found none of berlin \(found: a/b, st\. gallen\)",
    "two public keys": r"new\.pub: expected one key for 'berlin', found another one",
    "one key for two": r"expected a key of its own for every client, found one key for two",
    "no key": r"berlin\.pub, line 1: expected `ssh-ed25519 AAAA\.\.\. NAME`, found 'ssh-rsa",
}


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
@pytest.mark.parametrize("how", REFUSED)
def test_keys_that_are_not_fit_for_use_are_refused_in_words(how, folder):
    damage(folder, how)
    with pytest.raises(KeyFileError, match=REFUSED[how]):
        Members(range(3), Keys(str(folder), NAMES))
    Xs = [np.ones((4, 3)) for _ in range(3)]
    engine = Secure(keys=Keys(str(folder), NAMES))
    with pytest.raises(KeyFileError, match=REFUSED[how]):
        run(catalog.make("fedavg", 2), Xs, rounds=1, engine=engine, watch=lambda *_: pytest.fail("a message was sent"))


def test_clients_believe_their_own_files_and_not_the_server(folder, tmp_path):
    """A server that hands out keys of its own making gets round keys that nobody accepts."""
    ring = Keys(str(folder), NAMES)
    for name in NAMES:
        keys.make(tmp_path / "forged", name)
    forged = Members(range(3), Keys(str(tmp_path / "forged"), NAMES))
    honest, made = Members(range(3), ring), Members(range(3))
    schema, messages = {"x": ()}, {c: Message({"x": np.float64(c)}) for c in range(3)}
    terms = terms_of(b"session", (0, 1, 2), 2)
    for members in (honest, forged, made):
        members.bring(messages, schema)
    lies = honest.publics | {2: forged.publics[2]}

    def in_the_place_of_the_last(members):
        """The server answers for client 2 with keys of its own, and says that they are those of client 2."""

        def ask(phase, inbox):
            mine = members.answer(terms, lies, {c: m for c, m in inbox.items() if c < 2})
            return mine | forged.answer(terms, lies, {2: inbox[2]})

        return ask

    with pytest.raises(SignatureError, match="client 2 are not signed by its long-term key"):
        add_up(terms, lies, in_the_place_of_the_last(honest))


def test_without_files_a_server_can_put_itself_in_the_place_of_a_client():
    """What `SAME_CHANNEL` says: keys that came over the channel of the messages prove nothing against the server."""
    made, server = Members(range(2)), Members([2])
    schema = {"x": ()}
    made.bring({c: Message({"x": np.float64(c)}) for c in range(2)}, schema)
    server.bring({2: Message({"x": np.float64(7)})}, schema)
    lies, terms = made.publics | server.publics, terms_of(b"session", (0, 1, 2), 2)

    def ask(phase, inbox):
        return made.answer(terms, lies, inbox) | server.answer(terms, lies, inbox)

    assert add_up(terms, lies, ask).total[1] == 8.0
    assert "same channel as the messages" in secure.SAME_CHANNEL


def test_a_run_with_keys_is_the_run_without(folder):
    rng = np.random.default_rng(0)
    Xs = [rng.random((6, 5)) for _ in NAMES]
    method = catalog.make("fedavg", 2)
    plain = run(method, Xs, rounds=2, engine=Secure())
    signed = run(method, Xs, rounds=2, engine=Secure(Inline(), Keys(str(folder), NAMES)))
    np.testing.assert_allclose(signed.factor, plain.factor, atol=1e-12)
    with pytest.raises(PrivacyError, match=r"keys: expected 2 names, one for each client\. Found 3"):
        run(method, Xs[:2], rounds=2, engine=Secure(keys=Keys(str(folder), NAMES)))


def test_words_say_who_may_collude_and_how_keys_came():
    plan = Plan(secure=True)
    assert in_words(plan, 20, keys=True) == (
        "Each of 20 clients masks with all others; at most 13 may collude. " + secure.EXCHANGED
    )
    many = in_words(plan, 200, keys=False)
    assert many.startswith("Each of 200 clients masks with 86 others; at most 40 may collude, but")
    assert many.endswith(secure.SAME_CHANNEL)
    assert in_words(Plan(secure=True, participation=0.5), 200, keys=False).endswith(secure.DIFFERENCES)
    paid = Plan(secure=True, participation=0.5, privacy=Privacy(1, 1e-3))
    assert secure.DIFFERENCES not in in_words(paid, 200, keys=False)


@pytest.mark.parametrize("name", ["", " ", " berlin", "berlin ", "ber\nlin"])
def test_a_name_that_a_key_file_does_not_hold_is_refused(name, tmp_path):
    """Keys of "berlin " were read as those of berlin, and stood against them."""
    with pytest.raises(KeyFileError, match="expected the name of a client"):
        keys.make(tmp_path, name)
    assert not list(tmp_path.iterdir())


def test_names_that_differ_in_blanks_or_marks_are_clients_of_their_own(tmp_path):
    names = ("berlin", "ber lin", "ber  lin", "b\u00e9rlin", "be\u0301rlin")
    for name in names:
        keys.make(tmp_path, name)
    assert len(set(Keys(str(tmp_path), names).registry().values())) == len(names)
    line = (tmp_path / "berlin.pub").read_text()
    (tmp_path / "again.pub").write_text(line.replace(" berlin", " BERLIN"))
    with pytest.raises(KeyFileError, match="found one key for two of them"):
        Keys(str(tmp_path), (*names, "BERLIN")).registry()
