"""Private runs over files, killed at every write: a round is released at most once, and no total is too small."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.helpers.command import FILES, cofactor
from tests.helpers.kills import DYING, Killed, kill_at
from tests.helpers.shorten import shorten

from cofactor import files
from cofactor.assurance import ledger
from cofactor.assurance.writing import Party, begin
from cofactor.files import HeldError
from cofactor.jobs import inspect
from cofactor.jobs.config import Config
from cofactor.jobs.folder import RunFolder
from cofactor.jobs.job import fit, resume
from cofactor.jobs.journal import Journal
from cofactor.methods.client_level import ClientLevel
from cofactor.methods.moments import Moments
from cofactor.privacy import account, spend
from cofactor.privacy.errors import DamagedLedgerError, LedgerError, ReleasedError, UnsignedLedgerError
from cofactor.privacy.secure_sum import keys
from cofactor.types import CofactorError


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, rng = tmp_path_factory.mktemp("killed"), np.random.default_rng(0)
    for name in FILES:
        np.save(folder / name, rng.random((12, 5)))
    return folder


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[bytes, int]]:
    """How often each client has left a message of each round."""
    found: Counter[tuple[bytes, int]] = Counter()
    step = Moments.step

    def seen(self: Any, data: Any, shared: Any, local: Any, *when: Any) -> Any:
        found[data[0].tobytes(), when[0]] += 1
        return step(self, data, shared, local, *when)

    monkeypatch.setattr(Moments, "step", seen)
    return found


def config(home: Path, **more: Any) -> Config:
    return Config([str(home / name) for name in FILES], 2, epsilon=1.0, delta=1e-6, **more)


def rounds_left(left: Counter[tuple[bytes, int]]) -> list[int]:
    """Return how often each round was released, by the client that released it most often."""
    return [max(n for (_, t), n in left.items() if t == s) for s in sorted({t for _, t in left})]


def gone_on(folder: RunFolder, spent: float) -> bool:
    """Resume a run that was killed: it ends with the total that was planned, or says what is charged."""
    try:
        again = resume(folder.path)
    except ReleasedError as error:
        refusal = str(error)
    else:
        assert again.evaluation().privacy.epsilon == pytest.approx(1, rel=1e-9)
        assert inspect.spent(again).spent.epsilon == pytest.approx(1, rel=1e-9)
        assert again.verify().ok
        assert len((folder.path / "history.jsonl").read_text().splitlines()) == 2
        return True
    assert "cannot go on. Start a new run with a budget of its own" in refusal
    assert f"spent epsilon = {spent:.6g} at delta = 1e-06" in refusal
    assert inspect.spent(folder).spent.epsilon == spent
    assert folder.verify().ok
    return False


def test_killed_at_every_write_a_round_leaves_at_most_once_and_no_total_is_too_small(home, tmp_path, left) -> None:
    outcomes, point = Counter(), 0
    while True:
        out = tmp_path / f"run{point}"
        left.clear()
        try:
            with kill_at(point):
                fit(config(home), out)
            break  # there were fewer writes
        except Killed:
            pass
        before = len(rounds_left(left))
        if RunFolder(out).manifest_file.exists():
            folder = RunFolder.open(out)
            spent = inspect.spent(folder).spent.epsilon
            method = inspect.method_of(folder)
            costs = [c for t in range(before) for c in method.allowance.costs(t).values()]
            assert spent >= spend(costs, 1e-6).epsilon * (1 - 1e-12)
            outcomes[gone_on(folder, spent)] += 1
        assert set(rounds_left(left)) <= {1}, point
        point += 1
    assert point > 30
    assert min(outcomes[True], outcomes[False]) > 5, outcomes


def cut(home: Path, out: Path, after: int = 0) -> RunFolder:
    """A private run that ended after a round, with its checkpoint."""

    def stop(line: Any, shared: Any) -> None:
        if line.round == after:
            raise Killed

    with pytest.raises(Killed):
        fit(config(home), out, callbacks=[stop])
    return RunFolder.open(out)


def test_of_two_resumes_one_waits_and_says_who_holds_the_run(home, tmp_path, left, monkeypatch) -> None:
    folder = cut(home, tmp_path / "run")
    inside, go = threading.Event(), threading.Event()

    def wait(line: Any, shared: Any) -> None:
        inside.set()
        go.wait(30)

    one = threading.Thread(target=lambda: resume(folder.path, callbacks=[wait]))
    one.start()
    assert inside.wait(30)
    monkeypatch.setattr(files, "WAIT", 0.2)
    with pytest.raises(HeldError, match=f"process {os.getpid()} on {socket.gethostname()}") as refusal:
        resume(folder.path)
    assert str(refusal.value).startswith(f"the run {folder.path}: expected to hold it alone, but process")
    assert "process" in cofactor("resume", folder.path, cwd=tmp_path, check=2).stderr
    monkeypatch.setattr(files, "WAIT", 30.0)
    two: list[RunFolder] = []
    other = threading.Thread(target=lambda: two.append(resume(folder.path)))
    other.start()
    go.set()
    for thread in (one, other):
        thread.join(30)
    assert two[0].evaluation().privacy.epsilon == pytest.approx(1, rel=1e-9)
    assert rounds_left(left) == [1, 1]
    assert not list(tmp_path.glob("*.lock"))


@pytest.mark.parametrize("name", [ledger.CHARGES, ledger.FILE])
@pytest.mark.parametrize("how", ["gone", "empty", "older"])
def test_a_run_whose_charges_are_gone_does_not_go_on(home, tmp_path, name, how, left) -> None:
    folder = cut(home, tmp_path / "run", after=1)
    file = folder.path / name
    first = file.read_text().splitlines(keepends=True)[0]
    file.unlink()
    if how != "gone":
        file.write_text({"empty": "", "older": first}[how])
    with pytest.raises(DamagedLedgerError, match="does not hold"):
        resume(folder.path)
    with pytest.raises(DamagedLedgerError, match="nothing is added up"):
        inspect.spent(folder)
    assert rounds_left(left) == [1, 1]


@pytest.mark.parametrize("rounds", [0, 1])
def test_lines_that_were_removed_with_a_seal_to_go_with_them_show_without_any_key(home, tmp_path, rounds, left) -> None:
    """Whoever cuts off the end of all files can write every file beside them, but cannot sign it."""
    folder = cut(home, tmp_path / "run", after=1)
    shorten(folder.path, rounds)
    for file in folder.path.glob("checkpoint*"):
        file.unlink()
    with pytest.raises(UnsignedLedgerError, match=r"jsonl\.seal: is not signed"):
        resume(folder.path)
    with pytest.raises(UnsignedLedgerError, match="nothing is added up"):
        inspect.spent(folder)
    assert not folder.verify().ok
    for seal in folder.path.glob("*.seal"):
        seal.unlink()
    with pytest.raises(DamagedLedgerError, match="expected the end of the file, found none"):
        resume(folder.path)
    assert rounds_left(left) == [1, 1]


def test_a_run_put_back_to_its_begin_does_not_go_on_with_its_checkpoint(home, tmp_path, left) -> None:
    """A copy of charges and seals of the begin, a checkpoint of later: they do not belong together."""
    folder = cut(home, tmp_path / "run")
    for name in (ledger.CHARGES, ledger.FILE):
        (folder.path / name).unlink()
        (folder.path / f"{name}.seal").unlink()
    begin(folder.path, {name: Party.of(name, folder.client(name).key()) for name in folder.manifest()["keys"]})
    (folder.path / "history.jsonl").unlink()
    with pytest.raises(LedgerError, match="holds the results of 1 rounds, and 0 are charged"):
        resume(folder.path)
    assert rounds_left(left) == [1]


def test_other_noise_is_not_what_was_charged(home, tmp_path) -> None:
    folder = cut(home, tmp_path / "run")
    toml = (folder.path / "run.toml").read_text()
    (folder.path / "run.toml").write_text(toml.replace("epsilon = 1.0", "epsilon = 0.1"))
    with pytest.raises(LedgerError, match="released with other noise than is asked for now"):
        resume(folder.path)


@pytest.mark.parametrize(
    "other", ["epsilon = 8.0", "insecure_noise_seed = 3", "clip = 5.0", 'unit = "client"', "rank = 3"]
)
def test_a_run_that_has_released_nothing_goes_on_with_its_own_settings_only(
    home, tmp_path, left, monkeypatch, other
) -> None:
    """It went on with those of run.toml, whatever they were, below a manifest that said epsilon 1."""
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "begin", lambda *_: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            fit(config(home), tmp_path / "run")
    toml = (tmp_path / "run" / "run.toml").read_text().splitlines(keepends=True)
    rest = [line for line in toml if not line.startswith(other.split(" = ")[0])]
    (tmp_path / "run" / "run.toml").write_text("".join([other + "\n", *rest]))
    with pytest.raises(LedgerError, match=f"found another {other.split(' = ')[0]} in run.toml"):
        resume(tmp_path / "run")
    assert rounds_left(left) == []


def test_a_private_run_does_not_go_on_without_its_budget(home, tmp_path, left) -> None:
    folder = cut(home, tmp_path / "run")
    toml = (folder.path / "run.toml").read_text().splitlines(keepends=True)
    bare = [line for line in toml if not line.startswith(("epsilon", "delta", "method"))]
    (folder.path / "run.toml").write_text("".join(bare))
    for file in folder.path.glob("checkpoint*"):
        file.unlink()
    with pytest.raises(LedgerError, match=r"the budget that the run began with, found none in run\.toml"):
        resume(folder.path)
    assert not folder.checkpoint.path.exists()
    assert rounds_left(left) == [1]


@pytest.mark.parametrize(
    ("where", "times", "goes_on"),
    [
        ("step", 7, False),
        ("checkpoint.npz: written", 3, False),
        ("checkpoint.npz: named", 3, True),
        ("charges.jsonl: half of it", 4, False),
    ],
)
def test_a_command_that_is_killed_in_its_third_round(home, tmp_path, where, times, goes_on) -> None:
    words = ["--epsilon", "1", "--delta", "1e-3", "--unit", "client", "--method", "fedavg", "--rounds", "4", "-k", "2"]
    command = [sys.executable, "-c", DYING, where, str(times), "fit", *(str(home / name) for name in FILES), *words]
    died = subprocess.run([*command, "-q"], cwd=tmp_path, check=False, timeout=100)
    assert died.returncode == -signal.SIGKILL
    spent = json.loads(cofactor("privacy", "spend", "run", "--json", cwd=tmp_path).stdout)
    assert spent["rounds"] == 3
    left = Counter(line.rsplit("-", 1)[1] for line in (tmp_path / "left").read_text().split())
    if not goes_on:
        refusal = cofactor("resume", "run", cwd=tmp_path, check=2).stderr
        assert "which may have been released: it is charged" in refusal
        assert spent["text"] in refusal
        assert json.loads(cofactor("privacy", "spend", "run", "--json", cwd=tmp_path).stdout) == spent
        return
    step, seen = ClientLevel.step, []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClientLevel, "step", lambda self, *a: (seen.append(str(a[3])), step(self, *a))[1])
        cofactor("resume", "run", "-q", cwd=tmp_path)
    assert left + Counter(seen) == {str(t): 3 for t in range(4)}
    assert json.loads(cofactor("privacy", "spend", "run", "--json", cwd=tmp_path).stdout)["epsilon"] == pytest.approx(1)
    assert "ok: 12 entries of 3 chains" in cofactor("ledger", "verify", "run", cwd=tmp_path).stdout


EVERYWHERE = """
import json, os, signal, sys
from collections import Counter
from pathlib import Path
from cofactor import files
from cofactor.cli import main
from cofactor.methods.moments import Moments

step = Moments.step
def stepped(self, data, shared, local, t, rng):
    with open("left", "a") as file: file.write(f"{os.getpid()}-{data[0, 0]}-{t}\\n")
    return step(self, data, shared, local, t, rng)
Moments.step = stepped

def command(folder, *words, point=None):
    pid = os.fork()  # what was imported is there: a command that is killed costs what it does, and no more
    if pid == 0:
        os.chdir(folder)
        out = os.open("said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1), os.dup2(out, 2)
        def reached(place, seen=[]):
            seen.append(place)
            if len(seen) == point: os.kill(os.getpid(), signal.SIGKILL)
        files.reached = reached
        sys.argv = ["cofactor", *words]
        try: main()
        except SystemExit as ended: sys.stdout.flush(); os._exit(ended.code or 0)
        sys.stdout.flush(); os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def left(folder):
    lines = (folder / "left").read_text().split() if (folder / "left").exists() else []
    return Counter(line.split("-", 1)[1] for line in lines)

found, fit = [], ["fit", *sys.argv[1:], "-k", "2", "--epsilon", "1", "--delta", "1e-6", "-q"]
for words in (fit, ["privacy", "spend", "run", "--json"], ["ledger", "verify", "run"]):  # all that is imported late
    sys.argv = ["cofactor", *words]
    try: main()
    except SystemExit: pass
Path("left").unlink()
while True:
    folder = Path(f"at{len(found)}")
    folder.mkdir()
    code = command(folder, *fit, point=len(found) + 1)
    if code == 0: break
    run = {"code": code, "begun": (folder / "run" / "manifest.json").exists()}
    before = len({line.rsplit("-", 1)[1] for line in left(folder)})
    if run["begun"]:
        run["spend"] = command(folder, "privacy", "spend", "run", "--json")
        run["paid"] = json.loads((folder / "said").read_text())["rounds"] - before
    run["after"] = command(folder, *(["resume", "run", "-q"] if run["begun"] else fit))
    run["said"] = (folder / "said").read_text()
    run["most"] = max(left(folder).values(), default=0)
    run["verify"] = command(folder, "ledger", "verify", "run")
    found.append(run)
Path("found.json").write_text(json.dumps(found))
"""


def test_a_command_that_is_killed_at_every_write_releases_no_round_twice(home, tmp_path) -> None:
    """Each of the files that the command line writes: what is charged is never less than what has left."""
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", EVERYWHERE, *(str(home / name) for name in FILES)],
        cwd=tmp_path, check=True, timeout=300,
    )  # fmt: skip
    found = json.loads((tmp_path / "found.json").read_text())
    assert len(found) > 30
    assert Counter(run["after"] for run in found).keys() == {0, 2}
    for point, run in enumerate(found):
        assert run["code"] == -signal.SIGKILL, (point, run)
        assert run["verify"] == 0, (point, run)
        assert run["most"] <= 1, (point, run)
        if run["begun"]:
            assert run["spend"] == 0, (point, run)
            assert run["paid"] >= 0, (point, run)
        if run["after"] == 2:
            assert "which may have been released: it is charged" in run["said"], (point, run)


def test_a_run_that_began_with_a_ledger_does_not_go_on_without(home, tmp_path, left) -> None:
    account.new(tmp_path / "site.jsonl", epsilon=4, delta=1e-6)
    with pytest.raises(Killed):
        fit(
            config(home, ledger=str(tmp_path / "site.jsonl")),
            tmp_path / "run",
            callbacks=[lambda *_: (_ for _ in ()).throw(Killed)],
        )
    toml = (tmp_path / "run" / "run.toml").read_text()
    (tmp_path / "run" / "run.toml").write_text("".join(x for x in toml.splitlines(True) if not x.startswith("ledger")))
    with pytest.raises(LedgerError, match="expected the ledger over runs that the run began with"):
        resume(tmp_path / "run")
    (tmp_path / "run" / "run.toml").write_text(toml)
    resume(tmp_path / "run")
    assert rounds_left(left) == [1, 1]
    assert account.read(tmp_path / "site.jsonl").spent().epsilon == pytest.approx(1, rel=1e-9)


@pytest.mark.parametrize("name", ["keys", "ledger"])
def test_keys_and_a_ledger_are_there_from_the_first_round_on_or_never(home, tmp_path, left, name) -> None:
    """A run said that its keys were exchanged beforehand and went on with others; a ledger had the last rounds only."""
    account.new(tmp_path / "site.jsonl", epsilon=4, delta=1e-6)
    for client in FILES:
        keys.make(tmp_path / "keys", client.removesuffix(".npy"))
    more = {"keys": {"secure": True, "keys": str(tmp_path / "keys")}, "ledger": {}}[name]
    with pytest.raises(Killed):
        fit(config(home, **more), tmp_path / "run", callbacks=[lambda *_: (_ for _ in ()).throw(Killed)])
    toml = (tmp_path / "run" / "run.toml").read_text()
    other = [f'ledger = "{tmp_path}/site.jsonl"\n'] if name == "ledger" else []
    rest = [line for line in toml.splitlines(True) if not line.startswith(name)]
    (tmp_path / "run" / "run.toml").write_text("".join([*other, *rest]))
    with pytest.raises(LedgerError, match=f"found another {name} in run.toml"):
        resume(tmp_path / "run")
    (tmp_path / "run" / "run.toml").write_text(toml)
    resume(tmp_path / "run")
    assert rounds_left(left) == [1, 1]


@pytest.mark.parametrize("lost", ["secure", "keys"])
def test_a_run_under_masks_does_not_go_on_without_them(home, tmp_path, lost) -> None:
    """Without noise too: its manifest says what single messages are hidden by, and what the masks rest on."""
    for client in FILES:
        keys.make(tmp_path / "keys", client.removesuffix(".npy"))
    masked = Config([str(home / f) for f in FILES], 2, rounds=3, tol=0.0, secure=True, keys=str(tmp_path / "keys"))
    with pytest.raises(Killed):
        fit(masked, tmp_path / "run", callbacks=[lambda *_: (_ for _ in ()).throw(Killed)])
    toml = (tmp_path / "run" / "run.toml").read_text()
    names = ("secure", "keys") if lost == "secure" else ("keys",)
    (tmp_path / "run" / "run.toml").write_text("".join(x for x in toml.splitlines(True) if not x.startswith(names)))
    before = (tmp_path / "run" / "ledger.jsonl").read_bytes()
    with pytest.raises(CofactorError, match=f"expected {lost} as the run began, found none"):
        resume(tmp_path / "run")
    assert (tmp_path / "run" / "ledger.jsonl").read_bytes() == before
    (tmp_path / "run" / "run.toml").write_text(toml)
    assert resume(tmp_path / "run").finished


@pytest.mark.parametrize("place", ["run/ledger.jsonl", "run/charges.jsonl", "site.jsonl"])
def test_a_disk_that_is_full_lets_nothing_out_and_says_which_file_it_was(
    home, tmp_path, left, monkeypatch, place
) -> None:
    """The first line that is to be written there fails; no client has stepped, and the next run finds all as it was."""
    account.new(tmp_path / "site.jsonl", epsilon=4, delta=1e-6)
    real, out = files.write_at, tmp_path / "run"

    def full(path: Path, at: int, data: bytes) -> None:
        if path == tmp_path / place and data:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        real(path, at, data)

    asked = config(home, ledger=str(tmp_path / "site.jsonl"))
    monkeypatch.setattr(files, "write_at", full)
    with pytest.raises(OSError, match="No space left") as caught:
        fit(asked, out)
    assert place in str(caught.value)
    monkeypatch.setattr(files, "write_at", real)
    if place == "run/ledger.jsonl":  # what left is written when it has left, and was charged before
        assert rounds_left(left) == [1]
        with pytest.raises(ReleasedError):
            resume(out)
        return
    assert not left
    fit(asked, tmp_path / "again")
    assert account.read(tmp_path / "site.jsonl").spent().epsilon < 2 + 1e-9
