"""Private methods: sensitivities hold for every record, budgets are met exactly, and without noise nothing is lost."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from cofactor import FederatedBMF, FederatedNMF, Privacy, run
from cofactor.combine.aggregators import Mean
from cofactor.engines.secure import Secure
from cofactor.engines.stream import run_stream
from cofactor.local import symmetric
from cofactor.local.outliers import Outliers
from cofactor.local.refit import refit
from cofactor.methods import catalog
from cofactor.methods.client_level import ClientLevel
from cofactor.methods.dp_nmf import dp_nmf, floored
from cofactor.methods.moments import Moments, moments, signal
from cofactor.methods.private import privately
from cofactor.metrics import pooled_error
from cofactor.privacy.errors import BudgetError, OutOfRangeError, ParameterError, PrivacyError
from cofactor.privacy.plan import Plan
from cofactor.types import CofactorError

HARDLY = 1e9
"""An epsilon at which noise is below 1e-4."""
SETTING = {"participants": 4, "rounds": 3}


def privacy(epsilon=1.0, delta=1e-6, unit="record", **more):
    return Privacy(epsilon, delta, unit, **more)


@pytest.fixture
def Xs(rng):
    H = rng.gamma(0.5, size=(3, 12))
    return [rng.gamma(0.5, size=(n, 3)) @ H for n in (40, 30, 50, 25)]


def unit_rows(X):
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def private_methods(epsilon, unit):
    """Return every private form by name."""
    ask = privacy(epsilon, unit=unit, insecure_seed=7)
    found = {
        "moments": moments(3, privacy=ask),
        "narrow moments": replace(moments(3, privacy=ask), widest=5),
        "statistics": dp_nmf(3, privacy=ask, rounds=3, outliers=None),
        "statistics with outliers": dp_nmf(3, privacy=ask, rounds=3, outliers=0.5),
    }
    if unit == "client":
        for name in ("fedavg", "fedprox", "fnmf-lap", "fedmavg", "syn-sd"):
            found[name] = catalog.make_for(name, 3, {}, privacy=ask, **SETTING)
    return found


# --- sensitivity: one record more moves a release by at most its bound, whatever the record is ---


def differences(method, X, more):
    """Yield |release(X) - release(X and more)| / bound for every array, noise cancelling out."""
    shared = method.start(X.shape[1], np.random.default_rng(0))
    for t in range(method.rounds):
        messages = []
        for data in (X, np.vstack([X, more])):
            local = method.join(data, shared, np.random.default_rng(1))
            messages.append(method.step(data, shared, local, t, np.random.default_rng(2))[1])
        for name, a in messages[0].arrays.items():
            release = messages[0].cost[name]
            gap = np.linalg.norm(a - messages[1].arrays[name])
            yield name, gap / release.clip, np.sqrt(a.size) / release.clip
        shared = method.aggregate(shared, messages[:1], t)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["random", "huge", "tiny", "one cell", "equal"]))
@pytest.mark.parametrize("name", ["moments", "narrow moments", "statistics", "statistics with outliers"])
@pytest.mark.parametrize("bound", [None, 0.5])
def test_one_record_moves_a_release_by_at_most_its_bound(name, bound, seed, kind):
    rng = np.random.default_rng(seed)
    X = rng.gamma(0.5, size=(20, 12))
    record = {
        "random": rng.gamma(0.5, size=12),
        "huge": rng.gamma(0.5, size=12) * 1e9,
        "tiny": rng.gamma(0.5, size=12) * 1e-9,
        "one cell": np.eye(12)[3] * 100.0,
        "equal": X[0],
    }[kind]
    method = private_methods(HARDLY, "record")[name]
    method = replace(method, plan=replace(method.plan, privacy=replace(method.plan.privacy, clip=bound)))
    for array, moved, slack in differences(method, X, record):
        assert moved <= 1 + 2 * slack * 2.0**-24, array


@pytest.mark.parametrize("name", list(private_methods(HARDLY, "client")))
def test_a_client_moves_a_sum_by_at_most_its_bound(name, rng):
    method = private_methods(HARDLY, "client")[name]
    shared = method.start(12, np.random.default_rng(0))
    for t in range(method.rounds):
        X = rng.gamma(0.5, size=(30, 12)) * 1e6
        local = method.join(X, shared, np.random.default_rng(1))
        message = method.step(X, shared, local, t, np.random.default_rng(2))[1]
        for array, a in message.arrays.items():
            assert np.linalg.norm(a) <= message.cost[array].clip * (1 + 1e-3)
        assert message.weight == 1
        shared = method.aggregate(shared, [message], t)


# --- known answers without noise ---


def test_moments_are_those_of_the_pooled_unit_rows(Xs):
    X = unit_rows(np.vstack(Xs))
    method = moments(3, privacy=privacy(HARDLY))
    shared = method.start(12, np.random.default_rng(0))
    for t in range(2):
        steps = [method.step(Xj, shared, method.join(Xj, shared, None), t, np.random.default_rng(0))[1] for Xj in Xs]
        sums = {name: sum(m.arrays[name] for m in steps) for name in steps[0].arrays}
        if t == 0:
            np.testing.assert_allclose(sums["sum"], X.sum(axis=0), atol=1e-3)
            np.testing.assert_allclose(sums["count"], len(X), atol=1e-2)
        shared = method.aggregate(shared, steps, t)
    Y = X - shared.extra["center"]
    Y *= np.minimum(1, shared.extra["bound"] / np.linalg.norm(Y, axis=1, keepdims=True))
    np.testing.assert_allclose(symmetric.unpacked(sums["moment"], 12), Y.T @ Y, atol=1e-3)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, lambda X: X.astype(np.float32)])
def test_without_noise_the_twin_has_the_factor_of_the_data(Xs, kind):
    method = moments(3, privacy=privacy(HARDLY))
    found = run(method, [kind(X) for X in Xs])
    random = np.random.default_rng(0).uniform(size=(3, 12))
    by_chance = pooled_error(Xs, [refit(X, random) for X in Xs], random)
    assert pooled_error(Xs, found.codes, found.factor) < 0.1 * by_chance
    assert (found.factor >= 0).all()
    assert found.history[-1].participants == 4


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_of_many_features_the_most_frequent_enter_the_moment(kind, rng):
    """Three patterns in 20 features, and 100 rare ones that say nothing: the moment need not know these."""
    H = np.hstack([rng.gamma(0.5, size=(3, 20)), np.full((3, 100), 1e-4)])
    X = rng.gamma(0.5, size=(300, 3)) @ H
    method = replace(moments(3, privacy=privacy(HARDLY)), widest=20)
    shared = method.start(120, np.random.default_rng(0))
    first = method.step(kind(X), shared, method.join(X, shared, None), 0, np.random.default_rng(0))[1]
    np.testing.assert_array_equal(method.aggregate(shared, [first], 0).extra["features"], np.arange(20))
    found = run(method, [kind(X)])
    assert pooled_error([X], found.codes, found.factor) < 0.05


def test_statistics_without_noise_are_projected_steps_on_the_pooled_rows(Xs):
    X = unit_rows(np.vstack(Xs))
    method = dp_nmf(3, privacy=privacy(HARDLY), rounds=1, outliers=None, sweeps=200, steps=1)
    shared = method.start(12, np.random.default_rng(0))
    H = shared.factor
    messages = [method.step(Xj, shared, method.join(Xj, shared, None), 0, np.random.default_rng(0))[1] for Xj in Xs]
    W = refit(X, H)
    A, B = W.T @ W, W.T @ X
    expected = np.maximum(H - (A @ H - B) / np.linalg.norm(A, 2), 0)
    expected /= np.maximum(np.linalg.norm(expected, axis=1, keepdims=True), 1)
    np.testing.assert_allclose(method.aggregate(shared, messages, 0).factor, expected, atol=1e-3)


def test_client_level_without_noise_and_clip_is_the_method_with_equal_weights(Xs):
    plain = replace(catalog.make("fedavg", 3, common_start=True), aggregator=Mean(weighted=False))
    asked = privately(plain, privacy(HARDLY, unit="client", clip=10.0), rounds=4)
    start = np.random.default_rng(5).uniform(size=(3, 12))
    expected, found = (run(m, Xs, rounds=4, start=start) for m in (plain, asked))
    np.testing.assert_allclose(found.factor, expected.factor, atol=5e-3)


def test_votes_without_noise_are_the_plain_count(rng):
    Xs = [(rng.random((60, 12)) < 0.3).astype(float) for _ in range(5)]
    plain = catalog.make("asso", 3, align=None)
    asked = privately(catalog.make("asso", 3), privacy(HARDLY, unit="client"), rounds=1)
    np.testing.assert_array_equal(run(asked, Xs).factor, run(plain, Xs).factor)
    release = run_messages(asked, Xs)[0].cost["factor"]
    assert release.clip == np.sqrt(3 * 12)


def run_messages(method, Xs):
    seen = []
    run(method, Xs, watch=lambda t, replies: seen.extend(r.message for r in replies))
    return seen


# --- the pieces ---


def test_one_column_stands_for_all_that_do_not_vary(rng):
    """The best factor of a matrix with proportional columns comes from the matrix with these merged into one."""
    c = rng.uniform(size=5)
    X = rng.uniform(size=(30, 6))
    wide = np.hstack([X, np.tile(c, (30, 1))])
    merged = np.hstack([X, np.full((30, 1), np.linalg.norm(c))])
    W, H = rng.uniform(size=(30, 3)), rng.uniform(size=(3, 7))
    spread = np.hstack([H[:, :-1], np.outer(H[:, -1], c / np.linalg.norm(c))])
    assert np.isclose(np.linalg.norm(wide - W @ spread), np.linalg.norm(merged - W @ H))


@given(st.integers(1, 9), st.integers(0, 1000))
def test_packed_symmetric_matrices_keep_their_norm(d, seed):
    M = np.random.default_rng(seed).standard_normal((d, d))
    M = M + M.T
    assert np.isclose(np.linalg.norm(symmetric.packed(M)), np.linalg.norm(M))
    np.testing.assert_allclose(symmetric.unpacked(symmetric.packed(M), d), M)


def test_the_edge_of_the_noise_is_where_its_eigenvalues_end(rng):
    d = 400
    values = np.linalg.eigvalsh(symmetric.unpacked(2.0 * rng.standard_normal(symmetric.size(d)), d))
    assert np.isclose(values[-1], symmetric.noise_edge(2.0, d), rtol=0.05)


def test_shrinkage_gives_a_planted_eigenvalue_back(rng):
    d, planted = 400, 150.0
    u = rng.standard_normal(d)
    u /= np.linalg.norm(u)
    noise = symmetric.unpacked(2.0 * rng.standard_normal(symmetric.size(d)), d)
    found, vectors = signal(*np.linalg.eigh(planted * np.outer(u, u) + noise), symmetric.noise_edge(2.0, d))
    assert len(found) == 1
    assert np.isclose(found[0], planted, rtol=0.05)
    assert abs(vectors[:, 0] @ u) > 0.9


def test_eigenvalues_of_a_noisy_gram_are_lifted(rng):
    M = rng.standard_normal((5, 5))
    values = np.linalg.eigvalsh(floored(M + M.T, 1.5))
    assert values.min() >= 1.5 - 1e-9


def test_outliers_follow_the_formula_of_the_paper():
    m = 4
    found = Outliers(0.5, 1.0)(np.array([[0.1, -0.1, 0.5, -2.0]]))
    np.testing.assert_allclose(found, [[0, 0, 0.25, -1.0 / np.sqrt(m)]])


def test_codes_without_outliers_are_near_those_of_the_clean_rows(rng):
    H = rng.uniform(size=(3, 100))
    W = rng.uniform(0.5, 1, size=(20, 3))
    X = W @ H
    hit = rng.random(X.shape) < 0.1
    dirty = np.where(hit, X + 3.0, X)
    plain, robust = (np.linalg.norm(V - W) for V in (refit(dirty, H), Outliers(0.1).refit(dirty, H)))
    assert robust < 0.3 * plain


def test_outliers_of_nonsense_are_refused():
    with pytest.raises(CofactorError, match="expected a threshold and a bound >= 0"):
        Outliers(-1.0)


# --- budgets ---


@pytest.mark.parametrize("name", list(private_methods(1.0, "client")))
@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_a_run_costs_what_was_asked_for(name, epsilon, Xs):
    method = private_methods(epsilon, "client")[name]
    method = replace(method, plan=replace(method.plan, privacy=privacy(epsilon, 1e-3, "client")))
    outcome = run(method, Xs)
    assert np.isclose(outcome.epsilon, epsilon, rtol=1e-9)
    spend = outcome.ledger.spend()
    assert (str(spend.unit), spend.relation, spend.delta, spend.private) == ("client", "add/remove one", 1e-3, True)


def test_fewer_rounds_cost_less(Xs):
    method = dp_nmf(3, privacy=privacy(2.0), rounds=4)
    assert run(method, Xs, rounds=1).epsilon < 1.1


def test_secure_sums_are_accounted_by_zcdp_and_carry_the_whole_noise_once(Xs):
    model = FederatedNMF(3, privacy=privacy(2.0), secure=True).fit(Xs)
    assert model.ledger_.spend().accountant == "zCDP"
    assert np.isclose(model.epsilon_, 2.0, rtol=1e-9)


def test_noise_of_a_threshold_of_clients_adds_up_to_the_plan(Xs):
    plan = Plan(privacy(1.0), ({"a": 1.0},), parts=3)
    noise = [plan.release(0, {"a": np.zeros(20_000)}, {"a": 1.0}, None).arrays["a"] for _ in range(3)]
    assert np.isclose(np.std(sum(noise)), plan.multiplier, rtol=0.03)


@dataclass(frozen=True)
class Overdrawn(Plan):
    """A plan with half of the noise that its budget needs."""

    def costs(self, t):
        return {name: replace(cost, multiplier=cost.multiplier / 2) for name, cost in super().costs(t).items()}


def test_a_budget_that_would_be_exceeded_stops_before_the_round(Xs):
    plan = moments(3, privacy=privacy()).plan
    seen = []
    with pytest.raises(BudgetError, match="the budget is epsilon = 1"):
        run(Moments(3, Overdrawn(plan.privacy, plan.shares)), Xs, watch=lambda t, replies: seen.append(t))
    assert not seen


@dataclass(frozen=True)
class Forgetful(Moments):
    """A client that forgets to pay."""

    def step(self, data, shared, local, t, rng):
        local, message = super().step(data, shared, local, t, rng)
        return local, message._replace(cost={})


def test_a_message_that_has_not_paid_is_refused(Xs):
    plan = moments(3, privacy=privacy()).plan
    with pytest.raises(CofactorError, match="client 0, round 0: expected the costs"):
        run(Forgetful(3, plan), Xs)


def test_a_client_that_clips_nothing_is_refused_before_its_message_leaves(Xs):
    method = catalog.make_for("fedavg", 3, {}, privacy=privacy(8.0, 0.1, "client"), **SETTING)
    seen = []
    with pytest.raises(OutOfRangeError, match="a message clipped to norm 1 was expected"):
        run(Unclipped(method.method, plan=method.plan), Xs, watch=lambda t, replies: seen.append(t))
    assert not seen


@dataclass(frozen=True)
class Unclipped(ClientLevel):
    """A client that sends its factor as it is."""

    def step(self, data, shared, local, t, rng):
        local, message = self.method.step(data, shared, local, t, rng)
        return local, self.plan.release(t, {"factor": message.arrays["factor"]}, {"factor": self.bound}, rng)


def test_a_seed_for_the_noise_is_on_record(Xs):
    first, again, other = (
        FederatedNMF(3, random_state=0, privacy=privacy(insecure_seed=seed)).fit(Xs) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first.components_, again.components_)
    assert np.abs(first.components_ - other.components_).max() > 1e-3
    assert not first.ledger_.spend().private
    assert "private: no" in str(first.ledger_.spend())


def test_noise_differs_between_clients_even_with_an_insecure_seed(Xs):
    seen = []
    method = moments(3, privacy=privacy(insecure_seed=1))
    run(method, [Xs[0], Xs[0]], rounds=1, watch=lambda t, replies: seen.extend(r.message for r in replies))
    assert np.abs(seen[0].arrays["sum"] - seen[1].arrays["sum"]).max() > 1e-3


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
    seen = []
    with pytest.raises(ParameterError, match="delta must be below 1/n"):
        run(moments(3, privacy=privacy(delta=0.01)), Xs, watch=lambda t, r: seen.append(t))
    assert not seen


# --- refusals, word for word ---

RECORD = (
    "unit='record' is refused: this method sends what a local solver found, and no bound is known for how much one "
    "record moves that. Ask for unit='client', or use 'dp-moments' or 'dp-nmf', which send sums over records."
)
START = (
    "privacy is refused: the start of this method reads private data and releases what it saw without noise. "
    "Use start='random' or a public factor."
)
SKETCH = (
    "privacy is refused: a sketch that all parties know is no protection. Its columns are rows or features in plain "
    "sight, and all of the data are recovered after ceil(n/d) rounds. Use 'dp-moments' or 'dp-nmf'."
)
NO_BUFFER = (
    "secure aggregation of asynchronous updates is refused: the server merges every update as it arrives, without a "
    "buffer of several to add up, so it would see each one. Run the method in rounds."
)
NOT_PRIVATE = (
    "privacy is refused: in an asynchronous stream a client sends as many updates as its speed allows, so no plan of "
    "rounds can pay for them beforehand. Run the method in rounds."
)


@pytest.mark.parametrize("name", ["fnmf-lap", "fnmf-sinkhorn", "fedavg", "fedprox", "fedmavg", "syn-sd", "asyn-sd"])
def test_solver_outputs_get_no_record_level_privacy(name, Xs):
    with pytest.raises(PrivacyError) as refusal:
        FederatedNMF(3, method=name, privacy=privacy()).fit(Xs)
    assert str(refusal.value) == RECORD


@pytest.mark.parametrize("name", ["felb", "falb", "asso", "grecond"])
def test_boolean_solver_outputs_get_no_record_level_privacy(name, Xs):
    with pytest.raises(PrivacyError) as refusal:
        FederatedBMF(3, method=name, privacy=privacy()).fit([(X > 1).astype(int) for X in Xs])
    assert str(refusal.value) == RECORD


@pytest.mark.parametrize("start", ["summaries", "moments", "lap"])
def test_a_start_that_reads_private_data_is_refused(start, Xs):
    with pytest.raises(PrivacyError) as refusal:
        FederatedNMF(3, options={"start": start}, privacy=privacy()).fit(Xs)
    assert str(refusal.value) == START


@pytest.mark.parametrize("name", ["syn-ssd-u", "syn-ssd-uv"])
@pytest.mark.parametrize("unit", ["record", "client"])
def test_sketch_sharing_gets_no_privacy(name, unit, Xs):
    with pytest.raises(PrivacyError) as refusal:
        FederatedNMF(3, method=name, privacy=privacy(unit=unit)).fit(Xs)
    assert str(refusal.value) == SKETCH


def test_blocks_get_no_privacy():
    method = catalog.make("dsanls", 3, shape=(60, 60))
    with pytest.raises(PrivacyError) as refusal:
        privately(method, privacy(), rounds=5)
    assert str(refusal.value) == SKETCH


def test_asynchronous_updates_are_neither_masked_nor_private(Xs):
    with pytest.raises(PrivacyError) as refusal:
        run_stream(catalog.make("asyn-sd", 3), Xs, engine=Secure())
    assert str(refusal.value) == NO_BUFFER
    private = catalog.make_for("asyn-sd", 3, {}, privacy=privacy(unit="client"), **SETTING)
    with pytest.raises(PrivacyError) as refusal:
        run_stream(private, Xs)
    assert str(refusal.value) == NOT_PRIVATE


@pytest.mark.parametrize("name", ["oneshot", "oneshot-lap", "fedmgs"])
def test_methods_without_a_private_form_say_so(name, Xs):
    with pytest.raises(PrivacyError, match="privacy is refused: this method has no private form"):
        FederatedNMF(3, method=name, privacy=privacy(unit="client")).fit(Xs)


def test_a_private_method_needs_privacy(Xs):
    with pytest.raises(CofactorError, match="method 'dp-moments': expected privacy"):
        FederatedNMF(3, method="dp-moments").fit(Xs)


# --- what it is good for ---


def test_moments_beat_statistics_and_come_near_the_pooled_factor(rng):
    H = rng.gamma(0.3, size=(5, 40))
    X = rng.gamma(0.3, size=(20_000, 5)) @ H + 0.01
    X = unit_rows(X[X.any(axis=1)])
    ask = privacy(1.0)
    loss = {
        name: pooled_error([X], out.codes, out.factor)
        for name, out in {
            "pooled": run(catalog.make("exact", 5), [X]),
            "moments": run(moments(5, privacy=ask), [X]),
            "statistics": run(dp_nmf(5, privacy=ask, outliers=None), [X]),
        }.items()
    }
    assert loss["moments"] < loss["pooled"] + 0.05
    assert loss["moments"] < loss["statistics"]
