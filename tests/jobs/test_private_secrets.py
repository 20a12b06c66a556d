"""Nothing about the data is checked, printed, drawn or written exactly in a private run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from tests.helpers.private import HARDLY, built, mixtures, privacy
from tests.helpers.teams import Member, together

from cofactor import FederatedBMF, FederatedNMF, kinds, run
from cofactor.cli.progress import Progress, announcer
from cofactor.engines.checkpoint import Checkpoint
from cofactor.engines.team import Team
from cofactor.jobs.config import Config
from cofactor.jobs.hashing import sha256
from cofactor.jobs.job import fit, prepare
from cofactor.jobs.place import Place
from cofactor.jobs.ranks import refuse_private
from cofactor.privacy import Privacy, PrivacyError, bounded
from cofactor.types import CofactorError, DataError

BY_CLIENT = Privacy(8, 1e-3, "client")


@pytest.fixture
def Xs(rng):
    return mixtures(rng)


@pytest.fixture
def files(tmp_path, Xs) -> list[str]:
    for name, X in zip("abcd", Xs, strict=True):
        np.save(tmp_path / f"{name}.npy", X)
    return [str(tmp_path / f"{name}.npy") for name in "abcd"]


# --- a client that cannot step, or has no rows, is like any other ---

HOSTILE = {
    "1e160": lambda X: X * 1e160,
    "1e300": lambda X: np.full_like(X, 1e300),
    "denormal": lambda X: np.full_like(X, 5e-324),
    "zeros": lambda X: 0 * X,
    "no rows": lambda X: X[:0],
    "no rows, sparse": lambda X: sparse.csr_matrix(X[:0]),
    "one row": lambda X: X[:1],
}


@pytest.mark.parametrize("attack", HOSTILE)
@pytest.mark.parametrize("method", ["dp-moments", "dp-range", "dp-nmf", "fedavg", "fnmf-lap", "fedmavg", "syn-sd"])
def test_a_client_with_hostile_data_sends_a_message_like_any_other(method: str, attack: str, Xs: Any) -> None:
    data, seen = [HOSTILE[attack](Xs[0]), *Xs[1:]], []
    private = built(method, privacy(8.0, 1e-3, "client"), rounds=3)
    outcome = run(private, data, watch=lambda t, answers: seen.extend(a.message for a in answers))
    assert len(seen) == 4 * private.rounds
    assert all(np.isfinite(a).all() for message in seen for a in message.arrays.values())
    assert [len(W) for W in outcome.codes] == [X.shape[0] for X in data]
    assert all(np.isfinite(W).all() for W in outcome.codes)


@pytest.mark.parametrize("rows", [slice(0, 0), slice(0, 1)])
def test_votes_of_a_client_without_rows_are_none(rows: slice, rng: Any) -> None:
    bits = [(rng.random((40, 12)) < 0.3).astype(np.uint8) for _ in range(3)]
    private = built("asso", privacy(8.0, 1e-3, "client"), clients=3, rounds=1, sweeps=0)
    assert run(private, [bits[0][rows], *bits[1:]]).factor.shape == (3, 12)


def test_a_failed_step_is_an_update_of_zero(Xs: Any) -> None:
    private = built("fedavg", privacy(HARDLY, 1e-3, "client"), rounds=1)
    shared = private.start(12, np.random.default_rng(0))
    for X in (np.zeros((0, 12)), np.full((3, 12), 1e300)):
        local = private.join(X, shared, 0, np.random.default_rng(0))
        _, message = private.step(X, shared, local, 0, np.random.default_rng(0))
        assert np.abs(message.arrays["factor"]).max() < 1e-3


def test_estimators_take_empty_clients_in_private_fits_only(Xs: Any) -> None:
    data = [Xs[0][:0], *Xs[1:]]
    with pytest.warns(UserWarning, match="Mind that"):
        model = FederatedNMF(3, privacy=privacy(1.0), random_state=0).fit(data)
    assert [len(W) for W in model.codes_] == [0, 30, 50, 25]
    with pytest.raises(DataError, match="expected at least one row, found an empty client"):
        FederatedNMF(3).fit(data)


@pytest.mark.parametrize("rows", [0, 1])
def test_one_matrix_may_lose_its_only_row(rows: int) -> None:
    with pytest.warns(UserWarning, match="Mind that"):
        model = FederatedNMF(3, privacy=privacy(1.0), random_state=0).fit(np.ones((rows, 12)))
    assert (model.components_.shape, len(model.codes_[0])) == ((3, 12), rows)
    with pytest.raises(ValueError, match="minimum of 1 is required"):
        FederatedNMF(3).fit(np.ones((0, 12)))


def test_files_without_rows_are_clients_of_private_runs(tmp_path: Path, files: list[str]) -> None:
    np.save(files[0], np.zeros((0, 12)))
    folder = fit(Config(files, 3, epsilon=1.0, delta=1e-6), tmp_path / "run")
    assert folder.evaluation().privacy is not None
    with pytest.raises(CofactorError, match="empty client"):
        fit(Config(files, 3), tmp_path / "plain")


@pytest.mark.parametrize("rows", [1, 2, 3, 9])
def test_one_file_on_several_processes_is_refused_whatever_its_rows(tmp_path: Path, rows: int) -> None:
    """A refusal told how many there are."""
    np.save(tmp_path / "a.npy", np.random.default_rng(0).random((rows, 5)))
    config = Config([str(tmp_path / "a.npy")], 2, epsilon=1.0, delta=1e-6, secure=True)
    with pytest.raises(CofactorError, match="privacy is refused for clients that are cut out of one file"):
        together(3, lambda engine: fit(config, tmp_path / "run"))
    assert not (tmp_path / "run").exists()


BAD_FILES = {
    "a cell": "x,y\n1,2\n3,4711\n5,SECRET\n",
    "negative": "x,y\n1,2\n3,-4711\n",
    "a line too short": "x,y\n1,2\n4711\n",
    "not finite": "x,y\n1,2\n4711,inf\n",
}


@pytest.mark.parametrize("bad", BAD_FILES)
def test_what_is_wrong_with_a_file_is_not_told_to_other_processes(tmp_path: Path, bad: str) -> None:
    for name, text in (("a", "x,y\n1,2\n3,4\n"), ("b", BAD_FILES[bad])):
        (tmp_path / f"{name}.csv").write_text(text)
    files, told = [str(tmp_path / f"{name}.csv") for name in "ab"], []

    def go(engine: Any) -> None:
        try:
            fit(Config(files, 1, epsilon=1.0, delta=1e-6), tmp_path / "run")
        except CofactorError as error:
            told.append((engine.team.here, str(error)))

    together(2, go)
    texts = dict(told)
    assert "is for that client alone" in texts[0]
    assert not re.search(r"4711|SECRET|line|column|cell", texts[0]), texts[0]
    with pytest.raises(CofactorError, match=r"4711|SECRET|line|inf|-"):  # whoever reads it alone is told
        fit(Config(files, 1, epsilon=1.0, delta=1e-6), tmp_path / "alone")


def test_an_error_of_a_step_is_not_told_to_other_processes(Xs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(data: Any, bound: Any) -> Any:
        raise ValueError(f"the first row is {data[0]}")

    monkeypatch.setattr(bounded, "total", fails)
    private = built("dp-moments", privacy(8.0, 1e-3), rounds=2)

    def go(engine: Any) -> str:
        with pytest.raises(CofactorError) as caught:
            run(private, Xs[2 * engine.team.here :][:2], engine=engine)
        return str(caught.value)

    for text in together(2, go):
        assert "round 0: expected a message, found an error" in text
        assert "the first row" not in text


@pytest.mark.parametrize("error", [MemoryError, OSError, ValueError])
def test_an_error_at_the_end_is_not_told_to_other_processes(error: type[Exception], Xs: Any) -> None:
    private = built("dp-moments", privacy(8.0, 1e-3), rounds=2)

    def fails(client: Any, factor: Any) -> None:
        raise error(f"Unable to allocate an array with shape {client.data.shape}")

    def go(engine: Any) -> str:
        here = engine.team.here
        with pytest.raises(CofactorError) as caught:
            run(private, Xs[2 * here :][:2], engine=engine, work=[fails if here else lambda client, factor: None] * 2)
        return str(caught.value)

    for text in together(2, go):
        assert "client 2, its end: expected a message, found an error" in text
        assert "shape" not in text


# --- refused: what would show which features, groups or ranks there are ---


@pytest.mark.parametrize("how", ["intersection", "union"])
def test_features_that_depend_on_clients_are_refused(how: str, files: list[str], Xs: Any) -> None:
    with pytest.raises(PrivacyError, match="privacy is refused for features that are matched"):
        Config(files, 3, features=how, epsilon=1.0, delta=1e-6)
    with pytest.raises(PrivacyError, match="privacy is refused for features that are matched"):
        FederatedNMF(3, features=how, privacy=privacy()).fit(Xs)


def test_groups_of_rows_are_refused(files: list[str], Xs: Any) -> None:
    with pytest.raises(PrivacyError, match="privacy is refused for clients that are made of groups"):
        Config(files[:1], 3, group_by="ward", epsilon=1.0, delta=1e-6)
    X, groups = np.vstack(Xs), np.repeat(np.arange(4), [len(X) for X in Xs])
    for model in (FederatedNMF(3, privacy=privacy()), FederatedBMF(3, method="asso", privacy=BY_CLIENT)):
        with pytest.raises(PrivacyError, match="privacy is refused for clients that are made of groups"):
            model.fit(X, groups=groups)


def test_ranks_are_not_scanned_into_the_folder_of_a_private_run(tmp_path: Path, files: list[str]) -> None:
    fit(Config(files, 3, epsilon=1.0, delta=1e-6), tmp_path / "run")
    with pytest.raises(PrivacyError, match="a scan of ranks computes errors without noise"):
        refuse_private(tmp_path / "run")
    refuse_private(tmp_path / "elsewhere")


# --- nothing is looked at, counted or kept ---


@pytest.mark.parametrize("unit", ["record", "client"])
def test_auto_is_settled_without_a_look(unit: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, Xs: Any) -> None:
    for place in ("cofactor.methods.build.density_of", "cofactor.methods.build.choose"):
        monkeypatch.setattr(place, lambda *a, **k: pytest.fail("the data were looked at"))
    np.save(tmp_path / "a.npy", Xs[0])
    folder = fit(
        Config([str(tmp_path / "a.npy")], 3, method="auto", epsilon=1.0, delta=1e-6, unit=unit), tmp_path / "run"
    )
    written = (tmp_path / "run" / "run.toml").read_text() + json.dumps(folder.manifest_record().config)
    assert '"dp-moments"' in written
    assert "40" not in written.replace(str(tmp_path), "")  # whose name has a number


def test_processes_of_a_private_run_tell_each_other_no_row_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, files: list[str]
) -> None:
    """Whatever is exchanged is the same when one client has a row less; the hash of no file is in it."""
    told: list[str] = []
    real = Member.exchange

    def spy(self: Member, where: str, value: Any = None, **error: Any) -> list[Any]:
        if where not in ("sum", "gather"):  # messages: noisy sums of fixed size
            told.append(f"{self.here} {where} {value!r}")
        return real(self, where, value, **error)

    monkeypatch.setattr(Member, "exchange", spy)
    seen = []
    for name, rows in (("run", 30), ("less", 29)):
        np.save(files[1], np.load(files[1])[:rows])
        told.clear()
        together(2, lambda engine, name=name: fit(Config(files, 3, epsilon=1.0, delta=1e-6), tmp_path / name))
        seen.append(sorted(line.replace(str(tmp_path / name), "") for line in told))
        assert not any(sha256(Path(file)) in line for file in files for line in told)
    # keys are drawn anew, signatures made with them, and bounds follow from the noisy mean that was released
    vary = re.compile("[0-9a-f]{64,}|clip=[0-9.]+, sigma=[0-9.]+")
    kept = [sorted(vary.sub("", line) for line in lines) for lines in seen]
    assert kept[0] == kept[1]


def test_processes_of_a_private_fit_tell_each_other_no_errors(monkeypatch: pytest.MonkeyPatch, Xs: Any) -> None:
    """At the end every process told all others, without noise, the error, the size and the rows of each client."""
    told: list[str] = []
    real = Member.exchange

    def spy(self: Member, where: str, value: Any = None, **error: Any) -> list[Any]:
        if where not in ("sum", "gather"):
            told.append(f"{self.here} {where} {value!r}")
        return real(self, where, value, **error)

    monkeypatch.setattr(Member, "exchange", spy)
    seen, own = [], []
    for less in (0, 1):
        told.clear()
        parts = [Xs[0], Xs[1][less:]]
        model = FederatedNMF(2, privacy=Privacy(1.0, 1e-6), random_state=0)
        found = together(2, lambda e, m=model, X=parts: clone(m).set_params(engine=e).fit([X[e.team.here]]))
        own.append([one.reconstruction_err_ for one in found])
        seen.append(sorted(re.sub("clip=[0-9.]+, sigma=[0-9.]+", "", line) for line in told))
    assert seen[0] == seen[1]
    assert own[0][0] != own[0][1]
    assert np.isfinite(own).all()


def test_a_refusal_tells_no_values(Xs: Any) -> None:
    """What scikit-learn says of complex numbers ends with the numbers."""
    with pytest.raises(CofactorError, match="Complex data not supported") as caught:
        FederatedNMF(2, privacy=privacy(1.0, 1e-3)).fit([Xs[0] * (1 + 0j), *Xs[1:]])
    assert "[" not in str(caught.value)
    with pytest.raises(CofactorError, match="Complex data not supported") as caught:
        FederatedBMF(2, method="asso", privacy=BY_CLIENT).fit([Xs[0] * (1 + 0j), *Xs[1:]])
    assert "[" not in str(caught.value)
    assert caught.value.__suppress_context__


def merged_in_place(v: Any) -> Any:
    """Two columns made one, in a matrix that remembers that none of its cells is stored twice."""
    X = sparse.csr_matrix((v, [0, 1, 3], [0, 3]), shape=(1, 6))
    assert X.has_canonical_format
    X.indices[1] = 0
    return X


LAYOUTS = {
    "CSR, columns merged": merged_in_place,
    "CSR with a column twice": lambda v: sparse.csr_matrix((v, [3, 3, 0], [0, 3]), shape=(1, 6)),
    "CSC with a row twice": lambda v: sparse.csc_matrix((v, [0, 0, 0], [0, 3, 3, 3, 3, 3, 3]), shape=(1, 6)),
    "CSR, unsorted": lambda v: sparse.csr_matrix((v, [5, 2, 0], [0, 3]), shape=(1, 6)),
    "explicit zeros": lambda v: sparse.csr_matrix((v * [1, 0, -0.0], [0, 2, 5], [0, 3]), shape=(1, 6)),
    "float16": lambda v: np.pad(v, (0, 3))[None].astype(np.float16),
    "uint64": lambda v: np.pad(v, (0, 3))[None].astype(np.uint64) << 60,
    "bool": lambda v: np.pad(v, (0, 3))[None].astype(bool),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", [1.0, 7.0])
@pytest.mark.parametrize("bound", [None, 1.0])
def test_no_layout_lets_a_row_out_of_its_bound(layout: str, size: float, bound: float | None) -> None:
    """As the sum of one row is added up, and block by block: never longer than 1."""
    X = LAYOUTS[layout](size * np.ones(3))
    assert np.linalg.norm(bounded.total(X, bound).astype(float)) <= 1 + 1e-9
    assert max(np.linalg.norm(block, axis=1).max() for block in bounded.blocks(X, bound)) <= 1 + 1e-9


def test_columns_that_were_merged_in_place_are_their_sums() -> None:
    """scipy does not notice that indices were changed: a row had the norm 20, where 1 was paid for, and errors of fits
    without privacy were wrong."""
    X = sparse.csr_matrix(np.random.default_rng(0).random((30, 80)) ** 4)
    assert X.has_canonical_format
    X.indices[:] = X.indices % 8
    X.resize(30, 8)
    for row in X:
        (checked,) = kinds.check("real", [row], private=True)
        assert np.linalg.norm(bounded.total(checked, None)) == pytest.approx(1)
    assert X.nnz == 30 * 80  # as it was
    one, other = (FederatedNMF(2, random_state=0).fit([A]).reconstruction_err_ for A in (X, X.toarray()))
    assert one == pytest.approx(other, abs=1e-6)


def test_a_checkpoint_of_a_private_run_holds_released_values_only(tmp_path: Path, Xs: Any) -> None:
    released: list[Any] = []
    private = built("fedavg", privacy(8.0, 1e-3, "client"), rounds=3)
    whole = Checkpoint(tmp_path / "checkpoint.npz")
    run(private, Xs, checkpoint=whole, callbacks=[lambda line, shared: released.append(shared)])
    state = whole.load(Team())
    assert state is not None
    assert state.locals == []
    np.testing.assert_array_equal(state.shared.factor, released[-1].factor)
    with np.load(whole.path) as file:
        assert all(len(X) not in file[name].shape for name in file.files for X in Xs)


def test_a_private_run_goes_on_from_its_released_factor(tmp_path: Path, Xs: Any) -> None:
    private = built("fedavg", privacy(8.0, 1e-3, "client", insecure_seed=3), rounds=3)
    kept = Checkpoint(tmp_path / "checkpoint.npz")
    first = run(private, Xs, checkpoint=kept, callbacks=[lambda line, shared: line.round == 1])
    begun: list[int] = []
    rest = run(private, Xs, checkpoint=kept, begun=begun.append)
    assert (len(first.history), begun, [line.round for line in rest.history]) == (2, [2], [0, 1, 2])
    assert rest.epsilon == pytest.approx(8.0)


def test_a_file_without_names_is_refused_alike_whatever_its_rows(tmp_path: Path) -> None:
    """A first row of 0, 1, 2, 3 became names of features, and a file that lost its only row was refused alone."""
    said = set()
    for rows in ("", "1,2,3,4\n", "0,1,2,3\n1,2,3,4\n"):
        (tmp_path / "a.csv").write_text(rows)
        with pytest.raises(CofactorError) as refused:
            fit(Config([str(tmp_path / "a.csv")], 2, epsilon=1.0, delta=1e-6), tmp_path / "run")
        said.add(str(refused.value))
    assert len(said) == 1


def test_a_client_that_loses_its_only_row_keeps_its_features(tmp_path: Path) -> None:
    for j, rows in enumerate(("p1,1,2\n", "")):
        (tmp_path / "a.csv").write_text(f"patient,x,y\n{rows}")
        config = Config([str(tmp_path / "a.csv")], 2, epsilon=1.0, delta=1e-6, leave_out="patient")
        assert fit(config, tmp_path / f"run{j}").factor()[1] == ["x", "y"]


def test_what_runs_in_the_place_of_exact_is_said(tmp_path: Path, files: list[str], capsys: Any) -> None:
    private = {"epsilon": 1.0, "delta": 1e-6}
    for config in (Config(files, 3, **private), Config(files, 3, method="auto", **private)):
        assert config.why.startswith("dp-moments, in the place of exact: ")
    assert Config(files, 3, method="dp-moments", **private).why == Config(files, 3).why == ""
    model = FederatedNMF(3, privacy=privacy(1.0)).fit([np.load(file) for file in files])
    assert model.choice_.why == config.why
    announcer(Progress(quiet=False))(prepare(config, Place()))
    assert "Method dp-moments, in the place of exact" in capsys.readouterr().err.replace("\n", " ")
