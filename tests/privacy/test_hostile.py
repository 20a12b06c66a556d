"""Hostile input to secure summation: each kind has its own error, and whoever refuses it is unchanged."""

from __future__ import annotations

import copy
import itertools
from dataclasses import replace

import numpy as np
import pytest
from tests.helpers.secure import Round

from cofactor.privacy import errors
from cofactor.privacy.secure_sum import primitives
from cofactor.privacy.secure_sum.client import Client
from cofactor.privacy.secure_sum.messages import (
    Agreed,
    Agreement,
    Inbox,
    Masked,
    Reveal,
    Roster,
    Survivors,
    decode,
    encode,
)
from cofactor.privacy.secure_sum.primitives import new_identity
from cofactor.privacy.secure_sum.protocol import PHASES
from cofactor.privacy.secure_sum.rules import Phase, listed


def refused(machine, call, error):
    """The call raises exactly this error and changes nothing; returns what the error says."""
    before = copy.deepcopy(vars(machine))
    with pytest.raises(errors.HostileInputError) as caught:
        call()
    assert caught.type is error
    np.testing.assert_equal(vars(machine), before)
    return str(caught.value)


def stranger(run):
    """The same clients in another session."""
    return Round(len(run.clients), run.terms.size, session=b"round 0", pairs=run.pairs)


def flip(data, at=0):
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


# -- the server --------------------------------------------------------------------------------------------------


def forged_shares(edit):
    return lambda run, m: replace(m, shares=(edit(m.shares[0]), *m.shares[1:]))


def with_keys(**keys):
    """Round keys that the client has chosen, and signed as its own."""

    def change(run, m):
        new = replace(m, **{name: make(m) for name, make in keys.items()})
        words = (new.seal_key, new.mask_key)
        return replace(new, signature=primitives.sign(run.pairs[1][0], m.session, client=1, words=words))

    return change


SMALL = bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800")
"""A point of order 8: whoever agrees with it agrees on zero, whatever its private key."""

SERVER = {
    "keys: zero": (Phase.ADVERTISE, with_keys(seal_key=lambda m: bytes(32)), "SignatureError"),
    "keys: of small order": (Phase.ADVERTISE, with_keys(mask_key=lambda m: SMALL), "SignatureError"),
    "keys: one for both": (Phase.ADVERTISE, with_keys(mask_key=lambda m: m.seal_key), "DuplicateError"),
    "keys: replay": (Phase.ADVERTISE, lambda run, m: stranger(run).until(Phase.ADVERTISE).answers[1], "ReplayError"),
    "keys: bad signature": (Phase.ADVERTISE, lambda run, m: replace(m, signature=flip(m.signature)), "SignatureError"),
    "keys: short signature": (Phase.ADVERTISE, lambda run, m: replace(m, signature=b""), "SignatureError"),
    "keys: swapped": (
        Phase.ADVERTISE,
        lambda run, m: replace(m, seal_key=m.mask_key, mask_key=m.seal_key),
        "SignatureError",
    ),
    "keys: short key": (Phase.ADVERTISE, lambda run, m: replace(m, mask_key=m.mask_key[:-1]), "SignatureError"),
    "keys: of another client": (Phase.ADVERTISE, lambda run, m: replace(m, client=2), "SignatureError"),
    "keys: unknown client": (Phase.ADVERTISE, lambda run, m: replace(m, client=9), "UnknownClientError"),
    "keys: too early for a vector": (Phase.ADVERTISE, lambda run, m: Masked(m.session, 1, bytes(24)), "OrderError"),
    "shares: replay": (Phase.SHARE, lambda run, m: stranger(run).until(Phase.SHARE).answers[1], "ReplayError"),
    "shares: truncated": (Phase.SHARE, forged_shares(lambda s: replace(s, box=s.box[:-1])), "TruncatedError"),
    "shares: replayed share": (Phase.SHARE, forged_shares(lambda s: replace(s, session=bytes(32))), "ReplayError"),
    "shares: misaddressed": (Phase.SHARE, forged_shares(lambda s: replace(s, recipient=1)), "MisaddressedError"),
    "shares: other sender": (Phase.SHARE, forged_shares(lambda s: replace(s, sender=3)), "MisaddressedError"),
    "shares: one missing": (Phase.SHARE, lambda run, m: replace(m, shares=m.shares[1:]), "ShapeError"),
    "shares: twice": (Phase.SHARE, lambda run, m: replace(m, shares=(m.shares[1], *m.shares[1:])), "MisaddressedError"),
    "shares: short hash": (Phase.SHARE, lambda run, m: replace(m, seed_hash=b""), "TruncatedError"),
    "vector: replay": (Phase.MASK, lambda run, m: stranger(run).until(Phase.MASK).answers[1], "ReplayError"),
    "vector: wrong length": (Phase.MASK, lambda run, m: replace(m, words=m.words + bytes(8)), "ShapeError"),
    "vector: truncated": (Phase.MASK, lambda run, m: replace(m, words=m.words[:-1]), "ShapeError"),
    "survivors: replay": (Phase.AGREE, lambda run, m: stranger(run).until(Phase.AGREE).answers[1], "ReplayError"),
    "survivors: bad signature": (Phase.AGREE, lambda run, m: replace(m, signature=bytes(64)), "SignatureError"),
    "survivors: of another": (Phase.AGREE, lambda run, m: replace(m, client=2), "SignatureError"),
    "reveal: short seed": (Phase.UNMASK, lambda run, m: replace(m, spare=b"short"), "TruncatedError"),
    "reveal: replay": (Phase.UNMASK, lambda run, m: stranger(run).until(Phase.UNMASK).answers[1], "ReplayError"),
    "reveal: truncated": (
        Phase.UNMASK,
        lambda run, m: replace(m, seeds=(Reveal(0, m.seeds[0].share[:-1]), *m.seeds[1:])),
        "TruncatedError",
    ),
    "reveal: too large": (
        Phase.UNMASK,
        lambda run, m: replace(m, seeds=(Reveal(0, b"\xff" * 66), *m.seeds[1:])),
        "TruncatedError",
    ),
    "reveal: both secrets": (Phase.UNMASK, lambda run, m: replace(m, keys=m.seeds), "ShapeError"),
    "reveal: one missing": (Phase.UNMASK, lambda run, m: replace(m, seeds=m.seeds[1:]), "ShapeError"),
}


@pytest.mark.parametrize("name", SERVER)
def test_server_refuses(name):
    phase, change, error = SERVER[name]
    run = Round().until(phase)
    message = change(run, run.answers[1])
    refused(run.server, lambda: run.server.receive(message), getattr(errors, error))
    # the honest message is still welcome
    run.server.receive(run.answers[1])


@pytest.mark.parametrize("phase", PHASES)
def test_server_refuses_duplicates_and_other_phases(phase):
    run = Round().until(phase)
    run.server.receive(run.answers[1])
    refused(run.server, lambda: run.server.receive(run.answers[1]), errors.DuplicateError)
    late = run.answers[0]
    del run.answers[0], run.answers[1]
    run.close()
    refused(run.server, lambda: run.server.receive(late), errors.OrderError)


@pytest.mark.parametrize("phase", PHASES)
def test_server_keeps_the_sum_hidden_below_the_threshold(phase):
    run = Round().until(phase)
    for c in (0, 1):
        run.server.receive(run.answers[c])
    assert "Found 2; the sum stays hidden" in refused(run.server, run.server.close, errors.ThresholdError)
    with pytest.raises(errors.OrderError):
        run.server.result()
    run.server.receive(run.answers[2])
    run.server.close()


def test_server_refuses_a_client_that_left_earlier():
    run = Round().until(Phase.SHARE, gone={3})
    run.close()
    run.ask()
    message = replace(run.answers[0], client=3)
    refused(run.server, lambda: run.server.receive(message), errors.UnknownClientError)


@pytest.mark.parametrize("kind", ["seeds", "keys"])
def test_server_notices_wrong_shares(kind):
    run = Round().until(Phase.MASK, gone={3})
    run.close()
    run.until(Phase.UNMASK)
    first = getattr(run.answers[0], kind)[0]
    rest = getattr(run.answers[0], kind)[1:]
    run.answers[0] = replace(run.answers[0], **{kind: (Reveal(first.owner, flip(first.share, at=65)), *rest)})
    for message in run.answers.values():
        run.server.receive(message)
    refused(run.server, run.server.close, errors.ForgedShareError)


@pytest.mark.parametrize(("gone", "lies", "forgers"), [((), 9, (0,)), ((), 1, ()), ((3,), 9, (0,))])
def test_a_sum_is_right_without_the_shares_of_a_client_that_lies(gone, lies, forgers):
    """With a share more than needed every secret is the announced one; who lies about several clients is named."""
    run = Round(7).until(Phase.MASK, gone=set(gone))
    run.close()
    run.until(Phase.UNMASK)
    forged = [replace(r, share=flip(r.share, at=65)) if i < lies else r for i, r in enumerate(run.answers[0].seeds)]
    run.answers[0] = replace(run.answers[0], seeds=tuple(forged))
    for message in run.answers.values():
        run.server.receive(message)
    run.server.close()
    assert run.server.forgers == forgers
    np.testing.assert_allclose(run.server.result(), run.values * (7 - len(gone)), atol=1e-6)


# -- the client --------------------------------------------------------------------------------------------------


def client_at(phase):
    """Client 0 with the server's message for ``phase``, and the round it is in."""
    run = Round().until(PHASES[PHASES.index(phase) - 1])
    run.close()
    return run, run.clients[0], run.inbox[0]


def edit_key(index, **changes):
    return lambda run, m: replace(
        m, keys=tuple(replace(k, **changes) if i == index else k for i, k in enumerate(m.keys))
    )


ROSTER = {
    "replay": (lambda run, m: replace(m, session=bytes(32)), "ReplayError"),
    "replayed keys": (edit_key(1, session=bytes(32)), "ReplayError"),
    "bad signature": (edit_key(1, signature=bytes(64)), "SignatureError"),
    "keys of the server's making": (edit_key(1, mask_key=bytes(range(32))), "SignatureError"),
    "twice": (lambda run, m: replace(m, keys=(*m.keys, m.keys[1])), "DuplicateError"),
    "without me": (lambda run, m: replace(m, keys=m.keys[1:]), "UnknownClientError"),
    "unknown client": (edit_key(1, client=9), "UnknownClientError"),
    "too few": (lambda run, m: replace(m, keys=m.keys[:2]), "ThresholdError"),
}


@pytest.mark.parametrize("name", ROSTER)
def test_client_refuses_a_roster(name):
    change, error = ROSTER[name]
    run, client, message = client_at(Phase.SHARE)
    refused(client, lambda: client.share(change(run, message)), getattr(errors, error))
    client.share(message)


def edit_share(**changes):
    def change(run, m):
        first = m.shares[0]
        return replace(m, shares=(replace(first, **{k: f(first, m) for k, f in changes.items()}), *m.shares[1:]))

    return change


INBOX = {
    "replay": (lambda run, m: replace(m, session=bytes(32)), "ReplayError"),
    "replayed share": (edit_share(session=lambda s, m: bytes(32)), "ReplayError"),
    "inbox of another": (lambda run, m: run.inbox[1], "MisaddressedError"),
    "share for another": (lambda run, m: replace(m, shares=run.inbox[1].shares), "MisaddressedError"),
    "relabelled share": (
        lambda run, m: replace(m, shares=(replace(run.inbox[2].shares[1], recipient=0), *m.shares[1:])),
        "ForgedShareError",
    ),
    "changed share": (edit_share(box=lambda s, m: flip(s.box)), "ForgedShareError"),
    "share of another sender": (edit_share(box=lambda s, m: m.shares[1].box), "ForgedShareError"),
    "truncated": (edit_share(box=lambda s, m: s.box[:-1]), "TruncatedError"),
    "duplicate": (lambda run, m: replace(m, shares=(*m.shares, m.shares[0])), "DuplicateError"),
    "unknown sender": (edit_share(sender=lambda s, m: 9), "UnknownClientError"),
    "from myself": (edit_share(sender=lambda s, m: 0), "UnknownClientError"),
    "too few": (lambda run, m: replace(m, shares=m.shares[:1]), "ThresholdError"),
}


@pytest.mark.parametrize("name", INBOX)
def test_client_refuses_shares(name):
    change, error = INBOX[name]
    run, client, message = client_at(Phase.MASK)
    refused(client, lambda: client.mask(change(run, message), run.values), getattr(errors, error))
    client.mask(message, run.values)


VALUES = {
    "NaN": (np.array([1.0, np.nan, 0.0]), "NotFiniteError"),
    "infinite": (np.array([1.0, -np.inf, 0.0]), "NotFiniteError"),
    "out of range": (np.array([1.0, 2.0**38 / 4, 0.0]), "OutOfRangeError"),
    "too short": (np.ones(2), "ShapeError"),
    "not flat": (np.ones((3, 1)), "ShapeError"),
    "complex": (np.ones(3, dtype=complex), "DtypeError"),
    "objects": (np.array([None, 1, 2]), "DtypeError"),
}


@pytest.mark.parametrize("name", VALUES)
def test_client_refuses_values(name):
    values, error = VALUES[name]
    run, client, message = client_at(Phase.MASK)
    refused(client, lambda: client.mask(message, values), getattr(errors, error))
    client.mask(message, run.values)


SURVIVORS = {
    "replay": (lambda run, m: replace(m, session=bytes(32)), "ReplayError"),
    "twice": (lambda run, m: replace(m, clients=(0, 1, 2, 2)), "DuplicateError"),
    "without me": (lambda run, m: replace(m, clients=(1, 2, 3)), "UnknownClientError"),
    "one who left earlier": (lambda run, m: replace(m, clients=(0, 1, 2, 9)), "UnknownClientError"),
    "too few": (lambda run, m: replace(m, clients=(0, 1)), "ThresholdError"),
}


@pytest.mark.parametrize("name", SURVIVORS)
def test_client_refuses_survivors(name):
    change, error = SURVIVORS[name]
    run, client, message = client_at(Phase.AGREE)
    refused(client, lambda: client.agree(change(run, message)), getattr(errors, error))
    client.agree(message)


def edit_signed(**changes):
    return lambda run, m: replace(m, signed=(*m.signed[:-1], replace(m.signed[-1], **changes)))


AGREEMENTS = {
    "replay": (lambda run, m: replace(m, session=bytes(32)), "ReplayError"),
    "replayed signature": (edit_signed(session=bytes(32)), "ReplayError"),
    "bad signature": (edit_signed(signature=bytes(64)), "SignatureError"),
    "signature of another": (edit_signed(client=3), "SignatureError"),
    "a stranger": (edit_signed(client=9), "ThresholdError"),
    "twice": (lambda run, m: replace(m, signed=(*m.signed[:-1], m.signed[0])), "ThresholdError"),
    "too few": (lambda run, m: replace(m, signed=m.signed[1:]), "ThresholdError"),
}


@pytest.mark.parametrize("name", AGREEMENTS)
def test_client_refuses_an_agreement(name):
    change, error = AGREEMENTS[name]
    run, client, message = client_at(Phase.UNMASK)
    refused(client, lambda: client.unmask(change(run, message)), getattr(errors, error))
    client.unmask(message)


@pytest.mark.parametrize("lied_to", [(0,), (0, 1), (3, 4), (0, 1, 2)])
def test_a_server_that_names_other_survivors_to_some_gets_nothing(lied_to):
    """Five clients, of whom some hear that all survived, and others that client 4 did not.

    Whatever signatures the server hands around, its own of a curious client among them, only one of the two lists can
    be under four of them: nobody reveals anything under the other, and spare noise stays where somebody is missing.
    """
    run = Round(5).until(Phase.MASK)
    run.close()
    everyone, most = (0, 1, 2, 3, 4), (0, 1, 2, 3)
    told = {c: everyone if c in (*lied_to, 4) else most for c in everyone}
    signed = {c: [run.clients[c].agree(Survivors(run.terms.tag, told[c]))] for c in everyone}
    curious = Client(run.terms, 1, identity=run.pairs[1][0], registry=run.registry)
    for survivors in (everyone, most):  # it signs whatever helps
        words = (listed(survivors),)
        mark = primitives.sign(run.pairs[1][0], curious._tag, client=1, words=words)
        signed[1].append(Agreed(curious._tag, 1, mark))
    revealed = []
    for c in set(everyone) - {1}:
        for chosen in itertools.combinations([s for marks in signed.values() for s in marks], run.terms.shares):
            try:
                revealed.append((told[c], run.clients[c].unmask(Agreement(run.terms.tag, chosen))))
            except errors.PrivacyError:
                continue
            break
    assert len({survivors for survivors, _ in revealed}) <= 1
    assert all(bool(answer.spare) is (survivors == everyone) for survivors, answer in revealed)


def test_client_never_reveals_both_secrets():
    run, client, message = client_at(Phase.UNMASK)
    answer = client.unmask(message)
    assert not {r.owner for r in answer.seeds} & {r.owner for r in answer.keys}
    refused(client, lambda: client.agree(Survivors(run.terms.tag, (0, 1, 2))), errors.OrderError)
    refused(client, lambda: client.unmask(message), errors.RevealError)


def test_client_refuses_reordered_messages():
    run = Round()
    client, tag = run.clients[0], run.terms.tag
    refused(client, lambda: client.share(Roster(tag, ())), errors.OrderError)
    refused(client, lambda: client.mask(Inbox(tag, 0, ()), run.values), errors.OrderError)
    refused(client, lambda: client.agree(Survivors(tag, (0, 1, 2))), errors.OrderError)
    refused(client, lambda: client.unmask(Agreement(tag, ())), errors.OrderError)
    client.advertise()
    refused(client, client.advertise, errors.OrderError)
    refused(client, lambda: client.share(Inbox(tag, 0, ())), errors.OrderError)
    refused(run.server, lambda: run.server.receive(Roster(tag, ())), errors.OrderError)
    refused(run.server, lambda: run.server.receive(Reveal(0, b"")), errors.OrderError)


def test_an_impostor_cannot_take_part():
    run = Round()
    private, _ = new_identity()
    impostor = Round(pairs=run.pairs | {1: (private, run.pairs[1][1])}).clients[1]
    message = impostor.advertise()
    refused(run.server, lambda: run.server.receive(message), errors.SignatureError)


# -- the wire ----------------------------------------------------------------------------------------------------


def test_every_message_survives_the_wire_and_no_cut_does():
    run = Round()
    for phase in PHASES:
        run.until(phase, gone={3} if phase is Phase.MASK else frozenset())
        messages = [run.answers[0], *([run.inbox[0]] if run.inbox[0] else [])]
        for message in messages:
            data = encode(message)
            assert decode(data) == message
            for cut in range(0, len(data), max(1, len(data) // 40)):
                with pytest.raises(errors.TruncatedError):
                    decode(data[:cut])
            with pytest.raises(errors.TruncatedError):
                decode(data + b"\0")
        run.close()
    with pytest.raises(errors.TruncatedError):
        decode(b"\xff" + data[1:])
    nest = encode(Roster(b"", ()))[:-8] + (1).to_bytes(8, "big")
    with pytest.raises(errors.TruncatedError):
        decode(nest * 5000)
