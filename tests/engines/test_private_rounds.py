"""Hostile messages to a private run: each is refused by name, and nothing of the run has changed."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from cofactor import run
from cofactor.engines.inline import Inline
from cofactor.engines.rounds import Reply
from cofactor.methods import catalog
from cofactor.privacy.errors import BudgetError, ParameterError
from cofactor.privacy.plan import Privacy
from cofactor.types import ClientError

M = 6


def make(**more: Any) -> Any:
    privacy = Privacy(1, 1e-6, **more)
    return catalog.make_for("dp-moments", 2, {}, privacy=privacy, participants=3, rounds=2)


@dataclass(frozen=True)
class Hostile:
    """The inline engine with one client that sends something else in round 1."""

    change: Any

    @contextmanager
    def open(self, method, Xs, seed):
        with Inline().open(method, Xs, seed) as session:
            honest = session.round

            def round(shared, t, participants):
                replies = honest(shared, t, participants)
                if t == 1:
                    replies[1] = Reply(replies[1].clients, self.change(replies[1].message))
                return replies

            session.round = round
            yield session


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
    Xs = [np.random.default_rng(j).random((20 + j, M)) for j in range(3)]
    seen = []
    with pytest.raises(ClientError, match="client 1, round 1") as caught:
        run(make(), Xs, engine=Hostile(change), callbacks=[lambda line, shared: seen.append(line)])
    assert words in str(caught.value)
    assert [line.round for line in seen] == [0]
    assert 0 < seen[0].epsilon < 1


def test_a_replayed_round_is_refused() -> None:
    Xs = [np.random.default_rng(j).random((20 + j, M)) for j in range(3)]
    kept = []
    run(make(), Xs, watch=lambda t, replies: kept.append(replies[1].message))
    with pytest.raises(ClientError, match="expected arrays"):
        run(make(), Xs, engine=Hostile(lambda m: kept[0]))


def test_a_plan_over_its_budget_and_a_large_delta_are_refused_before_anything_is_sent() -> None:
    Xs = [np.random.default_rng(j).random((20 + j, M)) for j in range(3)]
    sent = []
    watch = lambda t, replies: sent.append(t)  # noqa: E731
    method = make()
    object.__setattr__(method.plan, "multiplier", 0.5)  # a plan that was not calibrated
    with pytest.raises(BudgetError, match="the budget is epsilon = 1"):
        run(method, Xs, watch=watch)
    wide = catalog.make_for("dp-moments", 2, {}, privacy=Privacy(1, 0.1), participants=3, rounds=2)
    with pytest.raises(ParameterError, match="below 1/n"):
        run(wide, Xs, watch=watch)
    assert sent == []


def test_the_history_says_what_was_spent_after_every_round() -> None:
    Xs = [np.random.default_rng(j).random((20 + j, M)) for j in range(3)]
    outcome = run(make(), Xs)
    spent = [line.epsilon for line in outcome.history]
    assert spent[0] < spent[1]
    assert spent[1] == pytest.approx(1, rel=1e-9)
    assert outcome.epsilon == spent[1]
    plain = run(catalog.make("exact", 2, start="random"), Xs, rounds=2)
    assert all(np.isnan(line.epsilon) for line in plain.history)
