"""How a run goes is settled before any data is looked at: what a plan refuses, and what becomes of it."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from tests.helpers.methods import NAMES, RANK, make, same_bits

from cofactor import FederatedBMF, FederatedKMeans, FederatedMF, FederatedNMF, Privacy, kinds, run
from cofactor.data import synthetic
from cofactor.engines.mpi import Mpi
from cofactor.jobs.config import Config
from cofactor.jobs.job import fit
from cofactor.methods import catalog
from cofactor.methods.build import Facts, build, ready
from cofactor.methods.planned import limit
from cofactor.plan import BY_SHARE, MOST, ROUNDS, ByShare, Plan, Stop, Stream
from cofactor.privacy.allowance import WHOLE
from cofactor.privacy.errors import ParameterError, PrivacyError
from cofactor.types import CofactorError

ASKED = Privacy(1.0, 1e-6)
CLIENT = Privacy(1.0, 1e-6, "client")
ESTIMATORS = [FederatedNMF, FederatedBMF, FederatedMF, FederatedKMeans]


class Untouchable:
    """Data that fail as soon as anybody looks at them."""

    def __getattribute__(self, name):
        raise AssertionError(f"the data were looked at: {name}")

    def _look(self, *_):
        raise AssertionError("the data were looked at")

    __len__ = __iter__ = __getitem__ = __array__ = _look


X = Untouchable()


@pytest.fixture
def Xs():
    return synthetic.blocks(3, [20, 30, 25], features=12, rank=3, seed=1).Xs


def test_the_data_of_these_tests_cannot_be_looked_at_unnoticed():
    for look in (len, list, np.asarray, lambda data: data.shape, lambda data: isinstance(data, list)):
        with pytest.raises(AssertionError, match="the data were looked at"):
            look(X)


PLANS = {
    "no rounds": ({"rounds": 0}, "rounds must be a whole number of at least 1. Found 0"),
    "half a round": ({"rounds": 2.5}, "rounds must be a whole number of at least 1. Found 2.5"),
    "true for rounds": ({"rounds": True}, "rounds must be a whole number of at least 1. Found True"),
    "rounds in words": ({"rounds": "ten"}, "rounds must be a whole number of at least 1. Found 'ten'"),
    "negative seed": ({"seed": -1}, "seed must be a whole number of at least 0. Found -1"),
    "seed of a number": ({"seed": 0.5}, "seed must be a whole number of at least 0. Found 0.5"),
    "no seed": ({"seed": None}, "seed must be a whole number of at least 0. Found None"),
    "nobody": ({"participation": 0}, r"participation must be in \(0, 1\]. Found 0"),
    "more than everybody": ({"participation": 1.2}, r"participation must be in \(0, 1\]. Found 1.2"),
    "no number": ({"participation": math.nan}, r"participation must be in \(0, 1\]. Found nan"),
    "share in words": ({"participation": "half"}, r"participation must be in \(0, 1\]. Found half"),
    "no share": ({"participation": None}, r"participation must be in \(0, 1\]. Found None"),
    "negative tolerance": ({"stop": -1e-4}, "tol must be a number >= 0. Found -0.0001"),
    "tolerance of no number": ({"stop": math.nan}, "tol must be a number >= 0. Found nan"),
    "tolerance in words": ({"stop": "small"}, "tol must be a number >= 0. Found 'small'"),
    "epsilon alone": ({"privacy": 1.0}, r"privacy: expected Privacy\(epsilon=..., delta=...\) or None. Found 1.0"),
    "epsilon by name": ({"privacy": {"epsilon": 1}}, r"privacy: expected Privacy\(epsilon=..., delta=...\) or None"),
    "nobody by share": ({"participation": ByShare(0)}, "participation: expected a count of at least 1. Found 0"),
    "half a client by share": ({"participation": ByShare(2.5)}, "expected a count of at least 1. Found 2.5"),
    "private by share": ({"participation": ByShare(2), "privacy": ASKED}, BY_SHARE),
    "secure by share": ({"participation": ByShare(2), "secure": True}, "here is only their sum"),
    "stream of a number": ({"stream": 200}, "stream: expected Stream.* or None. Found 200"),
}


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_that_cannot_be_carried_out_is_refused_when_it_is_made(name):
    fields, words = PLANS[name]
    private = {"private by share": PrivacyError, "epsilon alone": ParameterError}
    with pytest.raises(private.get(name, CofactorError), match=words):
        Plan(**fields)
    with pytest.raises(CofactorError, match=words):
        run(make("fedavg"), X, **fields)


@pytest.mark.parametrize("patience", [0, -1, 2.5])
def test_a_stop_rule_looks_back_over_some_rounds(patience):
    with pytest.raises(CofactorError, match=f"patience must be a whole number of at least 1. Found {patience}"):
        Stop(1e-3, patience=patience)


@pytest.mark.parametrize("value", [0, -1, 2.5, "many", None])
def test_a_stream_has_some_updates(value):
    with pytest.raises(CofactorError, match=f"updates must be a whole number of at least 1. Found {value!r}"):
        Stream(value)


@pytest.mark.parametrize("value", [0, -1.0, math.nan, "soon", None])
def test_a_stream_waits_for_some_time(value):
    with pytest.raises(CofactorError, match=f"deadline must be a time above 0. Found {value!r}"):
        Stream(deadline=value)


def test_a_tolerance_is_a_stop_rule(Xs):
    a, b = (run(make("fedavg"), Xs, rounds=40, stop=stop) for stop in (1e-2, Stop(1e-2)))
    same_bits(a, b)
    assert a.converged
    assert len(a.history) < 40


def test_privacy_twice_is_refused_and_once_is_not(Xs):
    method, other = catalog.make("dp-moments", 3, privacy=ASKED), Plan(privacy=Privacy(2.0, 1e-6))
    for start in (lambda: run(method, X, other), lambda: build(method, 3, other, Facts(3))):
        with pytest.raises(PrivacyError, match="privacy was asked for twice"):
            start()
    assert run(method, Xs, Plan(privacy=ASKED)).epsilon == pytest.approx(1.0)
    with pytest.raises(PrivacyError, match="privacy was asked for twice"):
        FederatedNMF(3, method=method, privacy=Privacy(2.0, 1e-6)).fit(X)


@pytest.mark.parametrize("method", [make("dp-moments"), make("fedavg").private(CLIENT, rounds=3, parts=WHOLE)])
def test_private_methods_are_not_drawn_by_share(method):
    with pytest.raises(PrivacyError) as refusal:
        run(method, X, participation=ByShare(2))
    assert str(refusal.value) == BY_SHARE
    with pytest.raises(PrivacyError) as refusal:
        build(method, RANK, Plan(participation=ByShare(2)), Facts(3))
    assert str(refusal.value) == BY_SHARE


@pytest.mark.parametrize("name", ["exact", "fnmf-lap", "oneshot", "k-means"])
def test_a_draw_by_share_is_refused_where_sums_are_not_enough(name):
    with pytest.raises(CofactorError, match="a draw by share needs a method whose messages are summed"):
        run(make(name), X, participation=ByShare(2))


@pytest.mark.parametrize("name", catalog.names("blocks"))
def test_fewer_rounds_than_a_method_needs_are_refused(name):
    with pytest.raises(CofactorError, match=r"needs all of its 5 rounds\. Found 4; make it with fewer iterations"):
        run(make(name), X, rounds=4)


def test_fewer_rounds_than_a_private_method_needs_are_refused():
    words = "rounds: method 'dp-moments' needs 2 rounds. Found 1"
    with pytest.raises(CofactorError, match=words):
        build("dp-moments", 3, Plan(1, privacy=ASKED), Facts(3))
    with pytest.raises(CofactorError, match=words):
        FederatedNMF(3, method="dp-moments", rounds=1, privacy=ASKED).fit(X)


def test_a_private_plan_needs_the_private_form():
    with pytest.raises(CofactorError, match="privacy: expected the private form of the method"):
        run(make("fedavg"), X, Plan(privacy=CLIENT))


@pytest.mark.parametrize("name", catalog.names("private"))
def test_a_private_method_needs_a_budget(name):
    for start in (lambda: build(name, 3, Plan(), Facts(3)), lambda: FederatedNMF(3, method=name).fit(X)):
        with pytest.raises(ParameterError, match=f"method '{name}' adds noise: expected epsilon and delta. Found none"):
            start()


@pytest.mark.parametrize("name", NAMES)
def test_streams_are_refused_where_they_cannot_go_before_the_data(name):
    method, plan = make(name), Plan(stream=Stream(10))
    if method.rounds is None and len(method.traits.stages) == 1 and not method.traits.complete:
        with pytest.raises(AssertionError, match="the data were looked at"):
            run(method, X, plan)
    else:
        with pytest.raises(CofactorError, match=r"a stream needs a method|privacy is refused: in an asynchronous"):
            run(method, X, plan)


def test_a_stop_rule_has_more_rounds_than_a_plan_without_one():
    plain, paid = make("fedavg"), make("fedavg").private(CLIENT, rounds=3, parts=1)
    assert [limit(plain, Plan(stop=tol)) for tol in (0.0, 1e-4)] == [ROUNDS, MOST]
    assert limit(plain, Plan(stop=1e-4, participation=0.25)) == 4 * MOST
    assert limit(plain, Plan(stop=1e-4, participation=ByShare(2))) == MOST
    slow = catalog.make("fedmgs", 3)
    assert [limit(slow, Plan(stop=1e-4, participation=share)) for share in (1, 0.5, 0.25)] == [2 * MOST] * 2 + [
        4 * MOST
    ]
    assert [limit(slow, Plan(stop=0.0)), limit(slow, Plan(7, stop=1e-4))] == [ROUNDS, 7]
    assert limit(plain, Plan(7, stop=1e-4)) == 7
    assert limit(paid, Plan(stop=1e-4)) == paid.rounds if paid.rounds else ROUNDS
    assert limit(make("oneshot"), Plan(stop=1e-4)) == 1
    assert build("asyn-sd", 3, Plan(stop=1e-4), Facts(4))[1].stream.updates == 4 * MOST


@pytest.mark.parametrize(("wrong", "right"), [("exat", "exact"), ("fedavrg", "fedavg"), ("atuo", "auto")])
def test_unknown_methods_suggest_the_near_one(wrong, right):
    words = f"unknown method '{wrong}'. Did you mean '{right}'"
    for start in (lambda: build(wrong, 3, Plan(), Facts(3)), lambda: FederatedNMF(3, method=wrong).fit(X)):
        with pytest.raises(CofactorError, match=words):
            start()


def test_unknown_kinds_suggest_the_near_one():
    for ask in (catalog.names, kinds.named):
        with pytest.raises(CofactorError, match=r"unknown kind 'bolean'\. Did you mean 'boolean'\?"):
            ask("bolean")


def test_unknown_fields_of_a_plan_suggest_the_near_one():
    with pytest.raises(CofactorError, match=r"unknown field of a plan 'round'\. Did you mean 'rounds'"):
        run(make("fedavg"), X, round=3)


def test_unknown_options_suggest_the_near_one():
    options = {"momentun": 0.5}
    words = r"unknown option of method 'exact' 'momentun'\. Did you mean 'momentum'\?"
    for start in (
        lambda: catalog.make("exact", 3, **options),
        lambda: build("exact", 3, Plan(), Facts(3), options),
        lambda: FederatedNMF(3, options=options).fit(X),
    ):
        with pytest.raises(CofactorError, match=words):
            start()


@pytest.mark.parametrize("engine", ["mpi", "inline", "dask"])
def test_the_name_of_an_engine_is_no_engine(engine):
    words = f"engine: expected an engine, such as .* Found the text '{engine}'"
    with pytest.raises(CofactorError, match=words):
        run(make("exact"), X, engine=engine)
    for estimator in ESTIMATORS:
        with pytest.raises(CofactorError, match=words):
            estimator(3, engine=engine).fit(X)


OPTIONS = [
    ({"rounds": 0}, "rounds must be a whole number of at least 1. Found 0"),
    ({"participation": 0.0}, r"participation must be in \(0, 1\]"),
    ({"random_state": -1}, "seed must be a whole number of at least 0. Found -1"),
    ({"method": "exat"}, "unknown method 'exat'. Did you mean 'exact"),
    ({"options": {"speed": 3}}, "unknown option of method '.*' 'speed'"),
    ({"tol": -1.0}, "tol must be a number >= 0. Found -1.0"),
    ({"privacy": 1.0}, r"privacy: expected Privacy\(epsilon=..., delta=...\)"),
]
HAS = [(cls, *line) for cls in ESTIMATORS for line in OPTIONS if set(line[0]) <= set(cls().get_params())]


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("k", [True, 2.0, "3"])
def test_a_number_of_components_is_a_whole_number(estimator, k):
    ones = sparse.csr_matrix(np.ones((8, 5)))
    with pytest.raises(CofactorError, match=f"a whole number .*[Ff]ound {k!r}"):
        estimator(k).fit(ones)


@pytest.mark.parametrize(("estimator", "options", "words"), HAS)
def test_estimators_refuse_before_they_look_at_the_data(estimator, options, words):
    with pytest.raises(CofactorError, match=words):
        estimator(3, **options).fit(X)


def test_the_rounds_that_are_asked_for_are_those_of_a_private_method(Xs):
    """Not the four that dp-nmf has by default (REVIEW A1)."""
    model = FederatedNMF(3, method="dp-nmf", rounds=10, privacy=ASKED, random_state=0).fit(Xs)
    assert model.n_rounds_ == len(model.history_) == 10
    assert model.epsilon_ == pytest.approx(1.0)
    method, plan = build("dp-nmf", 3, Plan(10, privacy=ASKED), Facts(3))
    assert (method.rounds, plan.rounds) == (10, 10)
    assert build("dp-nmf", 3, Plan(privacy=ASKED), Facts(3))[0].rounds == 4


@pytest.mark.parametrize(
    ("name", "plan", "rounds", "chosen"),
    [
        ("exact", Plan(7), 7, None),
        ("asyn-sd", Plan(7), None, None),
        ("auto", Plan(), ROUNDS, "exact"),
        ("exact", Plan(privacy=ASKED), 2, "exact"),
    ],
)
def test_what_is_ready_says_what_runs_and_for_how_long(name, plan, rounds, chosen):
    facts = Facts(3, 20, 60)
    found = ready(name, 3, plan, facts)
    assert (found.method, found.plan) == build(name, 3, plan, facts)
    assert found.rounds == rounds
    assert chosen == (found.choice and found.choice.method)


@pytest.mark.parametrize("name", ["asyn-sd", "asyn-ssd-v"])
def test_asynchronous_methods_are_streams(name, Xs):
    """An update for every round and client, in the estimator as everywhere (REVIEW A2)."""
    model = FederatedNMF(3, method=name, rounds=7, random_state=0, tol=0).fit(Xs)
    assert len(model.history_) == model.n_rounds_ == 7 * 3
    assert {line.participants for line in model.history_} == {1}
    method, plan = build(name, 3, Plan(7), Facts(3))
    assert plan.stream == Stream(21)
    np.testing.assert_array_equal(run(method, Xs, plan).factor, model.components_)


def test_asynchronous_methods_run_in_rounds_where_a_stream_cannot_go(Xs):
    for plan in (Plan(7, secure=True), Plan(7, participation=0.6), Plan(7, privacy=CLIENT)):
        assert build("asyn-sd", 3, plan, Facts(3))[1].stream is None
    model = FederatedNMF(3, method="asyn-sd", rounds=7, participation=0.6, random_state=0, tol=0).fit(Xs)
    assert [line.participants for line in model.history_] == [2] * 7


@pytest.mark.parametrize("method", ["k-means", "simplex"])
def test_signed_rows_are_clustered_on_every_engine(method, rng):
    """MPI is no stricter than one process (REVIEW A3)."""
    rows = rng.normal(size=(60, 5)) + 4 * np.eye(5)[rng.integers(3, size=60)]
    assert rows.min() < 0
    groups = rng.integers(3, size=60)
    here, there = (
        FederatedKMeans(3, method=method, random_state=0, engine=engine).fit(rows, groups=groups)
        for engine in (None, Mpi())
    )
    np.testing.assert_array_equal(here.cluster_centers_, there.cluster_centers_)
    np.testing.assert_array_equal(here.labels_, there.labels_)


def test_a_delta_is_held_against_the_rows_that_are_declared(Xs):
    """Counting them would be a release, and would differ from process to process (REVIEW A5)."""
    wide = Privacy(1.0, 0.1)
    many = Privacy(1.0, 0.1, rows=11)
    for ask in (
        lambda: build("dp-moments", 3, Plan(privacy=many), Facts(3)),
        lambda: FederatedNMF(3, privacy=many).fit(X),
        lambda: Config(["nowhere.npy"], 3, epsilon=1.0, delta=0.1, rows=11),
    ):
        with pytest.raises(ParameterError, match=r"delta must be below 1/n = 0.0909"):
            ask()
    for rows in (None, 9):
        method, plan = build("dp-moments", 3, Plan(privacy=replace(wide, rows=rows)), Facts(3))
        assert run(method, Xs, plan, engine=Mpi()).epsilon == pytest.approx(1.0)
    assert FederatedNMF(3, privacy=wide, random_state=0).fit(Xs).epsilon_ == pytest.approx(1.0)
    units = Privacy(1.0, 0.4, "client")
    with pytest.raises(ParameterError, match=r"delta must be below 1/n = 0.333"):
        build("fedavg", 3, Plan(3, privacy=units), Facts(3))


def test_declared_rows_are_the_same_in_an_estimator_and_on_the_command_line(Xs, tmp_path):
    files = [str(tmp_path / f"{j}.npy") for j in range(len(Xs))]
    for file, rows in zip(files, Xs, strict=True):
        np.save(file, rows)
    ask = {"epsilon": 1.0, "delta": 1e-6, "rows": 60}
    here = FederatedNMF(3, privacy=Privacy(**ask, insecure_seed=4), random_state=0).fit(Xs)
    there = fit(Config(files, 3, **ask, insecure_noise_seed=4), tmp_path / "run")
    np.testing.assert_array_equal(here.components_, there.factor()[0])
    assert there.config().plan.rows == 60
    few = {"epsilon": 1.0, "delta": 1e-6, "rows": 2}
    with pytest.raises(CofactorError, match="the smaller of n_samples=2"):
        FederatedNMF(3, privacy=Privacy(**few)).fit(Xs)
    with pytest.raises(CofactorError, match="the smaller of 2 rows"):
        fit(Config(files, 3, **few), tmp_path / "few")
    with pytest.raises(ParameterError, match="rows must be a whole number"):
        Privacy(1.0, 1e-6, rows=0)


@pytest.mark.parametrize("name", NAMES)
def test_a_method_with_rounds_of_its_own_runs_all_of_them(name):
    method = make(name)
    plan = Plan(privacy=method.traits.allowance.privacy if method.traits.allowance else None, stop=1e-2)
    same, settled = build(method, RANK, plan, Facts(3))
    assert same == method
    if method.rounds is not None:
        judged = Stop(1e-2) if method.traits.iterates else Stop()  # by which iterations are told to be too few
        assert (settled.rounds, settled.rule) == (method.rounds, judged)
    else:
        assert settled.rule == Stop(1e-2)
        assert replace(settled, stream=None, rounds=None) == replace(plan, rounds=None)
