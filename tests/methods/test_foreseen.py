"""What is said of a private run before it begins: from public facts alone, and only where noise is the larger."""

import re
import warnings

import numpy as np
import pytest
from tests.helpers.private import privacy

from cofactor import FederatedBMF, FederatedNMF
from cofactor.methods import catalog
from cofactor.methods.build import Facts, ready
from cofactor.plan import Plan
from cofactor.privacy.errors import PrivacyError


def said(name, *, clients=3, features=40, rows=None, **asked):
    facts = Facts(clients, features, rows)
    return ready(name, 4, Plan(privacy=privacy(**asked)), facts).foreseen


@pytest.mark.parametrize("name", [*catalog.names("boolean"), *catalog.names()[1:]])
def test_a_few_clients_cannot_be_seen_under_the_noise_of_whole_clients(name):
    """Whatever the method, and at epsilon 8 too; a hundred thousand of them can. ``exact`` says it in the end."""
    try:
        few = [said(name, epsilon=epsilon, unit="client") for epsilon in (1.0, 8.0)]
    except PrivacyError:
        return  # it has no private form
    for text in few:
        assert re.match(r"little can be expected to stand out of the noise: noise is .* More clients", text)
    assert said(name, epsilon=8.0, unit="client", clients=100_000) == ""


def test_rows_count_where_they_are_public_and_else_it_is_said_how_many_it_takes():
    text = said("dp-nmf", epsilon=1.0)
    least = int(re.search(r"from about ([\d,]+) rows", text)[1].replace(",", ""))
    assert said("dp-nmf", epsilon=1.0, rows=2 * least) == ""
    assert "coarse: noise is 1.3 times" in said("dp-nmf", epsilon=1.0, rows=int(least / 1.3))
    assert "More rows" in said("dp-nmf", epsilon=1.0, rows=least // 4)
    for own in ("dp-moments", "dp-range"):  # they find out by themselves, from what they have released
        assert said(own, epsilon=1.0) == ""


def test_runs_without_noise_have_none():
    facts = Facts(3, 40, 100)
    assert ready("exact", 4, Plan(), facts).foreseen == ""


def test_estimators_say_it_before_the_first_round(rng):
    """And what they say of fits of the same sizes is the same, whatever the rows hold."""

    def told(model, Xs):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            model.set_params(callbacks=[lambda line, shared: warnings.warn("round", stacklevel=1)]).fit(Xs)
        return [str(w.message) for w in found][:2]

    bits = [(rng.random((20, 12)) < 0.3).astype(int) for _ in range(3)]
    for Xs in (bits, [np.zeros_like(X) for X in bits]):
        model = FederatedBMF(2, method="asso", privacy=privacy(8.0, unit="client"), random_state=0)
        first, second = told(model, Xs)
        assert first.startswith("Mind that little can be expected to stand out of the noise")
        assert second == "round"
    numbers = FederatedNMF(2, method="dp-nmf", privacy=privacy(1.0), random_state=0)
    assert told(numbers, [rng.random((20, 12))])[0].startswith(
        "Mind that an average component is as large as the noise"
    )
