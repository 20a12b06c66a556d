"""Laws of every method about what leaves a client: declared, finite, of a size that no client's rows can change."""

import pickle

import numpy as np
import pytest
from tests.helpers.methods import FEATURES, KIND, NAMES, RANK, ROWS, Case, case, data, dense, factor_fits, first, play

from cofactor.engines.contract import check_message, shared_bytes
from cofactor.method import SERVER, rng, total
from cofactor.methods import catalog
from cofactor.methods.blocks import blocks
from cofactor.methods.planned import limit
from cofactor.methods.spanned import Spanned
from cofactor.methods.twin import Twin
from cofactor.plan import Plan
from cofactor.privacy.allowance import WHOLE, Privacy
from cofactor_papers.felb_noise import PaperGaussian, PaperNoise

CLIENT = Privacy(1.0, 1e-6, "client", insecure_seed=1)


def variant(name, *, partial=False, **options):
    kind, method, Xs = case(name, **options)
    return Case(kind, method.partial() if partial else method, Xs)


def private(name, **options):
    """Return the private form of a method: its messages are what their first form's are with noise."""
    kind, method, Xs = case(name, **options)
    return Case("boolean" if kind == "boolean" else "private", method.private(CLIENT, rounds=3, parts=WHOLE), Xs)


def noisy(name, **options):
    kind, method, Xs = case(name, **options)
    return Case(kind, PaperNoise(method, PaperGaussian(1.0, 1.0)), Xs)


VARIANTS = {
    **{name: case(name) for name in NAMES},
    **{f"{name}, swept": case(name, sweeps=2) for name in catalog.names("boolean")},
    "exact, random start": variant("exact", start="random"),
    "exact, lap start": variant("exact", start="lap"),
    "exact, moments start": variant("exact", start="moments"),
    "exact, svd start": variant("exact", start="svd"),
    "exact, plain": variant("exact", start="random", momentum=0.0),
    "exact, changes": variant("exact", partial=True),
    "exact-beta, random start": variant("exact-beta", start="random"),
    "exact-als, changes": variant("exact-als", partial=True),
    "k-means, changes": variant("k-means", partial=True),
    "boolean-exact, changes": variant("boolean-exact", rounds=4, sweeps=2, partial=True),
    "oneshot, larger local rank": variant("oneshot", local_rank=5),
    "fnmf-lap, sums": variant("fnmf-lap", sums=True),
    "felb, every": variant("felb", align="every"),
    "felb, sums": variant("felb", align=None, rounds=4, sweeps=2),
    "felb, paper noise": noisy("felb", rounds=4, sweeps=2),
    "asso, or": variant("asso", aggregate="or", align=None),
    "elbmf, rounded": variant("elbmf", aggregate="round", align=None),
    "dp-nmf, no outliers": variant("dp-nmf", outliers=None),
    "fedavg, private": private("fedavg"),
    "fedmavg, private": private("fedmavg"),
    "felb, private": private("felb"),
    "asso, private": private("asso", align=None),
}
EVERY = pytest.mark.parametrize("name", VARIANTS)


def sizes(method, Xs):
    """Return the shapes of all arrays, by round and client."""
    return [[{n: np.shape(a) for n, a in m.arrays.items()} for m in played.messages] for played in play(method, Xs)]


def rows_of(Xs):
    return {X.shape[0] for X in Xs}


def test_every_name_of_every_kind_is_here():
    assert sorted(NAMES) == sorted(catalog.CATALOG)
    assert set(KIND.values()) == set(catalog.KINDS)
    assert set(NAMES) <= set(VARIANTS)
    assert min(X.min() for X in VARIANTS["k-means"].Xs) < 0, "signed data where they are allowed"


@EVERY
def test_messages_are_what_the_schema_declares(name):
    _, method, Xs = VARIANTS[name]
    for t, messages, _, _ in play(method, Xs):
        for j, message in enumerate(messages):
            check_message(message, method.schema(FEATURES, t), client=j, t=t)


@EVERY
def test_no_array_has_a_size_that_depends_on_the_rows_of_a_client(name):
    """Blocks have the size of the whole matrix, which all of their clients know, however it is cut."""
    kind, method, Xs = VARIANTS[name]
    found = sizes(method, Xs)
    assert all(one == round_[0] for round_ in found for one in round_)
    assert not any(rows_of(Xs) & set(shape) for round_ in found for one in round_ for shape in one.values())
    if kind == "blocks":
        other = blocks(np.vstack([dense(X) for X in Xs]), 5)
        assert [round_[0] for round_ in sizes(method, other)] == [round_[0] for round_ in found]
    else:
        assert sizes(method, data(kind, [2 * n for n in ROWS])) == found


@EVERY
def test_messages_are_finite_and_factors_are_of_their_kind(name):
    kind, method, Xs = VARIANTS[name]
    for _, messages, shared, _ in play(method, Xs):
        assert all(np.isfinite(a).all() for m in messages for a in m.arrays.values())
        assert np.isfinite(shared.factor).all()
        if kind not in ("ratings", "clusters"):
            assert shared.factor.min(initial=0) >= 0
    factor_fits(kind, method.factor(shared))


def silent(name, t):
    """Whether nobody tells a loss in round t: never with privacy, and not where only sums of rows are sent."""
    kind, method, _ = VARIANTS[name]
    if method.traits.allowance is not None:
        return True
    starts = {"exact, moments start": Twin.rounds, "exact, svd start": Spanned.rounds}
    return t < starts.get(name, 0) or (kind == "blocks" and t == 0)


@EVERY
def test_the_server_learns_the_loss_unless_it_is_private(name):
    _, method, Xs = VARIANTS[name]
    for t, messages, shared, _ in play(method, Xs):
        assert np.isnan(shared.loss) if silent(name, t) else np.isfinite(shared.loss)
        assert not (method.traits.allowance and any("loss" in m.arrays for m in messages))


@EVERY
def test_clients_keep_a_state_of_their_own_rows(name):
    """Private methods by sums remember nothing: every round depends on what was released alone."""
    kind, method, Xs = VARIANTS[name]
    for played in play(method, Xs):
        for X, local in zip(Xs, played.states, strict=True):
            assert local.codes.shape[0] == X.shape[0]
            if name.startswith("dp-"):
                assert local.codes.size == 0
            elif kind != "boolean":  # relaxed codes have the type of the data, swept ones are bits
                assert local.codes.dtype == X.dtype


def held(local):
    return [local.codes.copy(), *(np.copy(a) for a in local.memory.values())]


@EVERY
def test_step_and_join_change_nothing_in_place(name):
    _, method, Xs = VARIANTS[name]
    X, before = Xs[0], dense(Xs[0]).copy()
    shared = method.start(FEATURES, rng(0, SERVER, -1)).broadcast()
    factor = shared.factor.copy()
    local = method.join(X, shared, 0, rng(0, 0, -1))
    own = held(local)
    one, again = (method.step(X, shared, local, 0, rng(0, 0, 0))[1] for _ in range(2))
    np.testing.assert_array_equal(dense(X), before)
    np.testing.assert_array_equal(shared.factor, factor)
    for a, b in zip(held(local), own, strict=True):
        np.testing.assert_array_equal(a, b)
    for array in one.arrays:
        np.testing.assert_array_equal(one.arrays[array], again.arrays[array])


@EVERY
def test_aggregate_changes_nothing_in_place(name):
    _, method, Xs = VARIANTS[name]
    shared, _, message = first(method, Xs[0])
    server = method.start(FEATURES, rng(0, SERVER, -1))
    kept = {n: np.copy(a) for n, a in {**message.arrays, **server.memory, "H": server.factor}.items()}
    sent = [first(method, X, j)[2] for j, X in enumerate(Xs)]
    one, again = (method.aggregate(server, sent, 0) for _ in range(2))
    np.testing.assert_array_equal(one.factor, again.factor)
    for n, a in {**sent[0].arrays, **server.memory, "H": server.factor}.items():
        np.testing.assert_array_equal(a, kept[n])
    np.testing.assert_array_equal(shared.factor, server.factor)


@pytest.mark.parametrize("name", [n for n, c in VARIANTS.items() if c.method.traits.additive])
def test_additive_methods_need_only_the_sum(name):
    _, method, Xs = VARIANTS[name]
    for each, summed in zip(play(method, Xs), play(method, Xs, sums=True), strict=True):
        np.testing.assert_allclose(summed.shared.factor, each.shared.factor, rtol=1e-12, atol=1e-14)
        assert summed.shared.factor.dtype == each.shared.factor.dtype
        assert summed.shared.loss == pytest.approx(each.shared.loss, rel=1e-12, nan_ok=True)


def test_methods_that_promise_sums():
    """Others need every message: summaries, seeds of clusters, and whatever the server matches to each other."""
    single = {"exact", "exact, changes", "oneshot", "oneshot, larger local rank", "oneshot-lap", "boolean-oneshot"}
    single |= {"fnmf-lap", "fnmf-lap-rho", "fnmf-sinkhorn", "fnmf-sinkhorn-rho", "fnmf-knn"}
    single |= {"felb", "falb", "asso", "grecond", "mebf", "zhang", "elbmf", "felb, every", "felb, paper noise"}
    single |= {"k-means", "k-means, changes", "simplex", "shared-own", "consensus", "exact-beta"}
    single |= {f"{name}, swept" for name in catalog.names("boolean") if name != "boolean-exact"}
    assert {name for name, c in VARIANTS.items() if not c.method.traits.additive} == single


def test_the_catalog_says_what_is_summed_of_additive_methods():
    """Some are additive with an option only, which their entry names."""
    for name, (_, method, _) in ((name, VARIANTS[name]) for name in NAMES):
        entry = catalog.CATALOG[name]
        optional = "with align=None" in entry.sums or bool(entry.secure_options)
        assert bool(entry.sums) == (method.traits.additive or optional), name
        assert entry.streams == method.traits.streams
        assert entry.private == (method.traits.allowance is not None)
        assert method.traits.kind == entry.kind


@pytest.mark.parametrize("name", [n for n, c in VARIANTS.items() if c.method.traits.rowwise is not None])
def test_rowwise_messages_add_up_over_rows(name):
    """The message of stacked clients is the sum of theirs, for the same factor, from the round that is declared."""
    kind, method, Xs = VARIANTS[name]
    t = method.traits.rowwise
    assert t in method.traits.stages, "tiny clients are stacked where they join"
    shared = [*play(method, Xs, rounds=t)][-1].shared if t else method.start(FEATURES, rng(0, SERVER, -1))
    stacked = np.vstack([dense(X) for X in Xs])
    whole = type(Xs[0])(stacked) if kind == "ratings" else stacked

    def go(X):
        seen = shared.broadcast()
        return method.step(X, seen, method.join(X, seen, t, rng(0, 0, -1)), t, rng(0, 0, t))

    parts, (state, message) = [go(X) for X in Xs], go(whole)
    summed = total([sent for _, sent in parts])
    for array, value in message.arrays.items():
        np.testing.assert_allclose(summed.arrays[array], value, rtol=1e-12, atol=1e-12 * np.abs(value).max())
    assert summed.weight == message.weight
    for array in ("codes", *state.memory):  # one entry per row, so that rows of one client can be told from others
        pieces = [local.codes if array == "codes" else local.memory[array] for local, _ in parts]
        np.testing.assert_allclose(
            np.concatenate(pieces), state.codes if array == "codes" else state.memory[array], rtol=1e-9, atol=1e-12
        )


def test_methods_whose_messages_add_up_over_rows():
    """A round of a client's own (a factorization, seeds) comes before, and noise is every client's own."""
    rounds = {name: VARIANTS[name].method.traits.rowwise for name in VARIANTS}
    assert {name for name, r in rounds.items() if r == 0} == {
        *("exact, random start", "exact, plain", "fedmgs", "exact-beta, random start", "exact-gaps"),
        *("exact-als", "masked-fedmavg", "exact-als, changes"),
        *("boolean-exact", "boolean-exact, swept", "boolean-exact, changes"),
    }
    later = {"exact": 1, "exact, changes": 1, "exact, svd start": 5, "exact, moments start": 2, "exact, lap start": 3}
    later |= {"exact-beta": 1, "k-means": 1, "k-means, changes": 1}
    later |= {f"{name}, swept": 1 for name in ("boolean-oneshot", "asso", "grecond", "mebf", "zhang", "elbmf")}
    later |= {"felb, swept": 58, "falb, swept": 58, "felb, sums": 2}
    assert {name: r for name, r in rounds.items() if r} == later


@EVERY
def test_methods_pickle_and_compare(name):
    method = VARIANTS[name].method
    copy = pickle.loads(pickle.dumps(method))
    assert copy == method
    assert copy.traits == method.traits
    if method.traits.allowance is None:  # a budget is split by names of arrays, and has no hash
        assert hash(copy) == hash(method)


@EVERY
def test_broadcast_hides_the_servers_memory(name):
    _, method, Xs = VARIANTS[name]
    for played in play(method, Xs, rounds=2):
        assert played.shared.broadcast().memory == {}
        assert shared_bytes(played.shared.broadcast()) == shared_bytes(played.shared)


@pytest.mark.parametrize("name", [n for n, c in VARIANTS.items() if c.method.traits.allowance])
def test_two_clients_with_the_same_rows_send_different_noise(name):
    _, method, Xs = VARIANTS[name]
    a, b = (first(method, Xs[0], client=j)[2].arrays for j in (0, 1))
    assert not any(np.array_equal(a[array], b[array]) for array in a)


@EVERY
def test_a_method_with_rounds_of_its_own_has_them_from_its_first_to_its_last_stage(name):
    method = VARIANTS[name].method
    stages = method.traits.stages
    assert stages[0] == 0
    assert list(stages) == sorted(set(stages))
    assert method.rounds is None or stages[-1] < method.rounds
    assert limit(method, Plan()) == (method.rounds or 50)
    assert method.rank == RANK
