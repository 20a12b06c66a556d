"""How good a run is: what clients say adds up to what all rows together would say, and tiny clients are judged too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from tests.helpers.samples import CLIENTS, SAMPLES, write

from cofactor import metrics, ratings
from cofactor.boolean import tally
from cofactor.engines.checkpoint import Checkpoint
from cofactor.jobs import job as jobs
from cofactor.jobs import judge
from cofactor.jobs.config import Config
from cofactor.jobs.folder import RunFolder
from cofactor.jobs.job import fit, resume
from cofactor.jobs.place import Place
from cofactor.jobs.reading import read
from cofactor.kinds.numbers import NonNegative
from cofactor.local.brief import Brief
from cofactor.methods import build as building
from cofactor.methods.alone import Alone
from cofactor.methods.summed import Summed
from cofactor.privacy.errors import PrivacyError
from cofactor.ratings.ranking import coverage, rank_users
from cofactor.types import CofactorError


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("judge"))


@pytest.fixture(scope="module")
def runs(home: Path) -> Callable[[str], tuple[Config, RunFolder]]:
    """Fit a sample once."""

    def fitted(name: str) -> tuple[Config, RunFolder]:
        files, options = SAMPLES[name]
        config = Config([str(home / file) for file in files], **options)
        folder = RunFolder(home / name)
        return config, folder if folder.finished else fit(config, home / name)

    return fitted


def codes(folder: RunFolder) -> list[np.ndarray]:
    return [np.load(folder.client(line.client).path / "codes.npy") for line in folder.manifest_record().inputs]


def data(config: Config) -> list[Any]:
    return read(config, Place())[1].data


def test_errors_of_numbers_are_those_of_the_stacked_rows(runs: Callable[[str], tuple[Config, RunFolder]]) -> None:
    config, folder = runs("real")
    result, H = folder.evaluation(), folder.factor()[0]
    Xs, Ws = data(config), codes(folder)
    assert result.error == pytest.approx(metrics.pooled_error(Xs, Ws, H))
    assert result.error == pytest.approx(metrics.relative_error(np.vstack(Xs), np.vstack(Ws), H))
    for line, X, W in zip(result.clients, Xs, Ws, strict=True):
        assert (line.rows, line.error) == (len(X), pytest.approx(metrics.relative_error(X, W, H)))
        assert line.rmsd == pytest.approx(metrics.rmsd(X, W, H))
        assert line.local_error is not None
        assert 0 < line.local_error <= 1.02 * line.error
    assert np.array(result.match).shape == (config.rank, len(CLIENTS))


@pytest.mark.parametrize("name", ["boolean", "swept"])
def test_errors_of_bits_are_counts(runs: Callable[[str], tuple[Config, RunFolder]], name: str) -> None:
    config, folder = runs(name)
    result, H = folder.evaluation(), folder.factor()[0]
    X, W = sparse.vstack(data(config)).toarray(), np.vstack(codes(folder))
    assert result.error == pytest.approx(tally(X, W, H).loss)
    wrong = (X > 0) != (W.astype(int) @ H.astype(int) > 0)
    assert result.error == pytest.approx(wrong.sum() / X.sum())
    assert (result.match, result.clients[0].local_error) == (None, None)


def test_errors_of_clusters_are_distances(runs: Callable[[str], tuple[Config, RunFolder]]) -> None:
    config, folder = runs("clusters")
    X, H = np.vstack(data(config)), folder.factor()[0]
    nearest = ((X[:, None] - H[None]) ** 2).sum(axis=2).min(axis=1)
    assert folder.evaluation().error == pytest.approx(np.sqrt(nearest.sum() / (X**2).sum()))


@pytest.mark.parametrize("name", ["ratings", "several"])
def test_parts_of_ratings_are_those_of_the_stacked_users(
    runs: Callable[[str], tuple[Config, RunFolder]], name: str
) -> None:
    config, folder = runs(name)
    training, held = folder.evaluation().parts
    inputs, H = read(config, Place())[1], folder.factor()[0]
    train, test, W = (sparse.vstack(inputs.data).tocsr(), sparse.vstack(inputs.held).tocsr(), np.vstack(codes(folder)))
    for part, R in ((training, train), (held, test)):
        assert part.ratings == R.nnz
        assert part.rmse == pytest.approx(np.sqrt(ratings.residual_squares(R, W, H).sum() / R.nnz))
    relevant = test.multiply(test >= 4).tocsr()
    relevant.eliminate_zeros()
    expected = rank_users(W, H, train, relevant, n=10).mean
    if name == "several":  # lists of single users as clients stay with them
        expected["coverage"] = coverage(W, H, train, n=10)
    assert held.ranking == pytest.approx({f"{key}@10": value for key, value in expected.items()})
    assert training.ranking == {}


def test_clicks_are_counted_and_ranked_and_have_no_rmse(runs: Callable[[str], tuple[Config, RunFolder]]) -> None:
    config, folder = runs("clicks")
    training, held = folder.evaluation().parts
    inputs = read(config, Place())[1]
    assert (training.ratings, held.ratings) == tuple(sparse.vstack(p).nnz for p in (inputs.data, inputs.held))
    assert (training.rmse, held.rmse) == (None, None)
    assert set(held.ranking) == {"precision@10", "recall@10", "ndcg@10"}
    assert all(line.rmsd is None for line in folder.evaluation().clients)


@pytest.mark.parametrize("method", ["exact", "fedavg", "oneshot"])
@pytest.mark.parametrize("rows", [1, 2])
def test_a_client_too_small_to_be_fitted_alone_is_judged(home: Path, method: str, rows: int, tmp_path: Path) -> None:
    X = np.load(home / "all.npy")
    for name, part in (("tiny", X[:rows]), ("big", X[rows:40]), ("other", X[40:])):
        np.save(tmp_path / f"{name}.npy", part)
    files = [str(tmp_path / f"{name}.npy") for name in ("tiny", "big", "other")]
    folder = fit(Config(files, 3, method=method, rounds=None if method == "oneshot" else 3), tmp_path / "run")
    tiny, big, _ = folder.evaluation().clients
    assert (tiny.rows, tiny.local_error) == (rows, None if rows == 1 else tiny.local_error)
    assert np.isfinite(tiny.error)
    assert big.local_error is not None
    match = folder.evaluation().match
    assert match is not None
    if rows == 1:
        assert [row[0] for row in match] == [None] * 3
    assert all(np.isfinite(row[1]) and np.isfinite(row[2]) for row in match)  # type: ignore[arg-type]


def test_only_tiny_clients_have_passports_too(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    for j in range(4):
        np.save(tmp_path / f"{j}.npy", draw.random((1, 5)))
    folder = fit(Config([str(tmp_path / f"{j}.npy") for j in range(4)], 2, rounds=2), tmp_path / "run")
    assert all(line.local_error is None for line in folder.evaluation().clients)
    assert (folder.path / "passports.json").exists()


def test_zero_rows_have_an_error_of_zero(tmp_path: Path) -> None:
    np.save(tmp_path / "zeros.npy", np.zeros((4, 5)))
    np.save(tmp_path / "ones.npy", np.random.default_rng(0).random((8, 5)))
    folder = fit(Config([str(tmp_path / f"{n}.npy") for n in ("zeros", "ones")], 2, rounds=2), tmp_path / "run")
    assert folder.evaluation().clients[0].error == 0


def test_clients_of_many_rows_are_judged_by_some_of_them(tmp_path: Path) -> None:
    """What they reach alone is that of all their rows, but for what a draw can tell."""
    rng = np.random.default_rng(0)
    H = rng.gamma(0.3, size=(4, 20))
    for name, k in (("a", slice(0, 3)), ("b", slice(1, 4))):
        X = rng.gamma(0.5, size=(4400, 3)) @ H[k] + 0.05 * rng.gamma(1.0, size=(4400, 20))
        np.save(tmp_path / f"{name}.npy", X)
    config = Config([str(tmp_path / f"{n}.npy") for n in "ab"], 3, rounds=20)
    folder = fit(config, tmp_path / "run")
    for client in folder.evaluation().clients:
        X = np.load(tmp_path / f"{client.client}.npy")
        W, own = Alone(Summed(3))(X, 3, np.random.default_rng(0))
        assert client.local_error == pytest.approx(metrics.relative_error(X, W, own), rel=0.03)
        assert client.local_error < client.error
    assert (folder.path / "passports.json").exists()


def test_large_data_are_not_compared(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "LOCAL_CELLS", 10)
    folder = fit(Config([str(home / "a.csv"), str(home / "b.csv")], 3, rounds=2), tmp_path / "run")
    assert folder.evaluation().match is None
    assert not (folder.path / "passports.json").exists()


def test_secure_sums_leave_clients_uncompared(runs: Callable[[str], tuple[Config, RunFolder]]) -> None:
    """What a client finds alone is a message of its own: no sum would hide it."""
    _, folder = runs("secure")
    assert folder.evaluation().match is None
    assert not (folder.path / "passports.json").exists()
    assert all(line.error > 0 for line in folder.evaluation().clients)


@pytest.mark.parametrize(
    ("name", "error", "text"),
    [
        ("private", PrivacyError, "a pooled bound is refused"),
        ("ratings", CofactorError, "exact-als is the pooled answer already"),
        ("boolean", CofactorError, "for non-negative numbers only, with the same features"),
        ("union", CofactorError, "for non-negative numbers only, with the same features"),
    ],
)
def test_a_pooled_bound_is_refused_where_there_is_none(
    runs: Callable[[str], tuple[Config, RunFolder]], name: str, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        judge.add_pooled(runs(name)[1])


def test_a_pooled_bound_has_the_loss_of_its_run(home: Path, tmp_path: Path) -> None:
    """Least squares would be lower, and read as if pooling were."""
    files = [str(home / f"{name}.csv") for name in "abc"]
    folder = fit(Config(files, 3, method="exact-beta", rounds=300), tmp_path / "run")
    before, after = folder.evaluation(), judge.add_pooled(folder)
    assert after.pooled_error == pytest.approx(before.error, rel=0.02)


def test_a_pooled_bound_is_added(home: Path, tmp_path: Path) -> None:
    files = [str(home / f"{name}.csv") for name in "abc"]
    folder = fit(Config(files, 3, rounds=20), tmp_path / "run")
    before = folder.evaluation()
    after = judge.add_pooled(folder)
    assert after == folder.evaluation()
    assert (after.error, after.match) == (before.error, before.match)
    assert after.pooled_error == pytest.approx(before.error, rel=0.02)
    assert [line.pooled_error for line in after.clients] != [None] * 3


def test_nothing_is_done_twice(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each client is factorized alone once, data are checked once, the method is built once, a checkpoint read once.

    The start of exact is another factorization: a short one, at twice the rank.
    """
    calls: Counter[str] = Counter()

    def counted(holder: Any, name: str) -> None:
        whole = getattr(holder, name)

        def call(*arguments: Any, **more: Any) -> Any:
            calls[name] += 1
            return whole(*arguments, **more)

        monkeypatch.setattr(holder, name, call)

    monkeypatch.setattr(jobs, "PAUSE", 0.0)
    counted(Alone, "__call__")
    counted(Brief, "__call__")
    counted(NonNegative, "check")
    counted(building, "build")
    counted(Checkpoint, "load")
    counted(jobs, "read")
    config = Config([str(home / f"{name}.csv") for name in "abc"], 3, rounds=4)

    def kill(line: Any, shared: Any) -> None:
        if line.round == 2:
            raise KeyboardInterrupt

    fit(config, tmp_path / "run")
    assert calls == {"__call__": 3 + 3, "check": 3, "build": 1, "load": 1, "read": 1}
    with pytest.raises(KeyboardInterrupt):
        fit(config, tmp_path / "cut", callbacks=[kill])
    calls.clear()
    resume(tmp_path / "cut")
    assert calls == {"__call__": 3, "check": 3, "build": 1, "load": 1, "read": 1}, "what was found alone is not kept"
