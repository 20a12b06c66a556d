"""Private runs from Python: what a round may release is on disk before it begins, and is never released again."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from tests.helpers.chains import unchained
from tests.helpers.federation import flare_over
from tests.helpers.kills import Killed, kill_at

from cofactor import files, run
from cofactor.engines.checkpoint import Checkpoint
from cofactor.files import HeldError, held
from cofactor.methods import catalog
from cofactor.methods.build import Facts, build
from cofactor.methods.wrapped import Wrapped
from cofactor.plan import Plan
from cofactor.privacy import Privacy, account, chain, spend
from cofactor.privacy.book import Book
from cofactor.privacy.chain import Seal
from cofactor.privacy.charges import Beside
from cofactor.privacy.errors import DamagedLedgerError, KeyFileError, LedgerError, OtherDataError, ReleasedError
from cofactor.types import CofactorError

Xs = [np.random.default_rng(j).random((10 + j, 5)) for j in range(3)]


@dataclass(frozen=True)
class Seen(Wrapped):
    """A method that notes which client has left a message of which round, and stops in one."""

    left: list[tuple[int, int]]
    ends_in: int | None = None

    def step(self, data, shared, local, t, rng):
        self.left.append((len(data), t))
        if t == self.ends_in:
            raise Killed
        return self.method.step(data, shared, local, t, rng)


def moments(epsilon: float = 1.0) -> Any:
    return catalog.make("dp-moments", 2, privacy=Privacy(epsilon, 1e-6))


def averaged(epsilon: float = 1.0) -> Any:
    """Six rounds of updates."""
    plan = Plan(6, privacy=Privacy(epsilon, 1e-3, unit="client"))
    return build("fedavg", 2, plan, Facts(3, 5))[0]


def charged(checkpoint: Checkpoint) -> list[Any]:
    return Beside(checkpoint.charges).charged()


def test_killed_at_every_write_a_round_leaves_at_most_once(tmp_path) -> None:
    ends, point, method = [], 0, moments()
    while True:
        checkpoint, left = Checkpoint(tmp_path / f"{point}.npz"), []
        try:
            with kill_at(point):
                run(Seen(method, left), Xs, checkpoint=checkpoint)
            break
        except Killed:
            pass
        released = [c for t in {t for _, t in left} for c in method.allowance.costs(t).values()]
        paid = [c for costs in charged(checkpoint) for c in costs.values()]
        assert spend(paid, 1e-6).epsilon >= spend(released, 1e-6).epsilon * (1 - 1e-12)
        try:
            again = run(Seen(method, left), Xs, checkpoint=checkpoint)
            assert again.epsilon == pytest.approx(1, rel=1e-9)
            ends.append(True)
        except ReleasedError:
            ends.append(False)
        assert len(set(left)) == len(left), point
        point += 1
    assert point > 12
    assert {True, False} == set(ends)


@pytest.mark.parametrize("every", [1, 4, 100])
def test_a_run_aborted_in_round_three_is_not_begun_again(tmp_path, every) -> None:
    """Whatever ``every`` is: the charge of round three is on disk, its result is not."""
    checkpoint, left = Checkpoint(tmp_path / "c.npz", every=every), []
    with pytest.raises(Killed):
        run(Seen(averaged(), left, ends_in=3), Xs, checkpoint=checkpoint)
    text = "expected the results of 4 rounds, as many as are charged; the checkpoint holds 3"
    with pytest.raises(ReleasedError, match=text) as refusal:
        run(Seen(averaged(), left), Xs, checkpoint=checkpoint)
    spent = spend([c for costs in charged(checkpoint) for c in costs.values()], 1e-3)
    assert f"has spent {spent}" in str(refusal.value)
    assert spent.epsilon == pytest.approx(averaged().allowance.ledger(4).spend().epsilon)
    assert [t for rows, t in left if rows == 10] == [0, 1, 2, 3]


@pytest.mark.parametrize(("every", "pause"), [(1, 0.0), (4, 0.0), (1, 1e9)])
def test_a_run_aborted_between_rounds_goes_on_to_the_total_that_was_planned(tmp_path, every, pause) -> None:
    """A private run writes every round, whatever its checkpoint says: one that is not there is released for nothing."""
    checkpoint, left = Checkpoint(tmp_path / "c.npz", every, pause), []

    def stop(line, shared):
        if line.round == 2:
            raise Killed

    with pytest.raises(Killed):
        run(Seen(averaged(), left), Xs, checkpoint=checkpoint, callbacks=[stop])
    result = run(Seen(averaged(), left), Xs, checkpoint=checkpoint)
    assert result.epsilon == pytest.approx(1, rel=1e-9)
    assert [t for rows, t in left if rows == 10] == list(range(6))
    again = run(Seen(averaged(), left), Xs, checkpoint=checkpoint)  # it is over: nothing is released
    np.testing.assert_array_equal(again.factor, result.factor)
    assert again.epsilon == result.epsilon
    assert len(left) == 18


def test_a_checkpoint_goes_on_with_the_noise_that_it_was_released_with(tmp_path) -> None:
    checkpoint = Checkpoint(tmp_path / "c.npz")
    run(averaged(8.0), Xs, checkpoint=checkpoint)
    with pytest.raises(LedgerError, match="were released with other noise than is asked for now"):
        run(averaged(0.1), Xs, checkpoint=checkpoint)
    checkpoint.charges.unlink()
    with pytest.raises(DamagedLedgerError, match="found them changed or cut off"):
        run(averaged(8.0), Xs, checkpoint=checkpoint)
    checkpoint.charges.with_name(f"{checkpoint.charges.name}.seal").unlink()
    with pytest.raises(LedgerError, match="holds the results of 6 rounds, and 0 are charged"):
        run(averaged(8.0), Xs, checkpoint=checkpoint)


def test_of_two_runs_on_one_checkpoint_one_waits(tmp_path, monkeypatch) -> None:
    checkpoint, left = Checkpoint(tmp_path / "c.npz"), []
    inside, go = threading.Event(), threading.Event()
    results = []

    def wait(line, shared) -> None:
        inside.set()
        go.wait(30)

    def first() -> None:
        results.append(run(Seen(averaged(), left), Xs, checkpoint=checkpoint, callbacks=[wait]))

    def second() -> None:
        results.append(run(Seen(averaged(), left), Xs, checkpoint=checkpoint))

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    assert inside.wait(30)
    monkeypatch.setattr(files, "WAIT", 0.1)
    with pytest.raises(HeldError, match=f"but process {os.getpid()} on {socket.gethostname()} .since"):
        second()
    monkeypatch.setattr(files, "WAIT", 30.0)
    threads[1].start()
    go.set()
    for thread in threads:
        thread.join(30)
    assert [result.epsilon for result in results] == pytest.approx([1, 1])
    assert len(set(left)) == len(left) == 18


def test_without_privacy_nothing_is_charged_and_nothing_held(tmp_path) -> None:
    run(catalog.make("exact", 2, start="random"), Xs, rounds=2, checkpoint=Checkpoint(tmp_path / "c.npz"))
    assert [path.name for path in tmp_path.iterdir()] == ["c.npz"]


def test_over_the_wire_of_a_federation_a_round_that_was_sent_is_not_asked_for_again(tmp_path) -> None:
    privacy = Privacy(1, 1e-3, unit="client")
    method, plan = build("fedavg", 2, Plan(4, privacy=privacy), Facts(3, 5))
    checkpoint = Checkpoint(tmp_path / "c.npz")

    def lost(t, answers) -> None:
        if t == 1:
            raise Killed

    engine, _ = flare_over(method, Xs, plan, keep=tmp_path / "clients")
    with pytest.raises(Killed):
        run(method, Xs, plan, engine=engine, checkpoint=checkpoint, watch=lost)
    engine, _ = flare_over(method, Xs, plan, keep=tmp_path / "clients")
    with pytest.raises(ReleasedError, match="the checkpoint holds 1"):
        run(method, Xs, plan, engine=engine, checkpoint=checkpoint)
    account.new(tmp_path / "site.jsonl", epsilon=1, delta=1e-3, unit="client")
    known = replace(privacy, ledger=tmp_path / "site.jsonl")  # its secret is not for the server
    method, plan = build("fedavg", 2, Plan(4, privacy=known), Facts(3, 5))
    engine, _ = flare_over(method, Xs, plan)
    with pytest.raises(CofactorError, match="expected work that clients know"):
        run(method, Xs, plan, engine=engine)


def test_a_lock_ends_with_the_process_that_held_it(tmp_path) -> None:
    script = """
import os, signal, sys
from pathlib import Path
from cofactor.files import held
with held(Path(sys.argv[1]), "it"):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    lock = tmp_path / "x.lock"
    died = subprocess.run([sys.executable, "-c", script, str(lock)], check=False)
    assert died.returncode == -signal.SIGKILL
    assert lock.exists()
    with held(lock, "it", wait=0):
        assert lock.exists()
    assert not lock.exists()


# --- a run that goes on: with its own data, whatever its checkpoint says ---


def half(tmp_path, method: Any, data=Xs) -> Checkpoint:
    """A run that ended after three rounds of six."""
    checkpoint = Checkpoint(tmp_path / "c.npz")
    run(method, data, checkpoint=checkpoint, callbacks=[lambda line, shared: line.round == 2])
    return checkpoint


def test_a_run_does_not_go_on_with_other_data(tmp_path) -> None:
    checkpoint, left = half(tmp_path, averaged()), []
    for other in ([Xs[0][:-1], *Xs[1:]], [Xs[0] + 1e-9, *Xs[1:]], [X[:, ::-1] for X in Xs]):
        with pytest.raises(OtherDataError, match="expected the rows that the run began with, found other ones"):
            run(Seen(averaged(), left), other, checkpoint=checkpoint)
    assert left == []
    secret = checkpoint.charges.with_suffix(".secret")
    assert secret.stat().st_mode & 0o77 == 0
    assert secret.read_text() not in checkpoint.charges.read_text()
    aside = secret.rename(tmp_path / "aside")
    with pytest.raises(LedgerError, match="expected the secret by which this run knows its data again, found none"):
        run(Seen(averaged(), left), Xs, checkpoint=checkpoint)
    aside.rename(secret)
    whole = secret.read_bytes()
    for part in (b"", b"xy", whole[:-1], whole.upper().replace(b"0", b"g")):
        secret.write_bytes(part)
        with pytest.raises(
            KeyFileError, match=f"64 hexadecimal digits. Found {len(part)} bytes that are not; put it back"
        ):
            run(Seen(averaged(), left), Xs, checkpoint=checkpoint)
    secret.write_bytes(whole)
    secret.chmod(0o644)
    with pytest.raises(KeyFileError, match=r"expected permissions 600 .*found 644. Run: chmod 600"):
        run(Seen(averaged(), left), Xs, checkpoint=checkpoint)
    secret.chmod(0o600)
    assert left == []
    assert run(Seen(averaged(), left), Xs, checkpoint=checkpoint).epsilon == pytest.approx(1, rel=1e-9)
    assert [t for rows, t in left if rows == 10] == [3, 4, 5]


@pytest.mark.parametrize("kept", [True, False])
def test_whoever_cannot_read_the_secret_cannot_take_a_charge_back(tmp_path, kept) -> None:
    """A round that was charged, and may have left, was cut off, and all hashes were computed anew: it left again."""
    checkpoint, left = half(tmp_path, averaged()), []
    path, book = checkpoint.charges, Book(checkpoint.charges)
    Beside(path).charge(3, averaged().traits.allowance.costs(3), np.arange(3))
    with pytest.raises(ReleasedError, match="which may have been released"):
        run(Seen(averaged(), left), Xs, checkpoint=checkpoint)
    lines = [json.loads(line) for line in path.read_text().splitlines()][:-1]
    bare = list(map(unchained, lines))
    links, seal = chain.extend(bare, Seal(0, chain.digest("the charges of a run")))
    assert [link["hash"] for link in links] == [line["hash"] for line in lines]  # it needs no secret
    signatures = book.ends().signatures
    for file in (path, book.seal):
        file.unlink()
    book.add(lines if kept else links, {"run": seal}, signatures if kept else None)
    with pytest.raises(DamagedLedgerError, match="found them changed or cut off"):
        run(Seen(averaged(), left), Xs, checkpoint=checkpoint)
    assert left == []


def test_killed_at_every_write_a_secret_is_there_as_a_whole_or_not_at_all(tmp_path) -> None:
    for point in range(1000):
        checkpoint = Checkpoint(tmp_path / f"{point}.npz")
        try:
            with kill_at(point) as seen:
                run(averaged(), Xs, checkpoint=checkpoint, callbacks=[lambda line, shared: True])
            break
        except Killed:
            secret = checkpoint.charges.with_suffix(".secret")
            assert not secret.exists() or len(secret.read_bytes()) == 64
            assert not secret.exists() or secret.stat().st_mode & 0o777 == 0o600
            if "secret" in seen[-1]:
                assert run(averaged(), Xs, checkpoint=checkpoint).epsilon == pytest.approx(1, rel=1e-9)
    assert any("secret" in place for place in seen)


def edited(checkpoint: Checkpoint, change: Any) -> None:
    with np.load(checkpoint.path) as file:
        held = dict(file)
    change(held)
    with open(checkpoint.path, "wb") as out:
        np.savez(out, **held)


def history_of(held: dict[str, Any]) -> list[dict[str, Any]]:
    return json.loads(str(held["history"]))


def cut(held: dict[str, Any]) -> None:
    held["history"] = np.array(json.dumps(history_of(held)[:-1]))


def longer(held: dict[str, Any]) -> None:
    held["history"] = np.array(json.dumps([*history_of(held), history_of(held)[-1]]))


def cheaper(held: dict[str, Any]) -> None:
    held["history"] = np.array(json.dumps([line | {"epsilon": 1e-6} for line in history_of(held)]))


def other_factor(held: dict[str, Any]) -> None:
    held["shared/factor"] = np.full_like(held["shared/factor"], 1e30)


def no_numbers(held: dict[str, Any]) -> None:
    held["shared/factor"] = np.full_like(held["shared/factor"], np.nan)


def other_shape(held: dict[str, Any]) -> None:
    held["shared/factor"] = held["shared/factor"][:, :-1]


def without(held: dict[str, Any]) -> None:
    del held["shared/factor"]


FORGED = {
    "a round less": (cut, "expected the results of 3 rounds, as many as are charged; the checkpoint holds 2"),
    "a round more": (longer, "the checkpoint holds the results of 4 rounds, and 3 are charged"),
    "no numbers": (no_numbers, "expected finite numbers in a factor of shape"),
    "another shape": (other_shape, "expected finite numbers in a factor of shape"),
    "no factor": (without, "expected a checkpoint, found another file, or a damaged one"),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_checkpoint_of_a_private_run_does_not_go_on(tmp_path, name) -> None:
    checkpoint, left = half(tmp_path, averaged()), []
    change, words = FORGED[name]
    edited(checkpoint, change)
    with pytest.raises(CofactorError, match=words):
        run(Seen(averaged(), left), Xs, checkpoint=checkpoint)
    assert left == []


@pytest.mark.parametrize("change", [cheaper, other_factor])
def test_whatever_a_checkpoint_says_the_rest_has_its_noise_and_the_total_is_true(tmp_path, change) -> None:
    """Bounds and noise are those of the plan: a factor that somebody made up moves no message beyond them."""
    checkpoint, left, seen = half(tmp_path, averaged()), [], []
    edited(checkpoint, change)
    found = run(Seen(averaged(), left), Xs, checkpoint=checkpoint, watch=lambda t, answers: seen.extend(answers))
    assert found.epsilon == pytest.approx(1, rel=1e-9)
    assert [t for rows, t in left if rows == 10] == [3, 4, 5]
    costs = averaged().allowance.costs(3)
    assert all(r.message.cost["factor"].cost == costs["factor"] for r in seen)
    again = run(Seen(averaged(), left), Xs, checkpoint=checkpoint)
    assert again.epsilon == pytest.approx(1, rel=1e-9)


def test_another_seed_changes_who_takes_part_and_not_what_it_costs(tmp_path) -> None:
    checkpoint = half(tmp_path, averaged())
    assert run(averaged(), Xs, seed=7, checkpoint=checkpoint).epsilon == pytest.approx(1, rel=1e-9)


# --- disks that are full, or cannot be written ---


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_where_the_disk_fails_nothing_leaves(tmp_path, monkeypatch, error) -> None:
    """The first write is of the charges: no client has stepped, whatever fails."""
    left, real = [], os.fsync

    def fails(place: int) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "fsync", fails)
    checkpoint = Checkpoint(tmp_path / "c.npz")
    with pytest.raises(OSError, match=f"{os.strerror(error)}.*c.charges"):
        run(Seen(averaged(), left), Xs, checkpoint=checkpoint)
    assert left == []
    monkeypatch.setattr(os, "fsync", real)
    assert run(Seen(averaged(), left), Xs, checkpoint=checkpoint).epsilon == pytest.approx(1, rel=1e-9)


def test_a_disk_that_is_full_in_the_third_round_ends_the_run_for_good(tmp_path, monkeypatch) -> None:
    left, real, checkpoint = [], os.fsync, Checkpoint(tmp_path / "c.npz")

    def full(place: int) -> None:
        if len(left) == 9:  # three clients have stepped three times: the result of round 2 is to be kept
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(place)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        run(Seen(averaged(), left), Xs, checkpoint=checkpoint)
    monkeypatch.setattr(os, "fsync", real)
    with pytest.raises(ReleasedError, match="the checkpoint holds 2"):
        run(Seen(averaged(), left), Xs, checkpoint=checkpoint)
    assert len(left) == 9


def test_a_clock_that_runs_backwards_changes_nothing(tmp_path, monkeypatch) -> None:
    ticks = iter(range(10**6, 0, -1))
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(ticks)))
    monkeypatch.setattr(time, "time", lambda: float(next(ticks)))
    checkpoint, left = Checkpoint(tmp_path / "c.npz"), []
    with pytest.raises(Killed):
        run(Seen(averaged(), left, ends_in=3), Xs, checkpoint=checkpoint)
    with pytest.raises(ReleasedError):
        run(Seen(averaged(), left), Xs, checkpoint=checkpoint)
    assert len(charged(checkpoint)) == 4
