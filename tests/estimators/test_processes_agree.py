"""Fits of several processes: each gives its own clients, and what they agree on is what one process would know."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from tests.helpers.teams import together

from cofactor import FederatedMF, FederatedNMF, Privacy
from cofactor.types import CofactorError

Rows = list[Any]


@pytest.fixture
def parts(rng: np.random.Generator) -> Rows:
    return [rng.random((n, 3)) @ rng.random((3, 140)) + 0.01 for n in (6, 25)]


@pytest.mark.parametrize(
    "how",
    [{"n_components": 3}, {}, {"n_components": 3, "participation": 0.5, "rounds": 8}, {"method": "auto"}],
    ids=["several clients", "default rank", "participation", "auto"],
)
def test_a_fit_of_two_processes_is_that_of_one(parts: Rows, how: dict[str, Any]) -> None:
    """Each made a method for its own client alone: of one client, of fewer rows, with other participants."""
    here = FederatedNMF(random_state=0, **how).fit(parts)
    for there in together(2, lambda e: FederatedNMF(random_state=0, engine=e, **how).fit([parts[e.team.here]])):
        assert there.n_rounds_ == here.n_rounds_
        np.testing.assert_allclose(there.components_, here.components_, rtol=1e-8, atol=1e-12)
        assert there.reconstruction_err_ == pytest.approx(here.reconstruction_err_)


def test_processes_without_a_seed_draw_one(parts: Rows) -> None:
    models = together(
        2, lambda e: FederatedNMF(3, method="fedavg", rounds=3, tol=0, engine=e).fit([parts[e.team.here]])
    )
    np.testing.assert_array_equal(models[0].components_, models[1].components_)


def test_features_are_matched_over_all_processes(rng: np.random.Generator) -> None:
    """Column 0 of one process was the same component as column 0 of another, whatever they were called."""
    whole = pd.DataFrame(rng.random((40, 4)), columns=list("abcd"))
    frames = [whole[:20], whole[20:][list("dcba")]]
    here = FederatedNMF(2, random_state=0).fit(frames)
    for there in together(2, lambda e: FederatedNMF(2, random_state=0, engine=e).fit([frames[e.team.here]])):
        np.testing.assert_allclose(there.components_, here.components_, rtol=1e-8)
        assert list(there.feature_names_in_) == list("abcd")
    other = [whole[:20], whole[20:].rename(columns={"d": "e"})]
    with pytest.raises(CofactorError, match=r"client 1: expected the features of client 0, found missing 'd'"):
        together(2, lambda e: FederatedNMF(2, random_state=0, engine=e).fit([other[e.team.here]]))


@pytest.mark.parametrize(("how", "m"), [("intersection", 3), ("union", 5)])
def test_features_that_differ_are_matched_over_all_processes(rng: np.random.Generator, how: str, m: int) -> None:
    whole = pd.DataFrame(rng.random((40, 4)), columns=list("abcd"))
    frames = [whole[:20], whole[20:].rename(columns={"d": "e"})]
    models = together(2, lambda e: FederatedNMF(2, features=how, random_state=0, engine=e).fit([frames[e.team.here]]))
    assert [model.components_.shape for model in models] == [(2, m)] * 2


@pytest.mark.parametrize("spoil", [np.nan, -1.0])
def test_what_one_process_refuses_ends_all(parts: Rows, spoil: float) -> None:
    """The others waited for ever."""
    parts[1][2, 5] = spoil
    with pytest.raises(CofactorError, match=r"process 1: client 1: .*row 3, column 6|process 1: client 1: .*row 2"):
        together(2, lambda e: FederatedNMF(3, random_state=0, engine=e).fit([parts[e.team.here]]))


def test_names_in_another_order_at_one_process_end_all(parts: Rows) -> None:
    """What is given beside data is looked at where the others hear of it."""
    frames = [pd.DataFrame(X, index=[f"patient{i}" for i in range(len(X))]) for X in parts]
    weights = [pd.Series(np.ones(len(X)), index=X.index) for X in frames]
    weights[1] = weights[1][::-1]

    def go(engine: Any) -> None:
        here = engine.team.here
        FederatedNMF(3, random_state=0, engine=engine).fit([frames[here]], sample_weight=[weights[here]])

    with pytest.raises(CofactorError, match="process 1: sample_weight: expected the rows in the order of X"):
        together(2, go)


def test_of_a_private_fit_processes_hear_nothing_of_what_was_found(parts: Rows) -> None:
    frames = [pd.DataFrame(X[:, :4]) for X in parts]
    frames[1]["secret"] = "text"
    privacy = Privacy(1.0, 1e-6)
    heard = []

    def go(engine: Any) -> None:
        try:
            FederatedNMF(2, privacy=privacy, engine=engine).fit([frames[engine.team.here]])
        except CofactorError as error:
            heard.append((engine.team.here, str(error)))

    together(2, go)
    assert len(heard) == 2
    assert "secret" not in dict(heard)[0]


def test_items_are_matched_by_name_over_all_processes(rng: np.random.Generator) -> None:
    """Items were columns of each process's own: two of different names were one where they stood at one place."""
    users = [f"u{n:02d}" for n in range(24)]
    triples = [
        (np.repeat(users[:12], 3), np.tile(["a", "b", "c"], 12), rng.integers(1, 6, 36).astype(float)),
        (np.repeat(users[12:], 3), np.tile(["b", "c", "d"], 12), rng.integers(1, 6, 36).astype(float)),
    ]
    whole = tuple(np.concatenate(lists) for lists in zip(*triples))
    here = FederatedMF(2, ridge=0.5, random_state=0).fit(whole, groups=[0] * 12 + [1] * 12)
    for there in together(2, lambda e: FederatedMF(2, ridge=0.5, random_state=0, engine=e).fit(triples[e.team.here])):
        assert there.items_.tolist() == list("abcd")
        np.testing.assert_allclose(there.factor_, here.factor_, rtol=1e-6, atol=1e-9)
    R = sparse.csr_matrix(rng.integers(1, 6, (12, 3)).astype(float))
    with pytest.raises(CofactorError, match=r"process 1: expected triples like process 0, found a matrix of 3 items"):
        together(2, lambda e: FederatedMF(2, engine=e).fit(R if e.team.here else triples[0]))
    with pytest.raises(CofactorError, match=r"process 1: expected a matrix of 3 items like process 0, found .* of 2"):
        together(2, lambda e: FederatedMF(2, engine=e).fit(R[:, :2] if e.team.here else R))
