"""The dask engine: workers give the inline result, hold the rows that the driver never sees, and may be lost."""

import os
import pickle
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import cloudpickle
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from tests.helpers.clusters import two_workers
from tests.helpers.methods import NAMES, case

from cofactor import FederatedBMF, FederatedKMeans, FederatedNMF, metrics, run
from cofactor.data import load, synthetic
from cofactor.data.formats.row_blocks import RowBlocks
from cofactor.engines import dask_hosts, dask_worker, log
from cofactor.engines.checkpoint import Checkpoint
from cofactor.engines.dask_engine import Dask
from cofactor.engines.host import UNTOLD, Host
from cofactor.engines.loop import run_stream
from cofactor.engines.named import named
from cofactor.engines.speeds import Fixed
from cofactor.methods import catalog
from cofactor.methods.averaged import Averaged
from cofactor.methods.build import Facts, build
from cofactor.methods.wrapped import Wrapped
from cofactor.plan import ByShare, Plan
from cofactor.privacy import Privacy, account
from cofactor.privacy.errors import PrivacyError, ReleasedError
from cofactor.types import ClientError, CofactorError, DataError, Shared

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import the tests
ROWS = (23, 31, 17, 3, 5, 2, 12)


@pytest.fixture(scope="module")
def cluster():
    """Two processes of one thread each; one that dies is started again, however often."""
    dask.config.set({"distributed.deploy.lost-worker-timeout": "1h"})
    with two_workers() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def client(cluster):
    with distributed.Client(cluster, set_as_default=False) as client:
        yield client


@pytest.fixture
def engine(client):
    client.wait_for_workers(2, timeout=30)
    return Dask(client)


@pytest.fixture(scope="module")
def threads():
    """Three workers in threads of this process: another number, and quickly there."""
    with (
        distributed.LocalCluster(n_workers=3, threads_per_worker=2, processes=False, dashboard_address=":0") as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield Dask(client)


@pytest.fixture(scope="module")
def Xs():
    return synthetic.blocks(7, list(ROWS), features=14, rank=3, seed=4).Xs


def counted(result):
    return [(r.round, r.stage, r.bytes_up, r.bytes_down, r.participants) for r in result.history]


def agree(there, here, *, atol=1e-6):
    """Assert that a run on workers is the inline run: factor, codes, losses, and all that is counted."""
    np.testing.assert_allclose(there.factor, here.factor, atol=atol)
    for V, W in zip(there.codes, here.codes, strict=True):
        np.testing.assert_allclose(V, W, atol=atol)
    for name in ("loss", "drift", "epsilon"):
        a, b = ([getattr(r, name) for r in result.history] for result in (there, here))
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
    assert there.factor.dtype == here.factor.dtype
    assert counted(there) == counted(here)
    assert there.converged == here.converged


def kill(client, which=0):
    """End a worker as a machine does that is switched off."""
    address, pid = list(client.run(os.getpid).items())[which]
    os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + 10
    while address in client.nthreads() and time.monotonic() < until:
        time.sleep(0.01)


@pytest.mark.parametrize("name", NAMES)
def test_every_name_gives_the_inline_result(name, engine):
    given = case(name, rows=ROWS[:6])
    here, there = (run(given.method, given.Xs, rounds=5, seed=3, engine=e) for e in (None, engine))
    agree(there, here)


@pytest.mark.parametrize(
    ("name", "form", "plan"),
    [
        ("exact", lambda X: X, {"participation": 0.3}),
        ("fedavg", lambda X: X, {"participation": 0.3}),
        ("k-means", lambda X: X, {"participation": 0.5}),
        ("exact", sparse.csr_matrix, {}),
        ("exact", lambda X: X.astype(np.float32 if len(X) > 3 else np.float64), {}),
        ("exact", lambda X: X, {"stop": 1e-2, "rounds": 50}),
    ],
    ids=["part of the clients", "part, averaged", "part, clustered", "sparse", "mixed precision", "stopped"],
)
def test_plans_and_forms_of_data(name, form, plan, engine, Xs):
    data, method = [form(X) for X in Xs], catalog.make(name, 3)
    here, there = (run(method, data, **{"rounds": 6, "seed": 3, **plan}, engine=e) for e in (None, engine))
    agree(there, here)


@pytest.mark.parametrize("workers", [1, 3])
def test_any_number_of_workers_with_threads(workers, threads, Xs):
    method = catalog.make("exact", 3)
    with distributed.LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0") as one:
        engine = threads if workers == 3 else Dask(scheduler=one.scheduler_address)
        agree(run(method, Xs, rounds=5, engine=engine), run(method, Xs, rounds=5))
        agree(run(method, Xs[:1], rounds=5, engine=engine), run(method, Xs[:1], rounds=5))


def test_secure_sums(engine, Xs):
    method = catalog.make("exact", 3, start="moments")
    plain, hidden, inline = (
        run(method, Xs, rounds=20, engine=e, secure=secure)
        for e, secure in ((None, False), (engine, True), (None, True))
    )
    np.testing.assert_allclose(hidden.factor, plain.factor, atol=1e-5)
    agree(hidden, inline)


def elsewhere(driver):
    """Return what hands a block on in another process than the driver's; it travels by value, the tests do not."""

    def check(X):
        assert os.getpid() != driver
        return X

    return check


only_there = elsewhere(os.getpid())


@pytest.mark.parametrize("chunks", [(20, 5), (20, 14)], ids=["columns in chunks", "columns in one"])
def test_the_row_chunks_of_a_dask_array_are_clients(chunks, engine, Xs):
    X = np.vstack(Xs)
    there = da.from_array(X, chunks=chunks).map_blocks(only_there, meta=X[:0])
    parts = [X[i : i + 20] for i in range(0, len(X), 20)]
    agree(run(catalog.make("exact", 3), there, rounds=5, engine=engine), run(catalog.make("exact", 3), parts, rounds=5))
    model, known = (
        FederatedNMF(3, rounds=5, tol=0, random_state=0, engine=engine),
        FederatedNMF(3, rounds=5, tol=0, random_state=0).fit(parts),
    )
    codes = clone(model).fit_transform(there)
    model.fit(there)
    np.testing.assert_allclose(model.components_, known.components_, atol=1e-9)
    np.testing.assert_allclose(codes, np.vstack(known.codes_), atol=1e-9)
    assert model.reconstruction_err_ == pytest.approx(known.reconstruction_err_, rel=1e-9)
    assert model.clients_ == list(range(5))
    assert not hasattr(model, "feature_names_in_")
    assert pickle.loads(pickle.dumps(model)).transform(X).shape == (len(X), 3)


def test_features_that_nobody_observed_are_told_from_workers(engine, Xs):
    X = np.where(np.arange(Xs[0].shape[1]) == 4, np.nan, np.vstack(Xs))
    model = FederatedNMF(2, method="exact-gaps", random_state=0, rounds=3, engine=engine)
    with pytest.warns(UserWarning, match="features that nobody observed, but for rows of zeros: 4;"):
        model.fit(da.from_array(X, chunks=(20, -1)))


def test_chunks_of_unknown_length(engine, Xs):
    X = da.from_array(np.vstack(Xs), chunks=(40, 14))
    X = X[X[:, 0] >= 0]
    assert np.isnan(X.shape[0])
    assert FederatedNMF(3, rounds=3, tol=0, engine=engine).fit(X).components_.shape == (3, 14)


def test_delayed_blocks_and_futures(engine, client, Xs):
    known = FederatedNMF(3, rounds=4, tol=0, random_state=0).fit(Xs)
    delayed = [dask.delayed(only_there)(X) for X in Xs]
    for blocks in (delayed, client.scatter(Xs), [*delayed[:2], *client.scatter(Xs[2:5]), *Xs[5:]]):
        model = FederatedNMF(3, rounds=4, tol=0, random_state=0, engine=engine).fit(blocks)
        np.testing.assert_allclose(model.components_, known.components_, atol=1e-9)
        assert len(model.codes_) == 7
    signed = [X - 1 for X in Xs]
    clustered = FederatedKMeans(2, random_state=0, engine=engine).fit([dask.delayed(X) for X in signed])
    for a, b in zip(clustered.labels_, FederatedKMeans(2, random_state=0).fit(signed).labels_, strict=True):
        np.testing.assert_array_equal(a, b)


@dataclass(frozen=True)
class There:
    """Rows of a file that only workers may read."""

    inner: object
    look: object

    sparse = False
    shape, dtype, cells = (
        property(lambda self, name=name: getattr(self.inner, name)) for name in ("shape", "dtype", "cells")
    )

    def read(self, start, stop):
        return self.look(self.inner.read(start, stop))


def test_rows_on_disk_are_read_on_the_worker(engine, Xs, tmp_path):
    data = []
    for j, X in enumerate(Xs[:4]):
        np.save(tmp_path / f"{j}.npy", X)
        data.append(RowBlocks(There(load.read(str(tmp_path / f"{j}.npy"), blocks=True).X.source, only_there)))
    agree(run(catalog.make("exact", 3), data, rounds=4, engine=engine), run(catalog.make("exact", 3), Xs[:4], rounds=4))


LOST = [
    ("exact", {}),
    ("exact", {"participation": 0.5}),
    ("k-means", {"participation": 0.5}),
    ("fnmf-lap", {}),
    ("fedavg", {"secure": True, "participation": 0.5}),
]


@pytest.mark.parametrize(("name", "plan"), LOST, ids=[" ".join([name, *plan]) for name, plan in LOST])
def test_a_worker_may_be_lost_between_rounds(name, plan, engine, client, Xs):
    """It ends as if nothing had happened: running sums, masks and all that is counted."""

    def lose(line, shared):
        if line.round == 2:
            kill(client)
        if line.round == 4 and name == "exact" and not plan:  # the one that holds all clients now
            kill(client)

    method = catalog.make(name, 3)
    there = run(method, Xs, rounds=7, seed=3, engine=engine, callbacks=[lose], **plan)
    agree(there, run(method, Xs, rounds=7, seed=3, **plan))


@dataclass(frozen=True)
class Fatal(Averaged):
    """Its client of 17 rows ends its own worker in round 2, as often as there are tokens in a folder."""

    tokens: str = ""

    def step(self, data, shared, local, t, rng):
        found = sorted(Path(self.tokens).iterdir())
        if t == 2 and data.shape[0] == 17 and found:
            found[0].unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(data, shared, local, t, rng)


def fatal(folder, tokens):
    for i in range(tokens):
        (folder / str(i)).touch()
    plain = catalog.make("fedavg", 3, sweeps=5)
    return plain, Fatal(**vars(plain), tokens=str(folder))


@pytest.mark.parametrize("plan", [{"participation": 0.8}, {"secure": True}], ids=["part", "secure"])
def test_a_worker_may_be_lost_in_a_round(plan, engine, Xs, tmp_path):
    plain, method = fatal(tmp_path, 1)
    seen = []
    there = run(method, Xs, rounds=5, seed=3, engine=engine, watch=lambda t, answers: seen.append(t), **plan)
    agree(there, run(plain, Xs, rounds=5, seed=3, **plan))
    assert not list(tmp_path.iterdir())
    assert seen == list(range(5))


@dataclass(frozen=True)
class Private(Wrapped):
    """A private method whose client of 17 rows ends its own worker in round 1, as often as there are tokens."""

    tokens: str

    def step(self, data, shared, local, t, rng):
        found = sorted(Path(self.tokens).glob("*.token"))
        if t == 1 and data.shape[0] == 17 and found:
            found[0].unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.method.step(data, shared, local, t, rng)


@pytest.mark.parametrize("secure", [False, True])
def test_a_private_round_in_which_a_worker_was_lost_is_not_repeated(secure, engine, Xs, tmp_path):
    """Its message may have been seen: a second one would have other noise."""
    (tmp_path / "1.token").touch()
    plan = Plan(4, privacy=Privacy(1, 1e-3, unit="client"), secure=secure)
    method, plan = build("fedavg", 3, plan, Facts(len(Xs), 14))
    checkpoint, seen = Checkpoint(tmp_path / "c.npz"), []
    told = {"engine": engine, "checkpoint": checkpoint, "watch": lambda t, answers: seen.append(t)}
    with pytest.raises(ReleasedError, match="round 1: clients were lost in a round of a private run"):
        run(Private(method, str(tmp_path)), Xs, plan, **told)
    assert not list(tmp_path.glob("*.token"))
    engine.client.wait_for_workers(2, timeout=30)
    with pytest.raises(ReleasedError, match="expected the results of 2 rounds, as many as are charged"):
        run(Private(method, str(tmp_path)), Xs, plan, **told)
    assert seen == [0]


def test_a_private_run_goes_on_without_a_worker_that_was_lost_between_rounds(engine, client, Xs, tmp_path):
    def lose(line, shared):
        if line.round == 1:
            kill(client)

    account.new(tmp_path / "site.jsonl", epsilon=1, delta=1e-3, unit="client")
    privacy = Privacy(1, 1e-3, unit="client", ledger=tmp_path / "site.jsonl")
    method, plan = build("fedavg", 3, Plan(4, privacy=privacy), Facts(len(Xs), 14))
    seen = []
    there = run(method, Xs, plan, engine=engine, callbacks=[lose], watch=lambda t, answers: seen.append(t))
    assert seen == [0, 1, 2, 3]
    assert there.epsilon == account.read(tmp_path / "site.jsonl").spent().epsilon == pytest.approx(1, rel=1e-9)


class Wide:
    """Rows of which other software says how many there are."""

    @property
    def shape(self):
        raise MemoryError("Unable to allocate an array with shape (51, 14)")


class Talking(Wrapped):
    """A private method whose client says what is in it at the end."""

    def refit(self, data, factor):
        return data.shape[0]  # which breaks what comes after it


def test_errors_of_other_software_stay_on_the_workers_of_a_private_run(engine, Xs):
    """What they say is not ours: how many rows there are, as a rule."""
    method, plan = build("fedavg", 3, Plan(2, privacy=Privacy(1, 1e-3, unit="client")), Facts(len(Xs), 14))
    for found in (Wide, lambda: {"Alice": 51}, lambda: "Alice"):
        with pytest.raises(DataError, match="client 0: expected data of the declared kind") as raised:
            run(method, [dask.delayed(found)(), *Xs[1:]], plan, engine=engine)
        assert not {"Alice", "51"} & set(str(raised.value).replace(",", " ").split())
    with pytest.raises(
        ClientError, match=r"client [0-9], or one next to it: expected a message, found an error"
    ) as raised:
        run(Talking(method), Xs, plan, engine=engine)
    assert raised.value.__cause__ is None


def test_a_block_is_one_client_of_a_private_run(engine, client, Xs):
    """Its rows were in two clients at the price of one."""
    method, plan = build("dp-nmf", 3, Plan(privacy=Privacy(1, 1e-3)), Facts(3, 14))
    X, block, there = da.from_array(Xs[0], chunks=(9, 14)), dask.delayed(np.asarray)(Xs[0]), client.scatter(Xs[0])
    for same in (
        (X.blocks[0], X.blocks[0]),
        (block, dask.delayed(block)),
        (there, distributed.Future(there.key, client)),
    ):
        with pytest.raises(PrivacyError, match="client 2: expected each matrix once, found that of 0 again"):
            run(method, [same[0], Xs[1], same[1]], plan, engine=engine)


def test_clients_that_end_every_worker_are_named(engine, Xs, tmp_path, monkeypatch):
    monkeypatch.setattr(dask_hosts, "LOSSES", 1)
    _, method = fatal(tmp_path, 9)
    with pytest.raises(ClientError, match=r"^clients 0 to 3: expected a worker that can hold them, but 2 were lost"):
        run(method, Xs, rounds=5, engine=engine)


def test_delayed_blocks_are_computed_again_where_they_were_lost(engine, client, Xs):
    blocks = [dask.delayed(only_there)(X) for X in Xs]
    there = run(
        catalog.make("exact", 3),
        blocks,
        rounds=5,
        engine=engine,
        callbacks=[lambda line, _: line.round == 2 and kill(client)],
    )
    agree(there, run(catalog.make("exact", 3), Xs, rounds=5))


@pytest.mark.parametrize(("name", "participation"), [("exact", 0.5), ("fnmf-lap", 1.0)])
def test_a_run_cut_in_two_ends_like_the_whole_run_bit_for_bit(name, participation, engine, tmp_path, monkeypatch):
    Xs, method = synthetic.blocks(7, list(ROWS), features=14, rank=3, seed=4).Xs, catalog.make(name, 3)
    plan = {"seed": 1, "participation": participation}
    whole = run(method, Xs, rounds=7, engine=engine, **plan)
    monkeypatch.chdir(tmp_path)
    file = Checkpoint(Path("checkpoint.npz"))
    run(method, Xs, rounds=3, engine=engine, checkpoint=file, **plan)
    files = sorted(p.name for p in tmp_path.iterdir() if "previous" not in p.name)
    assert files == [f"checkpoint.{i}-of-3.npz" for i in range(3)]
    rest = run(method, Xs, rounds=7, engine=engine, checkpoint=file, **plan)
    assert np.array_equal(whole.factor, rest.factor)
    assert all(np.array_equal(a, b) for a, b in zip(whole.codes, rest.codes, strict=True))
    assert [r.loss for r in rest.history] == [r.loss for r in whole.history]
    file.remove()
    assert not list(tmp_path.iterdir())


def test_clients_are_rebuilt_from_a_checkpoint(engine, client, Xs, tmp_path):
    """Lost in the first half, between two checkpoints, and in the second, after it was read."""
    method, file = catalog.make("exact", 3), Checkpoint(tmp_path / "checkpoint.npz", every=2)
    lose = {t: lambda: kill(client) for t in (2, 5)}
    for rounds in (4, 8):
        there = run(
            method, Xs, rounds=rounds, engine=engine, checkpoint=file, participation=0.5,
            callbacks=[lambda line, _: lose.get(line.round, lambda: None)()],
        )  # fmt: skip
        client.wait_for_workers(2, timeout=30)
    agree(there, run(method, Xs, rounds=8, participation=0.5))


def test_a_checkpoint_of_another_number_of_workers_or_without_its_files(engine, threads, Xs, tmp_path):
    method, file = catalog.make("exact", 3), Checkpoint(tmp_path / "checkpoint.npz")
    run(method, Xs, rounds=3, engine=engine, checkpoint=file)
    with pytest.raises(CofactorError, match="expected the 3 processes that wrote the checkpoint, found 4"):
        run(method, Xs, rounds=5, engine=threads, checkpoint=file)
    with pytest.raises(CofactorError, match="expected the 3 processes that wrote the checkpoint, found 1"):
        run(method, Xs, rounds=5, checkpoint=file)
    for path in tmp_path.glob("*.2-of-3*"):
        path.unlink()
    with pytest.raises(CofactorError, match=r"process 2: .*expected the checkpoint of this process, found none"):
        run(method, Xs, rounds=5, engine=engine, checkpoint=file)


@dataclass(frozen=True)
class Broken(Averaged):
    """Its client of 17 rows fails in round 2."""

    def step(self, data, shared, local, t, rng):
        if t == 2 and data.shape[0] == 17:
            raise MemoryError("no room for the codes")
        return super().step(data, shared, local, t, rng)


def missing():
    raise FileNotFoundError("no part-4.npy")


def test_what_goes_wrong_on_a_worker_names_the_client(engine, Xs):
    exact, broken = catalog.make("exact", 3), Broken(**vars(catalog.make("fedavg", 3)))
    holes = [X.copy() for X in Xs]
    holes[4][3, 5] = np.nan
    delayed = [dask.delayed(X) for X in Xs]
    cases = [
        (
            exact,
            holes,
            DataError,
            r"^client 4: NaN: expected finite values >= 0, found 1 such cell\(s\), the first at row 3",
        ),
        (exact, [*Xs[:4], Xs[4][:, :9], *Xs[5:]], DataError, "^client 4: expected 14 features like client 0, found 9"),
        (
            exact,
            [*delayed[:4], dask.delayed(missing)(), *delayed[5:]],
            DataError,
            "^client 4: FileNotFoundError: no part-4",
        ),
        (broken, Xs, ClientError, "^client 2, round 2: MemoryError: no room for the codes"),
        (exact, [], DataError, "expected at least one client"),
        (exact, da.ones((4, 4, 4)), DataError, "expected a dask array of two dimensions"),
        (exact, dask.delayed(Xs), DataError, "expected a dask array of two dimensions or a list of blocks"),
    ]
    for method, data, kind, text in cases:
        with pytest.raises(kind, match=text):
            run(method, data, rounds=4, engine=engine)
    private, told = catalog.make("dp-moments", 3, privacy=Privacy(1, 1e-6)), "expected data of the declared kind"
    with pytest.raises(DataError, match=f"^client 4: {told}, such as finite values >= 0, found others[^0-9]*$"):
        run(private, [dask.delayed(X) for X in holes], engine=engine)
    with pytest.raises(DataError, match=f"^client 4: {UNTOLD}$"):  # not what stands in the error of a reader
        run(private, [*delayed[:4], dask.delayed(missing)(), *delayed[5:]], engine=engine)
    run(exact, Xs, rounds=1, engine=engine)


def test_what_cannot_be_carried_is_refused(engine, Xs):
    exact, X = catalog.make("exact", 3), da.ones((40, 8), chunks=(10, 8))
    with pytest.raises(CofactorError, match="a draw by share weighs single messages"):
        run(catalog.make("exact", 3, start="random"), Xs, rounds=2, participation=ByShare(2), engine=engine)
    for fit in (FederatedNMF(3).fit, lambda data: run(exact, data, rounds=2)):
        for data in (X, [dask.delayed(np.ones)((4, 4))]):
            with pytest.raises(DataError, match=r"found blocks of dask .*use the engine Dask\(client\)"):
                fit(data)
    with pytest.raises(CofactorError, match="groups: expected none for data on workers"):
        FederatedNMF(3, engine=engine).fit(X, groups=np.zeros(40))
    with pytest.raises(CofactorError, match="n_components: expected a whole number for blocks"):
        FederatedNMF(engine=engine).fit([dask.delayed(np.ones)((4, 4))])
    with pytest.raises(CofactorError, match="one matrix: expected it here, in memory"):
        FederatedNMF(3, method="hals", engine=engine).fit(da.ones((40, 8), chunks=(40, 8)))
    with pytest.raises(CofactorError, match="threshold: expected None for data on workers"):
        FederatedBMF(3, threshold=0.5, engine=engine).fit(X)


def test_who_is_meant_and_who_is_missing(cluster, Xs, monkeypatch):
    exact = catalog.make("exact", 3)
    run(exact, Xs, rounds=1, engine=named("dask", scheduler=cluster.scheduler_address))
    with pytest.raises(CofactorError, match="Did you mean 'dask'"):
        named("dsk")
    for wrong, text in (({}, "found neither"), ({"client": cluster}, "expected a distributed.Client")):
        with pytest.raises(CofactorError, match=text):
            Dask(**wrong)
    with pytest.raises(CofactorError, match=r"expected a scheduler at tcp://127\.0\.0\.1:1, found none within 0.5 s"):
        run(exact, Xs, engine=Dask(scheduler="tcp://127.0.0.1:1", timeout=0.5))
    with (
        distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=":0") as empty,
        pytest.raises(CofactorError, match=r"expected workers at the scheduler .*, found none within 0.5 s"),
    ):
        run(exact, Xs, engine=Dask(scheduler=empty.scheduler_address, timeout=0.5))
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(CofactorError, match=r"pip install 'cofactor\[dask\]'"):
        named("dask", scheduler="tcp://127.0.0.1:1")


def test_codes_stay_on_other_machines(engine, Xs, monkeypatch):
    known = FederatedNMF(3, rounds=3, tol=0, random_state=0).fit(Xs)
    assert len(FederatedNMF(3, rounds=3, random_state=0, engine=engine).fit(Xs).codes_) == len(Xs)
    monkeypatch.setattr(dask_worker, "_boot", lambda: "another machine of the same name")
    X = da.from_array(np.vstack(Xs), chunks=(40, 14))
    model = FederatedNMF(3, rounds=3, tol=0, random_state=0, engine=engine)
    assert model.fit(Xs).codes_ == []
    assert model.reconstruction_err_ == pytest.approx(known.reconstruction_err_)
    with pytest.raises(CofactorError, match="codes stay with their clients, on other machines"):
        model.fit_transform(X)
    assert FederatedKMeans(2, engine=engine).fit(X).labels_ == []


@dataclass(frozen=True)
class Sleepy(Averaged):
    """Its client of 17 rows takes long over its third step, or its worker ends."""

    seconds: float = 1.0

    def step(self, data, shared, local, t, rng):
        if t == 2 and data.shape[0] == 17:
            if not self.seconds:
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(self.seconds)
        return super().step(data, shared, local, t, rng)


def test_a_stream_in_real_time(engine, Xs):
    method = catalog.make("asyn-sd", 3)
    there = min((run_stream(method, Xs, updates=100, seed=s, engine=engine) for s in range(2)), key=error(Xs))
    here = min((run_stream(method, Xs, updates=100, seed=s) for s in range(2)), key=error(Xs))
    assert error(Xs)(there) <= 1.1 * error(Xs)(here)
    assert {a.client for a in there.arrivals} == set(range(7))
    assert [a.update for a in there.arrivals] == list(range(100))
    assert [a.clock for a in there.arrivals] == sorted(a.clock for a in there.arrivals)
    assert max(a.staleness for a in there.arrivals) > 0
    assert {(r.bytes_up, r.bytes_down, r.participants) for r in there.history} == {
        (r.bytes_up, r.bytes_down, r.participants) for r in here.history
    }


def error(Xs):
    return lambda result: metrics.pooled_error(Xs, result.codes, result.factor)


@pytest.mark.parametrize("seconds", [1.5, 0.0], ids=["late", "lost"])
def test_a_stream_goes_on_without_a_client(seconds, threads, engine, Xs):
    """One of its own on each of three workers if it is late: threads are enough for the others."""
    data, carrier = Xs[:3], threads if seconds else engine
    sleepy = Sleepy(**vars(catalog.make("asyn-sd", 3)), seconds=seconds)
    with pytest.warns(UserWarning, match="client 2 did not answer"):
        result = run_stream(
            sleepy,
            data,
            updates=120,
            deadline=0.5 if seconds else 30,
            engine=carrier,
            callbacks=[lambda *_: time.sleep(0.01)],
        )
    assert 2 in result.absent
    assert len(result.arrivals) == 120
    assert [a.client for a in result.arrivals].count(2) == 2
    assert [W.shape for W in result.codes] == [(n, 3) for n in ROWS[:3]]


def test_streams_that_cannot_be(engine, Xs):
    with pytest.raises(CofactorError, match="speeds: expected none"):
        run_stream(catalog.make("asyn-sd", 3), Xs, speeds=Fixed((1.0,)), engine=engine)
    with pytest.raises(ClientError, match="client 2, round 2: MemoryError"):
        run_stream(Broken(**vars(catalog.make("asyn-sd", 3))), Xs, engine=engine)


def test_a_host_that_is_told_twice_steps_once(clients):
    """Its answers are kept, so that a message that may have been seen is the one that is sent."""
    method, everyone = catalog.make("exact", 3, start="random"), np.arange(3)
    steady, plain = (kind(method, clients, 0) for kind in (dask_worker.Steady, Host))
    shared = method.start(12, np.random.default_rng(0))
    once = steady.step(shared, 0, everyone)
    assert steady.step(shared, 0, everyone) is once
    plain.step(shared, 0, everyone)
    for a, b in zip(steady.states(), plain.states(), strict=True):
        np.testing.assert_array_equal(a.codes, b.codes)
    assert steady.step(shared, 1, everyone) is not once


def test_the_log_gives_back_what_was_sent(monkeypatch):
    monkeypatch.setattr(log, "LOG_BYTES", 100)  # on disk after the first
    kept = log.Log()
    for t in range(3):
        kept.add(Shared(np.full((2, 3), t)), t, np.array([t]))
    assert [(told[0].factor[0, 0], *told[1:]) for told in kept] == [(t, t, np.array([t])) for t in range(3)]
    kept.clear()
    assert list(kept) == []
    kept.add(Shared(np.ones((2, 3))), 3, np.array([0]))
    assert [told[1] for told in kept] == [3]


def test_data_frames_on_workers_have_the_same_columns_in_the_same_order(engine, client, Xs):
    """Nothing is matched by name there: columns of other names were taken for one feature, without a word."""
    names = [f"g{i}" for i in range(Xs[0].shape[1])]
    frames = [pd.DataFrame(X, columns=names) for X in Xs]
    model = FederatedNMF(3, rounds=2, tol=0, random_state=0, engine=engine)
    assert model.fit([dask.delayed(frame) for frame in frames]).components_.shape == (3, len(names))
    frames[4] = frames[4][names[::-1]]
    with pytest.raises(
        CofactorError, match=r"client 4: expected columns .* as client 0, found 'g13' in the place of 'g0"
    ):
        model.fit([dask.delayed(frame) for frame in frames])
