"""What private runs cost: what was asked for, before anything is released, and on record."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from tests.helpers.private import built, every_form, messages_of, mixtures, moments, privacy

from cofactor import FederatedNMF, run
from cofactor.methods.client_level import ClientLevel
from cofactor.methods.dp_nmf import dp_nmf
from cofactor.methods.moments import Moments
from cofactor.privacy.allowance import Allowance, Parts
from cofactor.privacy.errors import BudgetError, OutOfRangeError, ParameterError
from cofactor.types import ClientError


@pytest.fixture
def Xs(rng):
    return mixtures(rng)


@pytest.mark.parametrize("name", list(every_form(1.0, "client")))
@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_a_run_costs_what_was_asked_for(name, epsilon, Xs):
    method = every_form(epsilon, "client")[name]
    method = replace(method, allowance=replace(method.allowance, privacy=privacy(epsilon, 1e-3, "client")))
    outcome = run(method, Xs)
    assert np.isclose(outcome.epsilon, epsilon, rtol=1e-9)
    spend = outcome.ledger.spend()
    assert (str(spend.unit), spend.relation, spend.delta, spend.private) == ("client", "zero out one", 1e-3, True)


def test_fewer_rounds_cost_less(Xs):
    method = dp_nmf(3, privacy=privacy(2.0), rounds=4)
    assert run(method, Xs, rounds=1).epsilon < 1.1


def test_secure_sums_are_accounted_exactly_and_carry_the_whole_noise_once(Xs):
    model = FederatedNMF(3, privacy=privacy(2.0), secure=True).fit(Xs)
    assert model.ledger_.spend().accountant == "exact Gaussian"
    assert np.isclose(model.epsilon_, 2.0, rtol=1e-9)


def test_noise_of_a_threshold_of_clients_adds_up_to_the_whole():
    allowance = Allowance(privacy(1.0), ({"a": 1.0},), parts=Parts(3, 3))
    noise = [allowance.release(0, {"a": np.zeros(20_000)}, {"a": 1.0}, None).arrays["a"] for _ in range(3)]
    assert np.isclose(np.std(sum(noise)), allowance.multiplier, rtol=0.03)


@dataclass(frozen=True)
class Overdrawn(Allowance):
    """Half of the noise that its budget needs."""

    def costs(self, t):
        return {name: replace(cost, multiplier=cost.multiplier / 2) for name, cost in super().costs(t).items()}


def test_a_budget_that_would_be_exceeded_stops_before_the_round(Xs):
    method = moments(privacy())
    overdrawn = replace(method, allowance=Overdrawn(method.allowance.privacy, method.allowance.shares))
    seen = []
    with pytest.raises(BudgetError, match="the budget is epsilon = 1"):
        run(overdrawn, Xs, watch=lambda t, answers: seen.append(t))
    assert not seen


@dataclass(frozen=True)
class Forgetful(Moments):
    """A client that forgets to pay."""

    def step(self, data, shared, local, t, rng):
        local, message = super().step(data, shared, local, t, rng)
        return local, message._replace(cost={})


def test_a_message_that_has_not_paid_is_refused(Xs):
    method = moments(privacy())
    with pytest.raises(ClientError, match="client 0, round 0: expected the costs"):
        run(Forgetful(3, method.allowance, method.factorize), Xs)


def test_a_client_that_clips_nothing_is_refused_before_its_message_leaves(Xs):
    method = built("fedavg", privacy(8.0, 0.1, "client"))
    seen = []
    with pytest.raises(OutOfRangeError, match="a message clipped to norm 1 was expected"):
        run(Unclipped(method.method, method.allowance), Xs, watch=lambda t, answers: seen.append(t))
    assert not seen


@dataclass(frozen=True)
class Unclipped(ClientLevel):
    """A client that sends its factor as it is."""

    def step(self, data, shared, local, t, rng):
        local, message = self.method.step(data, shared, local, t, rng)
        return local, self.allowance.release(t, {"factor": message.arrays["factor"]}, {"factor": self.bound}, rng)


def test_a_seed_for_the_noise_is_on_record(Xs):
    first, again, other = (
        FederatedNMF(3, random_state=0, privacy=privacy(insecure_seed=seed)).fit(Xs) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first.components_, again.components_)
    assert np.abs(first.components_ - other.components_).max() > 1e-3
    assert not first.ledger_.spend().private
    assert "private: no" in str(first.ledger_.spend())


def test_noise_differs_between_clients_even_with_an_insecure_seed(Xs):
    (_, one), (_, other), *_ = messages_of(moments(privacy(insecure_seed=1)), [Xs[0], Xs[0].copy()], rounds=1)
    assert np.abs(one.arrays["sum"] - other.arrays["sum"]).max() > 1e-3


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        ({"epsilon": 0.0}, "epsilon must be positive"),
        ({"epsilon": -1.0}, "epsilon must be positive"),
        ({"epsilon": np.inf}, "epsilon must be positive"),
        ({"delta": 0.0}, "delta must be in"),
        ({"delta": 1.0}, "delta must be in"),
        ({"unit": "cell"}, "unit must be"),
        ({"unit": "patient"}, "unit must be"),
        ({"clip": 0.0}, "clip must be positive"),
    ],
)
def test_nonsense_is_refused_by_name(bad, word):
    with pytest.raises(ParameterError, match=word):
        privacy(**bad)


def test_delta_above_one_in_n_is_refused_before_anything_is_released(Xs):
    seen, n = [], sum(map(len, Xs))
    with pytest.raises(ParameterError, match="delta must be below 1/n"):
        run(moments(privacy(delta=0.01, rows=n)), Xs, watch=lambda t, r: seen.append(t))
    assert not seen
    run(moments(privacy(delta=0.01)), Xs)  # nothing is counted that was not declared public


def test_the_number_of_clients_is_public(Xs):
    with pytest.raises(ParameterError, match=r"delta must be below 1/n = 0\.25"):
        run(moments(privacy(delta=0.25, unit="client")), Xs)
