"""Hostile messages to a private run: each is refused by name, and nothing of the run has changed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from cofactor import run
from cofactor.methods import catalog
from cofactor.methods.raced import Raced
from cofactor.methods.staged import Staged
from cofactor.methods.wrapped import Wrapped
from cofactor.privacy.allowance import Privacy
from cofactor.privacy.errors import BudgetError, ParameterError, PrivacyError
from cofactor.types import ClientError

M = 6


def make(delta: float = 1e-6, rows: int | None = None) -> Any:
    return catalog.make("dp-moments", 2, privacy=Privacy(1, delta, rows=rows))


def three() -> list[np.ndarray]:
    return [np.random.default_rng(j).random((20 + j, M)) for j in range(3)]


@dataclass(frozen=True)
class Hostile(Wrapped):
    """A method whose client of 21 rows (client 1) sends something else in round 1."""

    change: Any

    def step(self, data, shared, local, t, rng):
        local, message = self.method.step(data, shared, local, t, rng)
        return local, self.change(message) if (data.shape[0], t) == (21, 1) else message


def moment(a):
    return lambda m: m._replace(arrays={"moment": a(m.arrays["moment"])})


def cheap(m):
    return m._replace(cost={n: r._replace(cost=replace(r.cost, multiplier=9.0)) for n, r in m.cost.items()})


SENT = {
    "NaN": (moment(lambda a: np.where(np.arange(a.size) == 3, np.nan, a)), "found 1 NaN or infinite"),
    "infinite": (moment(lambda a: a + np.inf), "NaN or infinite"),
    "too long": (moment(lambda a: np.append(a, 0.0)), "of shape"),
    "truncated": (moment(lambda a: a[:-1]), "of shape"),
    "another array": (lambda m: m._replace(arrays={"rows": np.zeros((4, M))}), "expected arrays"),
    "an array more": (lambda m: m._replace(arrays={**m.arrays, "loss": np.float64(0)}), "expected arrays"),
    "negative weight": (lambda m: m._replace(weight=-1.0), "weight >= 0"),
    "no weight": (lambda m: m._replace(weight=np.nan), "weight >= 0"),
    "no cost": (lambda m: m._replace(cost={}), "expected the costs"),
    "a cost too small": (cheap, "expected the costs"),
}


@pytest.mark.parametrize("name", SENT)
def test_a_hostile_message_ends_the_run_before_it_counts(name: str) -> None:
    change, words = SENT[name]
    seen = []
    with pytest.raises(ClientError, match="client 1, round 1") as caught:
        run(Hostile(make(), change), three(), callbacks=[lambda line, shared: seen.append(line)])
    assert words in str(caught.value)
    assert [line.round for line in seen] == [0]
    assert 0 < seen[0].epsilon < 1


def test_a_replayed_round_is_refused() -> None:
    kept = []
    run(make(), three(), watch=lambda t, answers: kept.append(answers[1].message))
    with pytest.raises(ClientError, match="expected arrays"):
        run(Hostile(make(), lambda m: kept[0]), three())


def test_an_allowance_over_its_budget_and_a_large_delta_are_refused_before_anything_is_sent() -> None:
    def watch(t, answers):
        pytest.fail("a message was sent")

    method = make()
    object.__setattr__(method.allowance, "multiplier", 0.5)  # noise that was not calibrated
    with pytest.raises(BudgetError, match="the budget is epsilon = 1"):
        run(method, three(), watch=watch)
    with pytest.raises(ParameterError, match="below 1/n"):
        run(make(0.1, rows=63), three(), watch=watch)


def test_the_delta_is_held_against_public_rows_alone() -> None:
    """What is counted would be a release: a budget that declares no rows has none, however many there are."""
    run(make(0.1), three())
    run(make(0.1, rows=9), three())
    with pytest.raises(ParameterError, match=r"below 1/n = 0\.0909"):
        run(make(0.1, rows=11), three())


def test_the_history_says_what_was_spent_after_every_round() -> None:
    outcome = run(make(), three())
    spent = [line.epsilon for line in outcome.history]
    assert spent[0] < spent[1]
    assert spent[1] == pytest.approx(1, rel=1e-9)
    assert outcome.epsilon == spent[1]
    plain = run(catalog.make("exact", 2, start="random"), three(), rounds=2)
    assert all(np.isnan(line.epsilon) for line in plain.history)


def test_what_has_no_price_is_refused_before_it_leaves():
    """A race of two starts was charged as one: each of its sums left twice, with noise of its own."""
    private, plain = make(), catalog.make("exact", 2, start="random")
    for method in (Raced(private, 2, rounds=2), Staged(plain, 1, private), Staged(private, 2, private)):
        with pytest.raises(PrivacyError, match="as its budget has a price for"):
            run(method, three(), watch=lambda t, answers: pytest.fail("a message has left"))
