"""A federation of real processes with real certificates on loopback: one server, four clients, many runs."""

import numpy as np
import pytest
from tests.helpers.federation import Real, blocks

from cofactor import run
from cofactor.methods.build import Facts, build
from cofactor.plan import Plan

pytest.importorskip("nvflare")


@pytest.fixture(scope="module")
def data():
    return blocks((40, 30, 50, 35), features=24, rank=3, seed=3)


@pytest.fixture(scope="module")
def real(tmp_path_factory, data):
    federation = Real(tmp_path_factory.mktemp("federation"), data)
    try:
        federation.serve()
        for name in federation.names:
            federation.join(name)
        federation.wait_for_clients()
        yield federation
    finally:
        federation.close()


def inline(data, name, rank=3, *, secure=False, **settings):
    """Return what the inline engine finds for the same settings."""
    plan = Plan(settings.get("rounds"), seed=settings.get("seed", 0), secure=secure)
    method, plan = build(name, rank, plan, Facts(len(data), data[0].shape[1], sum(len(X) for X in data)))
    return run(method, data, plan)


def factor_of(folder):
    with np.load(folder / "factor.npz") as file:
        return file["factor"]


@pytest.mark.parametrize("name", ["exact", "oneshot", "fnmf-lap", "fedavg"])
def test_the_factor_is_that_of_the_inline_engine(real, data, name):
    folder = real.fit(f"run-{name}", rank=3, method=name, rounds=10, tol=0.0, seed=2)
    here = inline(data, name, rounds=10, seed=2)
    assert np.abs(factor_of(folder) - here.factor).max() <= 1e-6
    assert len((folder / "history.jsonl").read_text().splitlines()) == len(here.history)
    assert (folder / "report.html").exists()


def test_secure_sums_over_the_network(real, data):
    folder = real.fit("run-secure", rank=3, method="exact", rounds=6, tol=0.0, seed=2, secure=True)
    assert np.abs(factor_of(folder) - inline(data, "exact", rounds=6, seed=2, secure=True).factor).max() <= 1e-5
