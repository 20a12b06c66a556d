"""What a run repeats on a device is recorded once and replayed; where there is no CUDA, a stand-in replays it."""

import gc

import numpy as np
import pytest

from cofactor.engines.inline import Inline
from cofactor.engines.loop import run
from cofactor.local import graphs
from cofactor.local.placed import Placed, placed, to_host
from cofactor.methods import catalog

torch = pytest.importorskip("torch")
CPU = torch.device("cpu")
rng = np.random.default_rng(0)
H = rng.uniform(size=(4, 30)) ** 3
XS = [rng.uniform(size=(n, 4)) ** 3 @ H + 0.01 * rng.uniform(size=(n, 30)) for n in (40, 60, 30)]


@pytest.fixture
def records(monkeypatch):
    """Record on this CPU: a replay does the work once more, on the graph's own buffers."""
    made = []

    def recorded(work, device):
        found = work()
        made.append(device)
        return lambda: [own.copy_(new) for own, new in zip(found, work(), strict=True)], found

    monkeypatch.setattr(graphs, "recorded", recorded)
    monkeypatch.setattr(graphs, "_can", lambda a: isinstance(a, Placed | int | float))
    return made


def scaled(a, number):
    return a * number, a + 1


def test_a_replay_sees_what_is_given_now_and_its_answers_stay(records):
    with graphs.kept():
        given = [(placed(np.full((2, 3), float(i)), CPU), 0.5 * i) for i in range(5)]
        found = [graphs.replayed(scaled, None, "scaled", *pair) for pair in given]
        graphs.replayed(scaled, None, "scaled", placed(np.ones((4, 3)), CPU), 2.0)  # another form
        graphs.replayed(scaled, None, "other", *given[0])
    assert len(records) == 1
    for i, (product, more) in enumerate(found):
        np.testing.assert_array_equal(to_host(product), np.full((2, 3), 0.5 * i * i))
        np.testing.assert_array_equal(to_host(more), np.full((2, 3), i + 1.0))


def test_outside_a_run_and_in_memory_nothing_is_recorded(records):
    a = placed(np.ones(3), CPU)
    for _ in range(3):
        graphs.replayed(scaled, None, "scaled", a, 2.0)
    with graphs.kept():
        for _ in range(3):
            graphs.replayed(scaled, None, "scaled", np.ones(3), 2.0)
    assert records == []


def test_graphs_go_with_their_data(records):
    class Rows:
        pass

    data, a = Rows(), placed(np.ones(3), CPU)
    with graphs.kept():
        for _ in range(3):
            graphs.replayed(scaled, data, "scaled", a, 2.0)
        known = graphs._kept.get().of_data
        assert len(known) == len(records) == 1
        del data
        gc.collect()
        assert len(known) == 0


@pytest.mark.parametrize(
    ("name", "options", "how"),
    [
        ("exact", {"start": "random"}, {}),
        ("exact", {}, {}),
        ("exact", {"start": "random"}, {"participation": 0.7}),
        ("fedprox", {}, {"rounds": 2}),
        ("felb", {"rounds": 5}, {}),
        ("boolean-exact", {"rounds": 5}, {}),
    ],
)
def test_rounds_with_graphs_are_those_without(request, name, options, how):
    method, there = catalog.make(name, 4, **options), Inline(device="cpu")
    data = [(X > 0.3).astype(np.float32) for X in XS] if method.traits.kind == "boolean" else XS
    how = {"rounds": options.get("rounds", 12), **how}
    without = run(method, data, engine=there, **how)
    made = request.getfixturevalue("records")
    found = run(method, data, engine=there, **how)
    assert len(made) >= 1
    np.testing.assert_array_equal(found.factor, without.factor)
    for a, b in zip(found.codes, without.codes, strict=True):
        np.testing.assert_array_equal(a, b)
    assert [line.loss for line in found.history] == [line.loss for line in without.history]
