"""First one method, then another: the same as two runs one after the other, wherever it is cut or looked at."""

import numpy as np
import pytest
from tests.helpers.methods import FEATURES, RANK, case, data, factor_fits, same_bits

from cofactor import run
from cofactor.engines.checkpoint import Checkpoint
from cofactor.methods import catalog
from cofactor.methods.boolean_sweeps import Sweeps
from cofactor.methods.refusals import START, no_private
from cofactor.methods.staged import Staged
from cofactor.methods.summed import Summed
from cofactor.plan import Stop
from cofactor.privacy.allowance import WHOLE, Privacy
from cofactor.privacy.errors import PrivacyError
from cofactor.types import CofactorError
from cofactor_papers.felb_noise import PaperNoise

LENGTH = 3


def make(name, **options):
    return catalog.make(name, RANK, **options)


FIRST = {
    "fedavg": make("fedavg", sweeps=5),
    "fedmavg": make("fedmavg"),
    "fnmf-lap": make("fnmf-lap", sweeps=5),
    "statistics": Summed(RANK),
    "aligned uploads": make("exact", start="lap").first,
    "syn-ssd-uv": make("syn-ssd-uv"),
}
THEN = {
    "statistics": Summed(RANK),
    "plain statistics": Summed(RANK, momentum=0.0),
    "fedavg": make("fedavg", sweeps=5, common_start=True),
    "fedprox": make("fedprox", sweeps=5),
    "fnmf-lap": make("fnmf-lap", sweeps=5, common_start=True),
    "fedmavg": make("fedmavg"),
    "fedmgs": make("fedmgs"),
    "syn-sd": make("syn-sd"),
}
"""Methods that take a public start and draw nothing in their steps: rounds, and so seeds, have other numbers here."""


def last_factor(method, Xs, rounds):
    """Return the factor that is broadcast after so many rounds."""
    seen = []
    run(method, Xs, rounds=rounds, callbacks=[lambda line, shared: seen.append(shared.factor)])
    assert len(seen) == rounds
    return seen[-1]


def two_runs(method, Xs, rounds, **more):
    """Return the second of two runs, from where the first ends."""
    begin = last_factor(method.first, Xs, method.length)
    return run(method.then, Xs, rounds=rounds - method.length, start=begin, **more)


def assert_second_stage_is(staged, second, length):
    np.testing.assert_array_equal(staged.factor, second.factor)
    for V, W in zip(staged.codes, second.codes, strict=True):
        np.testing.assert_array_equal(V, W)
    later = staged.history[length:]
    assert [line.loss for line in later] == [line.loss for line in second.history]
    assert [(line.bytes_up, line.bytes_down) for line in later] == [(r.bytes_up, r.bytes_down) for r in second.history]


@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("then", THEN)
def test_two_stages_are_two_runs_the_second_from_the_factor_of_the_first(first, then, clients):
    method = Staged(FIRST[first], LENGTH, THEN[then])
    staged, before = run(method, clients, rounds=8), run(FIRST[first], clients, rounds=LENGTH)
    assert_second_stage_is(staged, two_runs(method, clients, 8), LENGTH)
    assert [line.loss for line in staged.history[:LENGTH]] == [line.loss for line in before.history]


OTHERS = {
    "boolean": (make("felb", align=None, rounds=LENGTH), Sweeps(RANK, 4)),
    "boolean, relaxed": (make("boolean-exact", rounds=LENGTH), make("boolean-exact", rounds=6)),
    "ratings": (make("masked-fedmavg", biases=False), make("exact-als", biases=False)),
    "clusters": (make("k-means"), make("simplex").then),
}


@pytest.mark.parametrize("name", OTHERS)
def test_so_it_is_for_every_kind(name):
    method, Xs = Staged(OTHERS[name][0], LENGTH, OTHERS[name][1]), data(name.split(",")[0])
    assert method.traits.kind == name.split(",")[0]
    begin = last_factor(method.first, Xs, LENGTH)
    staged = run(method, Xs, rounds=LENGTH + 4)
    if begin.min() < 0:  # a public start is >= 0, which centres and items need not be
        np.testing.assert_array_equal(staged.factor, by_hand(method.then, Xs, begin, 4))
    else:
        assert_second_stage_is(staged, run(method.then, Xs, rounds=4, start=begin), LENGTH)


def by_hand(method, Xs, begin, rounds):
    rng = np.random.default_rng(0)  # nothing is drawn
    shared = method.start(FEATURES, rng, begin)
    states = [method.join(X, shared.broadcast(), 0, rng) for X in Xs]
    for t in range(rounds):
        answers = [method.step(X, shared.broadcast(), local, t, rng) for X, local in zip(Xs, states, strict=True)]
        states = [local for local, _ in answers]
        shared = method.aggregate(shared, [message for _, message in answers], t)
    return method.factor(shared)


def three():
    """Return both ways to put three methods one after the other: two rounds, three, and the rest."""
    a, b, c = FIRST["fedavg"], THEN["fedmavg"], THEN["statistics"]
    return Staged(Staged(a, 2, b), 5, c), Staged(a, 2, Staged(b, 3, c))


@pytest.mark.parametrize("participation", [1.0, 0.6])
def test_brackets_do_not_matter(participation, clients):
    left, right = three()
    assert left.traits == right.traits
    assert left.rounds == right.rounds
    same_bits(*(run(method, clients, rounds=9, participation=participation) for method in (left, right)))
    begin = last_factor(left.first, clients, 5)
    assert_second_stage_is(run(left, clients, rounds=9), run(left.then, clients, rounds=4, start=begin), 5)


def test_traits_say_what_holds_in_all_stages():
    alone, sums, aligned, waits = make("oneshot"), Summed(RANK), make("fnmf-lap"), make("syn-ssd-u")

    def of(trait, *pairs):
        return [getattr(Staged(a, 2, b).traits, trait) for a, b in pairs]

    assert three()[0].traits.stages == (0, 2, 5)
    assert of("additive", (sums, sums), (sums, aligned), (alone, sums)) == [True, False, False]
    assert of("rowwise", (sums, sums), (alone, sums), (sums, alone)) == [0, 2, None]
    assert Staged(alone, 1, Staged(aligned, 2, sums)).traits.rowwise == 3
    assert of("complete", (sums, waits), (waits, sums), (sums, sums)) == [True, True, False]
    assert of("own", (alone, sums), (sums, alone)) == [True, False]
    assert Staged(sums, 2, sums).partial().traits.running
    assert not Staged(sums, 2, sums).traits.running
    assert not Staged(make("asyn-sd"), 2, make("asyn-sd")).traits.streams
    assert Staged(make("k-means"), 1, make("fedmavg")).traits.kind == "clusters"
    cut = Staged(make("k-means"), 1, sums)
    assert cut.traits.stages == (0, 1), "the second stage of the first method is never reached"


def test_rounds_are_those_of_both_if_the_second_has_its_own():
    assert Staged(Summed(RANK), 4, Sweeps(RANK, 3)).rounds == 7
    assert Staged(make("oneshot"), 1, Summed(RANK)).rounds is None
    assert Staged(make("oneshot", local_rank=5), 1, Summed(RANK)).rank == RANK


@pytest.mark.parametrize("length", [0, -1])
def test_the_first_stage_has_a_round(length):
    with pytest.raises(CofactorError, match=f"length: expected at least one round of the first method. Found {length}"):
        Staged(Summed(RANK), length, Summed(RANK))


@pytest.mark.parametrize(
    ("name", "options", "stages"),
    [
        ("exact", {}, [0, 1, 1, 1, 1, 1]),
        ("exact", {"start": "moments"}, [0, 0, 1, 1, 1, 1]),
        ("exact", {"start": "lap"}, [0, 0, 0, 1, 1, 1]),
        ("exact", {"start": "random"}, [0, 0, 0, 0, 0, 0]),
        ("felb", {"rounds": 6, "sweeps": 2}, [0, 0, 0, 0, 1, 1]),
        ("asso", {"sweeps": 3}, [0, 1, 1, 1]),
        ("simplex", {}, [0, 1, 1, 1, 1, 1]),
        ("k-means", {}, [0, 1, 1, 1, 1, 1]),
        ("exact-als", {}, [0, 1, 1, 1, 1, 1]),
        ("exact-als", {"biases": False}, [0, 0, 0, 0, 0, 0]),
    ],
)
def test_the_history_says_which_stage_a_round_belongs_to(name, options, stages):
    _, method, Xs = case(name, **options)
    assert [line.stage for line in run(method, Xs, rounds=6).history] == stages


@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("rule", [Stop(1e-3), Stop(1e-2, patience=1)])
def test_a_stop_rule_reads_the_losses_of_the_last_stage_alone(first, rule, clients):
    method = Staged(FIRST[first], LENGTH, Summed(RANK))
    staged, second = run(method, clients, rounds=100, stop=rule), two_runs(method, clients, 100, stop=rule)
    assert_second_stage_is(staged, second, LENGTH)
    assert LENGTH < len(staged.history) < 100
    assert staged.converged


def test_a_first_stage_that_has_stalled_is_carried_to_its_end(clients):
    rule = Stop(1e-2)
    assert len(run(Summed(RANK), clients, rounds=60, stop=rule).history) < 40
    history = run(Staged(Summed(RANK), 40, THEN["fedavg"]), clients, rounds=60, stop=rule).history
    assert sum(line.stage == 0 for line in history) == 40
    assert len(history) > 40 + rule.patience


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_a_run_that_ends_in_the_first_stage_has_its_factor_in_the_form_of_the_second(rounds, clients):
    first = FIRST["fedmavg"]
    staged, alone = (run(m, clients, rounds=rounds) for m in (Staged(first, 3, Summed(RANK)), first))
    np.testing.assert_allclose(staged.factor, alone.factor, rtol=1e-12)
    assert not staged.converged
    _, method, bits = case("felb", rounds=8, sweeps=4)
    factor_fits("boolean", run(method, bits, rounds=rounds).factor)


class Cut(Exception):
    """The power fails."""


@pytest.mark.parametrize("after", [LENGTH - 1, LENGTH, LENGTH + 1])
@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize("first", FIRST)
def test_a_run_goes_on_bit_for_bit_on_either_side_of_the_border(first, participation, after, tmp_path, clients):
    method = Staged(FIRST[first], LENGTH, Summed(RANK))
    plan = {"rounds": 7, "seed": 2, "participation": participation}
    file = Checkpoint(tmp_path / "checkpoint.npz")

    def cut(line, shared):
        if line.round + 1 == after:
            raise Cut

    with pytest.raises(Cut):
        run(method, clients, checkpoint=file, callbacks=[cut], **plan)
    same_bits(run(method, clients, checkpoint=file, **plan), run(method, clients, **plan))


def test_clients_join_each_stage_once_whether_they_were_there_or_not(clients):
    joined, stepped = [], []

    class Watched(Staged):
        def join(self, data, shared, t, rng):
            joined.append((t, len(data)))
            return super().join(data, shared, t, rng)

        def step(self, data, shared, local, t, rng):
            stepped.append((t, len(data)))
            return super().step(data, shared, local, t, rng)

    run(Watched(FIRST["fedavg"], LENGTH, Summed(RANK)), clients, rounds=6, participation=0.6)
    everybody = [len(X) for X in clients]
    assert sorted(joined) == sorted((t, n) for t in (0, LENGTH) for n in everybody)
    assert len(stepped) == 6 * 2


def test_absent_clients_have_both_methods_in_their_form_for_that(clients):
    method = Staged(FIRST["fedavg"], LENGTH, Summed(RANK))
    then = Summed(RANK, changes=True, momentum=0.0)
    assert method.partial() == Staged(FIRST["fedavg"].partial(), LENGTH, then, kept=())
    half = run(method, clients, rounds=60, participation=0.6)
    full = run(method, clients, rounds=60)
    assert half.history[-1].loss <= 1.05 * full.history[-1].loss


def test_what_clients_found_alone_outlives_the_first_stage(clients):
    work = [lambda client, factor: client.own] * 3
    stages = Staged(make("oneshot"), 1, Summed(RANK))
    alone, staged = (run(m, clients, rounds=4, work=work) for m in (make("oneshot"), stages))
    for a, b in zip(alone.findings, staged.findings, strict=True):
        np.testing.assert_array_equal(a[0], b[0])
        np.testing.assert_array_equal(a[1], b[1])
    assert run(make("exact", start="random"), clients, rounds=4, work=work).findings == [None] * 3


def test_a_wrapper_keeps_the_stages():
    _, method, bits = case("felb", rounds=6, sweeps=2)
    noisy = PaperNoise(method, lambda H, rng: H)
    assert noisy.traits.stages == method.traits.stages == (0, 4)
    a, b = run(method, bits), run(noisy, bits)
    np.testing.assert_array_equal(a.factor, b.factor)
    assert [line.stage for line in b.history] == [0, 0, 0, 0, 1, 1]
    outer = Staged(noisy, 6, Sweeps(RANK, 2))
    assert outer.traits.stages == (0, 4, 6)


def test_a_public_start_is_that_of_the_first_method(clients):
    start = np.random.default_rng(0).uniform(size=(RANK, FEATURES))
    method = Staged(THEN["fedavg"], LENGTH, Summed(RANK))
    staged, alone = (run(m, clients, rounds=LENGTH, start=start) for m in (method, method.first))
    np.testing.assert_array_equal(staged.factor, alone.factor)
    with pytest.raises(CofactorError, match="a public start has no use where clients factorize alone"):
        run(make("exact"), clients, start=start)


@pytest.mark.parametrize("unit", ["record", "client"])
def test_privacy_is_refused_in_words(unit):
    """What the first stage hands over was seen without noise, even if the second could have some."""
    asked = Privacy(1.0, 1e-6, unit)
    with pytest.raises(PrivacyError) as refusal:
        Staged(FIRST["fedavg"], LENGTH, FIRST["fedavg"]).private(asked, rounds=5, parts=WHOLE)
    assert str(refusal.value) == START
    with pytest.raises(PrivacyError) as refusal:
        make("felb", sweeps=2).private(asked, rounds=5, parts=WHOLE)
    assert str(refusal.value) == no_private("boolean")
