"""What a fit says in the end."""

import re
import warnings

import numpy as np
import pytest

from cofactor import FederatedNMF
from cofactor.jobs.config import Config
from cofactor.jobs.job import fit
from cofactor.jobs.judge import remarks

SHORT = r"lients with fewer than 12 rows, twice the components: 2\. .*'exact'"


@pytest.fixture
def clients(rng):
    patterns = rng.gamma(0.5, size=(6, 40))
    return [rng.gamma(0.5, size=(n, 6)) @ patterns + 0.01 * rng.random((n, 40)) for n in (8, 11, 12, 30)]


def test_one_upload_says_that_clients_are_too_small_for_the_rank(clients):
    with pytest.warns(UserWarning, match=SHORT):
        FederatedNMF(6, method="oneshot", random_state=0).fit(clients)


def test_more_rounds_and_fewer_components_have_nothing_to_say(clients):
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="clients with fewer")
        FederatedNMF(6, random_state=0).fit(clients)
        FederatedNMF(4, method="oneshot", random_state=0).fit(clients)


def test_a_run_says_it_too(clients, tmp_path):
    for j, X in enumerate(clients):
        np.save(tmp_path / f"c{j}.npy", X)
    sources = [str(tmp_path / f"c{j}.npy") for j in range(4)]
    found = fit(Config(sources, rank=6, method="oneshot"), tmp_path / "run")
    assert any(re.search(SHORT, text) for text in remarks(found.evaluation()))
