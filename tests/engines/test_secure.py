"""Secure summation around any engine: the same factor as in plain sight, and nothing but sums to be seen."""

import json
import warnings

import numpy as np
import pytest
from tests.helpers.methods import NAMES, ROUNDS, case
from tests.helpers.processes import script

from cofactor import FederatedBMF, FederatedNMF, Privacy, run
from cofactor.data import synthetic
from cofactor.engines import secure
from cofactor.engines.checkpoint import Checkpoint
from cofactor.engines.host import Host
from cofactor.engines.secure import Secure
from cofactor.methods import catalog
from cofactor.methods.build import Facts, build
from cofactor.methods.refusals import not_additive
from cofactor.plan import ByShare, Plan
from cofactor.privacy.errors import ParameterError, PrivacyError
from cofactor.privacy.secure_sum.messages import Terms
from cofactor.privacy.secure_sum.protocol import Members
from cofactor.privacy.secure_sum.server import Server
from cofactor.types import CofactorError, Message

ROWS = (30, 9, 2, 23, 1)
IN_SUMS = {
    "exact": {"start": "moments"},
    "exact-beta": {"start": "random"},
    "shared-own": {"start": "random"},
    **{name: {"sums": True} for name in NAMES if name.startswith("fnmf")},
    **{name: {"align": None} for name in ("felb", "falb", "asso", "grecond", "mebf", "zhang", "elbmf")},
}
"""Options with which sums are enough, where a method needs them for that."""
SINGLE = ["oneshot", "consensus", "oneshot-lap", "boolean-oneshot", "k-means", "simplex"]
"""Methods that need every message whatever their options."""
SUMS = [name for name in NAMES if name not in SINGLE]


@pytest.fixture
def Xs():
    return synthetic.blocks(5, list(ROWS), features=14, rank=3, seed=3).Xs


def private_in_sums(clients=5):
    """Return a private method whose noise is whole in the sum of those that must answer."""
    plan = Plan(2, privacy=Privacy(1.0, 1e-3), secure=True)
    return build("exact", 3, plan, Facts(clients))[0]


@pytest.mark.parametrize("name", SUMS)
def test_every_method_in_sums_gives_the_plain_result(name):
    """Bits are the same bits; noise with an insecure seed is the same noise."""
    kind, method, Xs = case(name, rows=ROWS, features=14, **IN_SUMS.get(name, {}))
    # a twin is drawn from the rounded sums, and a factor of it that has not settled is three digits of theirs
    rounds = 40 if name == "exact" else ROUNDS
    plain, hidden = (run(method, Xs, rounds=rounds, secure=masks) for masks in (False, True))
    if kind == "boolean":
        np.testing.assert_array_equal(hidden.factor, plain.factor)
    np.testing.assert_allclose(hidden.factor, plain.factor, atol=1e-4 if name == "exact" else 1e-5)
    for W, V in zip(hidden.codes, plain.codes, strict=True):
        np.testing.assert_allclose(W, V, atol=1e-3)
    assert [line.participants for line in hidden.history] == [5] * len(plain.history)


@pytest.mark.parametrize("start", ["svd", "moments", "lap", "random"])
def test_exact_statistics_under_masks(start, Xs):
    method = catalog.make("exact", 3, start=start)
    plain, hidden = (run(method, Xs, rounds=16, engine=engine) for engine in (None, Secure()))
    np.testing.assert_allclose(hidden.factor, plain.factor, atol=1e-4)
    assert hidden.history[-1].participants == 5
    assert hidden.history[-1].bytes_up > plain.history[-1].bytes_up  # keys, shares and masks are counted


@pytest.mark.parametrize("name", [*SINGLE, *IN_SUMS])
def test_methods_that_need_single_messages_are_refused_before_anything_is_sent(name):
    _, method, Xs = case(name, rows=ROWS)
    with pytest.raises(PrivacyError) as refusal:
        run(method, Xs, secure=True, watch=lambda *_: pytest.fail("a message was sent"))
    assert str(refusal.value) == not_additive(method.traits.kind)
    with pytest.raises(PrivacyError) as refusal:
        build(method, 3, Plan(secure=True), Facts(5))
    assert str(refusal.value) == not_additive(method.traits.kind)


@pytest.mark.parametrize("name", ["exact", "fnmf-lap"])
def test_a_name_is_built_so_that_sums_are_enough_where_it_can(name):
    """Boolean alignment is an option that somebody chose, and is not taken away."""
    assert build(name, 3, Plan(secure=True), Facts(5))[0] == catalog.make(name, 3, **IN_SUMS[name])
    with pytest.raises(PrivacyError) as refusal:
        build("felb", 3, Plan(secure=True), Facts(5))
    assert str(refusal.value) == not_additive("boolean")


def test_a_secure_engine_and_a_secure_plan_are_the_same(Xs):
    ways = ({"engine": Secure()}, {"secure": True}, {"engine": Secure(), "secure": True})
    factors = [run(catalog.make("fedavg", 3), Xs, rounds=3, **way).factor for way in ways]
    np.testing.assert_array_equal(factors[0], factors[1])
    np.testing.assert_array_equal(factors[0], factors[2])


def test_the_estimators_choose_what_sums_allow(Xs):
    assert FederatedNMF(3, secure=True, rounds=5, tol=0).fit(Xs).n_rounds_ == 5
    fnmf = FederatedNMF(3, method="fnmf-lap", secure=True, rounds=5, tol=0, random_state=0).fit(Xs)
    plain = FederatedNMF(3, method="fnmf-lap", options={"sums": True}, rounds=5, tol=0, random_state=0).fit(Xs)
    np.testing.assert_allclose(fnmf.components_, plain.components_, atol=1e-5)
    bits = [(X > np.median(X)).astype(int) for X in Xs]
    FederatedBMF(3, method="boolean-exact", secure=True, rounds=6).fit(bits)


@pytest.mark.parametrize("count", [1, 2])
def test_fewer_than_three_clients_have_no_secret(count, Xs):
    with pytest.raises(ParameterError, match="secure summation needs at least 3 clients"):
        FederatedNMF(3, secure=True).fit(Xs[:count])


def test_what_the_server_is_given_differs_from_every_message(Xs, monkeypatch):
    seen, plain = [], []
    receive = Server.receive
    monkeypatch.setattr(Server, "receive", lambda self, message: (seen.append(message), receive(self, message))[1])
    method = catalog.make("fedavg", 3)
    run(method, Xs, rounds=1, watch=lambda t, answers: plain.extend(a.message for a in answers))
    run(method, Xs, rounds=1, engine=Secure())
    masked = [np.frombuffer(m.words, "<u8") for m in seen if hasattr(m, "words")]
    assert len(masked) == len(Xs)
    for words, message in zip(masked, plain, strict=True):
        values = np.concatenate([[message.weight], *(np.ravel(a) for a in message.arrays.values())])
        steps = np.rint(values * 2**24).astype(np.int64).view(np.uint64)
        assert not (words == steps).any()
        # uniform words have their top bit set half of the time; small fixed-point numbers never or all together
        assert 0.2 < (words >> np.uint64(63)).mean() < 0.8


def test_a_watcher_sees_the_sum_and_who_is_in_it(Xs):
    seen = []
    outcome = run(
        catalog.make("fedavg", 3), Xs, rounds=1, engine=Secure(), watch=lambda t, answers: seen.extend(answers)
    )
    (total,) = seen
    assert list(total.clients) == [0, 1, 2, 3, 4]
    assert total.message.weight == sum(map(len, Xs))
    assert total.nbytes == outcome.history[0].bytes_up


def test_part_of_the_clients(Xs):
    method = catalog.make("fedavg", 3)
    plain = run(method, Xs, rounds=4, participation=0.6)
    with pytest.warns(UserWarning, match="over rounds may tell of single clients"):
        hidden = run(method, Xs, rounds=4, participation=0.6, engine=Secure())
    np.testing.assert_allclose(hidden.factor, plain.factor, atol=1e-5)
    assert [r.participants for r in hidden.history] == [3] * 4


def test_tiny_clients_each_mask_their_own(rng):
    Xs = [rng.uniform(size=(1, 6)) for _ in range(7)]
    method = catalog.make("exact", 2, start="random")
    plain, hidden = (run(method, Xs, rounds=4, engine=engine) for engine in (None, Secure()))
    np.testing.assert_allclose(hidden.factor, plain.factor, atol=1e-4)
    assert hidden.history[-1].participants == 7


def test_a_scale_that_rounding_would_eat_is_refused(Xs):
    with pytest.raises(PrivacyError, match="expected values of about 1"):
        run(catalog.make("exact", 3, start="random"), [X * 1e-5 for X in Xs], engine=Secure())


def test_a_checkpoint_goes_on_under_masks(Xs, tmp_path):
    method = catalog.make("exact", 3, start="random")
    whole = run(method, Xs, rounds=6, engine=Secure())
    run(method, Xs, rounds=3, engine=Secure(), checkpoint=Checkpoint(tmp_path / "c.npz"))
    resumed = run(method, Xs, rounds=6, engine=Secure(), checkpoint=Checkpoint(tmp_path / "c.npz"))
    np.testing.assert_allclose(resumed.factor, whole.factor, atol=1e-9)


def test_distributed_noise_comes_out_once(Xs):
    """With secure sums the noise in the mean is that of one release, without them every client adds the whole."""
    deviations = {}
    for hidden in (False, True):
        sums = []
        plan = Plan(2, privacy=Privacy(1.0, 1e-3, insecure_seed=5), secure=hidden)
        method, plan = build("exact", 3, plan, Facts(5))
        run(method, Xs, plan, watch=lambda t, answers: sums.append(answers))  # noqa: B023
        total = sum(answer.message.arrays["sum"] for answer in sums[0])
        exact = sum((X / np.linalg.norm(X, axis=1, keepdims=True)).sum(axis=0) for X in Xs)
        deviations[hidden] = np.std(total - exact)
        expected = method.allowance.sigma(0, "sum", 1.0, 5)
        assert 0.4 * expected < deviations[hidden] < 1.8 * expected
    assert deviations[True] < deviations[False]


def test_secure_sums_over_processes_are_the_inline_ones(tmp_path):
    script(3, "masked.py", "masked.json", cwd=tmp_path)
    found = json.loads((tmp_path / "masked.json").read_text())
    assert found["gap"] < 1e-5
    assert found["private"]["epsilon"] == pytest.approx(1.0, rel=1e-9)
    assert found["private"]["alike"]
    assert "secure summation needs at least 3 clients" in found["few"]


def test_parts_of_the_noise_are_shown_to_nobody(Xs):
    with pytest.raises(PrivacyError, match="this engine does not mask messages"):
        run(private_in_sums(), Xs, watch=lambda *_: pytest.fail("a message was sent"))


def test_fewer_participants_than_the_noise_is_made_for_are_refused(Xs):
    with pytest.raises(PrivacyError, match="the noise of this plan is whole with 3 honest clients"):
        run(private_in_sums(), Xs, participation=0.6, secure=True, watch=lambda *_: pytest.fail("a message was sent"))


def test_sums_of_changing_clients_tell_of_single_ones(Xs):
    """What the warning says: rounds of fedavg with three of five clients give away how many rows each one has."""
    seen = []
    with pytest.warns(UserWarning, match="can be subtracted from each other"):
        run(
            catalog.make("fedavg", 3), Xs, rounds=20, participation=0.6, secure=True,
            watch=lambda t, answers: seen.extend((a.clients, a.message.weight) for a in answers),
        )  # fmt: skip
    who = np.array([np.isin(np.arange(5), clients) for clients, _ in seen], float)
    assert np.linalg.matrix_rank(who) == 5
    found = np.linalg.lstsq(who, np.array([weight for _, weight in seen]))[0]
    np.testing.assert_allclose(found, ROWS, atol=1e-5)


def test_noise_needs_no_warning(Xs):
    """Every sum carries the whole noise, and every round is charged: differences are paid for."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        plan = Plan(2, participation=0.6, privacy=Privacy(8.0, 1e-3, "client"), secure=True)
        method, plan = build("fedavg", 3, plan, Facts(5))
        run(method, Xs, plan)


def test_a_client_answers_only_to_terms_that_hide_it(Xs):
    """A server that asks for fewer neighbours than so many clients need, or for fewer clients than the noise is for."""
    members = Members(range(120))
    members.bring({c: Message({"x": np.float64(1)}) for c in range(120)}, {"x": ()})
    weak = Terms(b"name", tuple(range(120)), 2, 4, 2)
    with pytest.raises(ParameterError, match="as many neighbours and shares as its clients need"):
        members.answer(weak, members.publics, {0: None})
    host = Host(private_in_sums(), Xs, 0)
    with pytest.raises(PrivacyError, match="the noise of this plan is whole with 3 honest clients"):
        secure.answer(host, Terms(b"name", (0, 1, 2), 2), {}, {0: None})


@pytest.mark.parametrize("how", [{"secure": True}, {"engine": Secure()}])
def test_a_draw_by_share_needs_single_messages(how, Xs):
    with pytest.raises(CofactorError, match="here is only their sum"):
        run(catalog.make("fedavg", 3), Xs, rounds=1, participation=ByShare(40), **how)


def test_too_few_that_were_drawn_are_told_of_all_clients():
    Xs = [np.random.default_rng(j).random((6, 5)) for j in range(5)]
    with (
        pytest.warns(UserWarning, match="participation"),
        pytest.raises(CofactorError, match=r"round 0 drew 2 of 5 clients.*at least 3.*participation, of 0\.6 or more"),
    ):
        run(catalog.make("exact", 2, start="random"), Xs, rounds=3, participation=0.4, secure=True)
