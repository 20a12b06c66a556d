"""Law: a model that was saved and loaded finds the codes that it found before, whatever it is, and tells nothing."""

import json
import zipfile

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.decomposition import non_negative_factorization
from tests.helpers.command import cofactor

from cofactor import FederatedBMF, FederatedKMeans, FederatedMF, FederatedNMF
from cofactor.methods import catalog
from cofactor.methods.summed import Summed
from cofactor.privacy import Privacy
from cofactor.types import CofactorError

GENES = [f"g{i}" for i in range(12)]
ROWS = (31, 17)
SITES = ("kantonsspital", "polyclinic")


def frames(seed=0):
    rng = np.random.default_rng(seed)
    H = rng.gamma(0.5, size=(3, 12))
    return [pd.DataFrame(rng.poisson(3 * rng.gamma(1, size=(n, 3)) @ H) + 0.0, columns=GENES) for n in ROWS]


def lacking(seed=0):
    a, b = frames(seed)
    return [a.drop(columns=["g1"]), b.drop(columns=["g4", "g5"])]


def gapped(seed=0):
    return [frame.mask(np.random.default_rng(1).uniform(size=frame.shape) < 0.1) for frame in frames(seed)]


def arrays(seed=0):
    return [frame.to_numpy() for frame in frames(seed)]


def counted(seed=0):
    return [frame.set_axis([f"feature{i}" for i in range(12)], axis=1) for frame in frames(seed)]


def nmf(rounds=3, **how):
    return FederatedNMF(3, random_state=0, rounds=rounds, tol=0, **how)


PRIVATE = Privacy(epsilon=5, delta=1e-3, insecure_seed=7130559)
MODELS = {
    "exact": (nmf(), frames),
    "arrays": (nmf(), arrays),
    "names that count": (nmf(), counted),
    "kullback-leibler": (nmf(beta_loss="kullback-leibler"), frames),
    "beta 1.5": (nmf(beta_loss=1.5, alpha_W=0.05), frames),
    "penalties": (nmf(alpha_W=0.5, alpha_H=np.float64(0.1), l1_ratio=0.3), frames),
    "orthogonality": (nmf(orthogonality=0.5), frames),
    "union": (nmf(features="union"), lacking),
    "intersection": (nmf(features="intersection"), lacking),
    "gaps": (nmf(method="exact-gaps"), gapped),
    "gaps under a loss": (nmf(method="exact-gaps", beta_loss=1), gapped),
    "shared-own": (nmf(method="shared-own", options={"weight": 2.0}), frames),
    "consensus": (nmf(method="consensus", options={"starts": 4}), frames),
    "options": (nmf(options={"start": "random", "codes_penalty": (0.4, 0.1)}), frames),
    "auto": (nmf(method="auto"), frames),
    "prepared": (nmf(prepare="library=50,log1p,hvg=8"), frames),
    "private": (nmf(privacy=PRIVATE), frames),
    "outliers aside": (nmf(method="dp-moments", privacy=PRIVATE, options={"outliers": 0.5}), frames),
    "bits": (
        FederatedBMF(3, random_state=0, method="felb", rounds=3, sweeps=1),
        lambda s=0: [X > 2 for X in arrays(s)],
    ),
    "bits with a threshold": (FederatedBMF(3, threshold=2.5, random_state=0), frames),
    "bits made by steps": (FederatedBMF(3, prepare="library=50,binarize=2", random_state=0), frames),
    "scaled clusters": (FederatedKMeans(3, features="intersection", prepare="log1p,scale", random_state=0), frames),
    "k-means": (FederatedKMeans(3, random_state=0), arrays),
    "simplex": (FederatedKMeans(3, method="simplex", rounds=3, random_state=0), frames),
}
"""Models, and what they are fitted to."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_a_loaded_model_finds_the_same_codes(name, tmp_path):
    model, data = MODELS[name]
    model.fit(data())
    model.save(tmp_path / "model.npz")
    again = type(model).load(tmp_path / "model.npz")
    for X in (data(), data(1)):
        for before, after in zip(model.transform(X), again.transform(X), strict=True):
            np.testing.assert_allclose(after, before, rtol=0, atol=1e-12)
    again.save(tmp_path / "again.npz")
    with np.load(tmp_path / "model.npz") as first, np.load(tmp_path / "again.npz") as second:
        assert {k: a.tolist() for k, a in first.items()} == {k: a.tolist() for k, a in second.items()}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", [*catalog.names("real"), *catalog.names("blocks")])
def test_every_method_is_rebuilt(method, tmp_path):
    model = nmf(1, method=method).fit(arrays()[:1] if method in catalog.names("blocks") else arrays())
    model.save(tmp_path / "model.npz")
    X = arrays(1)[0]
    np.testing.assert_allclose(FederatedNMF.load(tmp_path / "model.npz").transform(X), model.transform(X), atol=1e-12)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_nothing_private_is_in_the_file(name, tmp_path):
    model, data = MODELS[name]
    whole = np.vstack(data()) if name in ("arrays", "k-means", "bits") else pd.concat(data())
    if name in ("union", "intersection"):  # of one frame all clients have the same features
        whole = pd.concat(frames())
    if name not in ("private", "outliers aside"):
        model.fit(whole, groups=np.repeat(SITES, ROWS))
        assert model.clients_ == list(SITES)
    else:
        model.fit(data())
    model.save(tmp_path / "model.npz")
    with np.load(tmp_path / "model.npz") as file:
        held = {name: file[name] for name in file.files}
    told = json.dumps({name: a.tolist() for name, a in held.items()})
    assert not [site for site in SITES if site in told]
    assert not [name for name, a in held.items() if {*ROWS, sum(ROWS)} & set(a.shape)]
    assert str(PRIVATE.insecure_seed) not in told  # it would take the noise away
    settings = json.loads(str(held["settings"]))
    assert set(settings) <= {"estimator", "parameters", "privacy", "column", "method", "options"}
    assert not {"random_state", "engine", "callbacks", "ledger", "insecure_seed"} & set(settings["parameters"])


def test_ratings_of_new_users_are_the_same(tmp_path):
    triples = (["ann", "ann", "bob", "bob", "cy"], ["x", "y", "x", "z", "x"], [5.0, 1.0, 4.0, 2.0, 5.0])
    for how in ({"ridge": 0.3}, {"implicit": True, "alpha": 3.0}, {"biases": False, "rating_range": (1, 5)}):
        model = FederatedMF(2, random_state=0, **how).fit(triples)
        model.save(tmp_path / "model.npz")
        again, new = FederatedMF.load(tmp_path / "model.npz"), sparse.csr_matrix([[4.0, 0, 1]])
        np.testing.assert_allclose(again.transform(new), model.transform(new), atol=1e-12)
        with np.load(tmp_path / "model.npz") as file:
            assert not [a for a in file.values() if "ann" in a.ravel().tolist()]


def test_weights_of_cells_are_no_part_of_new_rows(tmp_path):
    data = arrays()
    model = nmf().fit(data, cell_weight=[np.where(X > 3, 0.5, 1) for X in data])
    model.save(tmp_path / "model.npz")
    again = FederatedNMF.load(tmp_path / "model.npz")
    np.testing.assert_allclose(again.transform(data[0]), model.transform(data[0]), atol=1e-12)


def test_a_column_of_groups_is_set_aside_again(tmp_path):
    whole = pd.concat(frames()).assign(site=np.repeat(SITES, ROWS))
    model = nmf().fit(whole, groups="site")
    model.save(tmp_path / "model.npz")
    np.testing.assert_allclose(FederatedNMF.load(tmp_path / "model.npz").transform(whole), model.transform(whole))


def test_what_a_loaded_model_cannot_do_is_said(tmp_path):
    file = tmp_path / "model.npz"
    model = nmf(method="shared-own").fit(arrays())
    model.save(file)
    again = FederatedNMF.load(file)
    assert again.own_components_ is None  # they stay with their clients
    with pytest.raises(CofactorError, match=r"partial_fit: expected plain least squares .* fit\(X, H=model"):
        again.partial_fit(arrays(1))
    nmf().fit(arrays()).save(file)
    again = FederatedNMF.load(file)
    with pytest.raises(CofactorError, match=r"partial_fit: expected the codes .* Begin at its factor"):
        again.partial_fit(arrays(1))
    assert len(nmf().fit(arrays(1), H=again.components_).components_) == 3
    with pytest.raises(CofactorError, match=r"found one of numbers: use FederatedNMF\.load"):
        FederatedKMeans.load(file)
    FederatedKMeans(3, random_state=0).fit(arrays()).save(file)
    with pytest.raises(CofactorError, match=r"found one of centres: use FederatedKMeans\.load"):
        FederatedNMF.load(file)


@pytest.mark.parametrize("more", [{}, {"alpha_W": 0.02, "l1_ratio": 0.5}, {"beta_loss": "kullback-leibler"}])
def test_a_factor_that_stays_has_the_codes_of_scikit_learn(more, tmp_path):
    X, H = arrays()[0] + 0.1, nmf().fit(arrays()).components_
    model = FederatedNMF.from_factor(H, **more)
    solver = {"solver": "mu"} if "beta_loss" in more else {}
    how = {"init": "custom", "update_H": False, "n_components": 3, "tol": 1e-10, "max_iter": 20000}
    W = non_negative_factorization(X, H=H, **how, **solver, **more)[0]
    np.testing.assert_allclose(model.transform(X), W, atol=2e-3 * W.max())
    np.testing.assert_array_equal(model.components_, H)
    model.save(tmp_path / "model.npz")
    np.testing.assert_array_equal(FederatedNMF.load(tmp_path / "model.npz").transform(X), model.transform(X))


def test_programs_in_a_table_name_their_features():
    programs = pd.DataFrame(nmf().fit(arrays()).components_, columns=GENES)[GENES[2:]]
    rows = frames(1)[0]
    model = FederatedNMF.from_factor(programs, features="intersection", prepare="library=50,log1p")
    ready = np.log1p(rows.to_numpy() / np.maximum(rows[GENES[2:]].to_numpy().sum(1, keepdims=True), 1) * 50)
    plain = FederatedNMF.from_factor(programs.to_numpy()).transform(ready[:, 2:])
    np.testing.assert_allclose(model.transform(rows), plain, atol=1e-10)
    assert model.markers(rows)[0].feature in GENES[2:]
    assert model.score(rows) == pytest.approx(FederatedNMF.from_factor(programs.to_numpy()).score(ready[:, 2:]))
    centres = FederatedKMeans.from_factor(rows.to_numpy()[:4])
    assert centres.predict(rows.to_numpy()[:4]).tolist() == [0, 1, 2, 3]
    bits = np.eye(3, dtype=int).repeat(4, axis=1)
    np.testing.assert_array_equal(FederatedBMF.from_factor(bits).transform(bits), np.eye(3))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda H: FederatedNMF.from_factor(-H), "H: expected a factor"),
        (lambda H: FederatedNMF.from_factor(H, prepare="hvg=5"), "found hvg, which needs sums"),
        (lambda H: FederatedNMF.from_factor(H, feature_names=["a"]), "expected one for each of 12, found 1"),
        (lambda H: FederatedNMF.from_factor(H, feature_names=["a"] * 12), "distinct feature names, found 'a'"),
        (lambda H: FederatedNMF.from_factor(H, method="felb"), "a method of FederatedBMF"),
        (FederatedBMF.from_factor, "must be 0 or 1"),
        (lambda H: FederatedKMeans.from_factor(H * np.nan), "NaN"),
    ],
)
def test_what_is_no_factor_is_refused_in_words(make, words):
    with pytest.raises(CofactorError, match=words):
        make(np.full((3, 12), 0.5))


def test_a_method_object_is_given_again(tmp_path):
    model = nmf(method=Summed(3)).fit(arrays())
    model.save(tmp_path / "model.npz")
    with pytest.raises(CofactorError, match=r"made with a method object.*load\(path, method=\.\.\.\)"):
        FederatedNMF.load(tmp_path / "model.npz")
    again, X = FederatedNMF.load(tmp_path / "model.npz", method=Summed(3)), arrays(1)[0]
    np.testing.assert_allclose(again.transform(X), model.transform(X), atol=1e-12)


def told(**more):
    """Return a change of settings."""
    return lambda held: {"settings": np.array(json.dumps({**json.loads(str(held["settings"])), **more}))}


def steps(text, **more):
    return lambda held: {"prepare": np.array(text), **{f"prepare.{name}": a for name, a in more.items()}}


BUDGET = {"epsilon": 1.0, "delta": 1e-5}
HOSTILE = {
    "a seed of the noise": (told(privacy={**BUDGET, "insecure_seed": 7}), "of a budget .* found insecure_seed"),
    "a ledger": (told(privacy={**BUDGET, "ledger": "/tmp/mine.jsonl"}), "of a budget .* found ledger"),
    "no delta": (told(privacy={"epsilon": 1.0}), "a damaged one"),
    "an engine": (told(parameters={"engine": "x"}), "codes depend on, found engine"),
    "callbacks": (told(parameters={"callbacks": ["x"]}), "codes depend on, found callbacks"),
    "parameters in a list": (told(parameters=[1]), "a damaged one"),
    "another estimator": (told(estimator="os.system"), "unknown estimator of a model 'os.system'"),
    "a number for a method": (told(method=5), "a damaged one"),
    "no json": (lambda held: {"settings": np.array("{")}, "a damaged one"),
    "deep json": (lambda held: {"settings": np.array("[" * 100000)}, "a damaged one"),
    "a list": (lambda held: {"settings": np.array("[1]")}, "a damaged one"),
    "no numbers": (lambda held: {"factor": held["factor"] * np.nan}, "finite numbers"),
    "negative numbers": (lambda held: {"factor": -held["factor"]}, "finite numbers >= 0"),
    "texts": (lambda held: {"factor": held["factor"].astype(str)}, "finite numbers"),
    "no features": (lambda held: {"factor": held["factor"][:, :0]}, "expected a factor"),
    "scores of others": (lambda held: {"marker_scores": np.ones((9, 9))}, "of 12 features, found others"),
    "steps of more features": (steps("hvg=12", **{"0.keeps": np.ones(15, bool)}), "of 12 features, found others"),
    "steps of fewer": (lambda held: {**steps("log1p")(held), "input_width": np.array(-3)}, "of 12 features, found"),
}
"""What somebody else may write into the file of a model, and what is said then."""


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_says_how_codes_are_found_and_nothing_else(name, tmp_path):
    """One that set a seed of the noise was taken: whoever wrote it could subtract that of the fits of its reader."""
    change, words = HOSTILE[name]
    nmf().fit(arrays()).save(tmp_path / "model.npz")
    with np.load(tmp_path / "model.npz") as file:
        held = dict(file)
    np.savez(tmp_path / "model.npz", **{**held, **change(held)})
    with pytest.raises(CofactorError, match=words):
        FederatedNMF.load(tmp_path / "model.npz")


def test_a_file_of_others_is_no_model(tmp_path):
    with zipfile.ZipFile(tmp_path / "model.npz", "w") as file:
        file.writestr("factor", b"abc")
    for estimator in (FederatedNMF, FederatedMF):
        with pytest.raises(CofactorError, match="found a file of others: factor"):
            estimator.load(tmp_path / "model.npz")


@pytest.mark.parametrize("change", [{"rank": np.array("x")}, {"factor": np.full((4, 3), np.nan)}])
def test_a_file_of_ratings_holds_numbers(change, tmp_path):
    FederatedMF(2, random_state=0).fit((["a", "a", "b"], ["x", "y", "z"], [5.0, 1.0, 4.0])).save(tmp_path / "m.npz")
    with np.load(tmp_path / "m.npz") as file:
        held = {**file, **change}
    np.savez(tmp_path / "m.npz", **held)
    with pytest.raises(CofactorError, match=r"m\.npz: expected"):
        FederatedMF.load(tmp_path / "m.npz")


@pytest.mark.parametrize(
    "words",
    [
        ("--method", "exact-beta"),
        ("--option", "codes_penalty=[0.4, 0.1]"),
        ("--method", "shared-own", "--option", "weight=2"),
        ("--features", "union"),
        ("--prepare", "library,log1p"),
        ("--method", "k-means", "--prepare", "scale"),
        ("--boolean", "--prepare", "binarize=2"),
        ("--epsilon", 5, "--delta", 1e-3, "--insecure-noise-seed", 7130559),
    ],
    ids=lambda words: words[1],
)
def test_the_factor_of_a_run_finds_the_codes_of_the_run(words, tmp_path):
    data = lacking() if "union" in words else frames()
    for name, frame in zip(("a.csv", "b.csv"), data, strict=True):
        frame.to_csv(tmp_path / name, index=False)
    cofactor("fit", "a.csv", "b.csv", "-k", 3, "-q", *words, cwd=tmp_path)
    cofactor("transform", "run", "a.csv", "--out", "codes.npy", "-q", cwd=tmp_path)
    estimator = {"k-means": FederatedKMeans, "--prepare": FederatedBMF}.get(words[1], FederatedNMF)
    model = estimator.load(tmp_path / "run" / "factor.npz")
    if "--prepare" in words:  # and the estimator finds the same factor
        by = {"prepare": words[-1], "random_state": 0}
        np.testing.assert_allclose(estimator(3, **by).fit(data).components_, model.components_, atol=1e-12)
    np.testing.assert_allclose(model.transform(data[0]), np.load(tmp_path / "codes.npy"), rtol=0, atol=1e-12)
    with np.load(tmp_path / "run" / "factor.npz") as file:
        assert str(PRIVATE.insecure_seed) not in str(file["settings"])
