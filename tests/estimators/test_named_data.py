"""AnnData and data frames through and through: in by name, out with names, and the public part of a model alone."""

import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow
import pytest
from scipy import sparse
from sklearn.base import clone

from cofactor import FederatedBMF, FederatedKMeans, FederatedMF, FederatedNMF, Privacy, select_rank
from cofactor.data import synthetic
from cofactor.data.steps import LibrarySize, Log1p
from cofactor.privacy.errors import PrivacyError
from cofactor.types import CofactorError, DataError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import dask.array as da
    import scanpy as sc
    from anndata import AnnData, read_h5ad

pytestmark = pytest.mark.filterwarnings("ignore:prepare. library expects counts", "ignore:X does not have valid")
GENES = [f"g{i}" for i in range(20)]
CELLS = [f"cell{i}" for i in range(90)]
X = np.vstack(synthetic.blocks(3, 30, features=20, rank=3, seed=0).Xs)
SITES = np.repeat(["a", "b", "c"], 30)


def annotated(matrix=X, **more):
    obs, var = pd.DataFrame({"site": SITES}, index=CELLS), pd.DataFrame(index=GENES)
    return AnnData(matrix.copy(), obs=obs, var=var, **more)


def parts(held):
    return [held[held.obs["site"] == site].copy() for site in "abc"]


def frames():
    whole = pd.DataFrame(X, index=CELLS, columns=GENES)
    return [whole[SITES == site] for site in "abc"]


def _twice(held):
    held.var_names = ["g1", "g1", *GENES[2:]]
    return held


def _nan(held):
    held.X[2, 7] = np.nan
    return held


def _unlabelled(held):
    held.obs["site"] = held.obs["site"].astype(object)
    held.obs.iloc[:2, 0] = np.nan
    return held


@pytest.fixture(scope="module")
def model():
    return FederatedNMF(3, random_state=0).fit(frames())


def layered(name):
    """AnnData whose matrix is zero, and lies in a layer or in raw."""
    held = annotated()
    if name == "raw":
        held.raw = held.copy()
    else:
        held.layers[name] = held.X.copy()
    held.X = np.zeros_like(held.X)
    return held


FORMS = {
    "anndata": lambda model: model.fit(parts(annotated())),
    "sparse": lambda model: model.fit(parts(annotated(sparse.csr_matrix(X)))),
    "groups": lambda model: model.fit(annotated(), groups="site"),
    "column": lambda model: model.fit(pd.concat(frames()).assign(site=SITES), groups="site"),
    "polars": lambda model: model.fit([pl.from_pandas(frame) for frame in frames()]),
    "polars column": lambda model: model.fit(pl.from_pandas(pd.concat(frames()).assign(site=SITES)), groups="site"),
    "layer": lambda model: model.set_params(layer="counts").fit(parts(layered("counts"))),
    "raw": lambda model: model.set_params(layer="raw").fit(parts(layered("raw"))),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_model(form, model):
    fitted = FORMS[form](FederatedNMF(3, random_state=0))
    assert np.allclose(fitted.components_, model.components_, atol=1e-6)
    assert list(fitted.feature_names_in_) == fitted.features_ == GENES
    assert np.allclose(np.vstack(fitted.codes_), np.vstack(model.codes_), atol=1e-6)
    assert np.allclose(fitted.marker_scores_, model.marker_scores_, atol=1e-6)


def test_backed_and_dask_matrices_are_read_in_blocks(model, tmp_path):
    file = tmp_path / "cells.h5ad"
    annotated(sparse.csr_matrix(X)).write_h5ad(file)
    backed = read_h5ad(file, backed="r")
    found = FederatedNMF(3, random_state=0).fit(backed, groups="site")
    assert np.allclose(found.components_, model.components_, atol=1e-6)
    with pytest.raises(DataError, match=r"a part of AnnData on disk .* use .to_memory\(\) first"):
        FederatedNMF(3).fit(backed[:30])
    lazy = annotated()
    lazy.X = da.from_array(X, chunks=(25, 20))
    found = FederatedNMF(3, random_state=0, prepare="library=10,log1p").fit(lazy, groups="site")
    held = FederatedNMF(3, random_state=0, prepare="library=10,log1p").fit(frames())
    assert np.allclose(found.components_, held.components_, atol=1e-6)


def test_features_that_differ_are_matched_as_on_the_command_line():
    own = frames()
    own[1], own[2] = own[1][GENES[4:]], own[2][GENES[::-1]]
    union = FederatedNMF(3, random_state=0, features="union").fit(own)
    assert union.features_ == GENES
    assert union.codes_[1].shape == (30, 3)
    assert np.allclose(union.transform(own)[1], union.codes_[1])
    shared = FederatedNMF(3, random_state=0, features="intersection").fit(own)
    assert shared.features_ == GENES[4:]
    cut = FederatedNMF(3, random_state=0).fit([frame[GENES[4:]] for frame in frames()])
    assert np.array_equal(shared.components_, cut.components_)
    assert np.allclose(shared.transform(frames())[0], shared.codes_[0])
    with pytest.raises(DataError, match=r"client 1: expected the features of client 0, found missing 'g0'"):
        FederatedNMF(3).fit(own)
    with pytest.raises(
        DataError, match=r"client 0: expected the features of the model, found none of 'g0'.* more; `features='in"
    ):
        FederatedNMF(3).fit(frames()).transform(own[1])
    with pytest.raises(
        DataError, match=r"features of the model only, found also 'g0'.* drop them, or take `features='in"
    ):
        FederatedNMF(3).fit([own[1]]).transform(frames()[0])
    with pytest.raises(DataError, match=r"features='union': expected clients with feature names, found none"):
        FederatedNMF(3, features="union").fit([X, X])
    with pytest.raises(CofactorError, match=r"unknown features 'onion'. Did you mean 'union'"):
        FederatedNMF(3, features="onion").fit([X, X])


def test_codes_come_as_frames_with_the_names_of_rows(model):
    shown = clone(model).set_output(transform="pandas")
    listed = shown.fit_transform(parts(annotated()))
    assert [list(frame.index[:2]) for frame in listed] == [
        ["cell0", "cell1"],
        ["cell30", "cell31"],
        ["cell60", "cell61"],
    ]
    assert list(listed[0].columns) == [f"federatednmf{i}" for i in range(3)]
    assert list(shown.transform(annotated()).index) == CELLS
    assert list(shown.fit_transform(annotated(), groups="site").index) == CELLS
    assert shown.set_output(transform="polars").transform(frames())[1].shape == (30, 3)
    assert isinstance(shown.set_output(transform="default").transform(X), np.ndarray)
    with pytest.raises(CofactorError, match=r"unknown output of transform 'panda'. Did you mean 'pandas'"):
        shown.set_output(transform="panda")
    assert (
        list(FederatedKMeans(2, random_state=0).set_output(transform="pandas").fit_transform(frames())[2].index)
        == CELLS[60:]
    )


def test_a_model_is_written_where_scanpy_looks_for_it(model, tmp_path):
    held = annotated()
    held = held[:, ["g3", *GENES[:3], *GENES[4:]]].copy()  # in another order
    model.write(held)
    assert np.allclose(held.obsm["X_cofactor"], np.vstack(model.codes_))
    assert np.allclose(held.varm["cofactor"][0], model.components_[:, 3])
    assert held.uns["cofactor"]["n_components"] == 3
    assert held.uns["cofactor"]["error"] == pytest.approx(model.reconstruction_err_)
    held.write_h5ad(tmp_path / "held.h5ad")
    again = read_h5ad(tmp_path / "held.h5ad")
    ranked = sc.get.rank_genes_groups_df(again, "1", key="rank_genes_cofactor")
    expected = [m for m in model.markers(top=100) if m.component == 1]
    assert ranked["names"].tolist()[: len(expected)] == [m.feature for m in expected]
    assert np.allclose(ranked["scores"].to_numpy()[: len(expected)], [m.score for m in expected])
    with pytest.raises(CofactorError, match=r"write: expected AnnData, found ndarray"):
        model.write(X)


def test_clusters_and_tiles_are_written_there_too(tmp_path):
    held = annotated()
    centres = FederatedKMeans(3, random_state=0).fit(parts(held))
    centres.write(held)
    assert held.obs["cofactor"].tolist() == [str(label) for found in centres.labels_ for label in found]
    assert list(held.obs["cofactor"].cat.categories) == ["0", "1", "2"]
    assert np.array_equal(held.varm["cofactor"], centres.cluster_centers_.T)
    assert held.uns["cofactor"]["inertia"] == pytest.approx(centres.inertia_)
    held.write_h5ad(tmp_path / "centres.h5ad")
    bits = annotated((X > np.median(X)).astype(np.uint8))
    tiles = FederatedBMF(3, random_state=0).fit(parts(bits))
    tiles.write(bits)
    assert np.array_equal(bits.obsm["X_cofactor"], np.vstack(tiles.codes_))
    assert np.array_equal(bits.varm["cofactor"], tiles.components_.T)
    assert "cofactor" not in bits.obs
    bits.write_h5ad(tmp_path / "tiles.h5ad")
    assert read_h5ad(tmp_path / "tiles.h5ad").uns["cofactor"]["method"] == "boolean-oneshot"


def test_only_the_public_part_is_saved_and_it_transforms(tmp_path):
    model = FederatedNMF(3, random_state=0, prepare="library=50,log1p,hvg=12").fit(annotated(), groups="site")
    model.save(tmp_path / "model.npz")
    with np.load(tmp_path / "model.npz") as file:
        assert not [name for name, a in file.items() if 90 in a.shape or 30 in a.shape]
    again = FederatedNMF.load(tmp_path / "model.npz")
    assert again.codes_ == []
    assert again.n_components_ == 3
    assert again.features_ == model.features_
    assert len(again.features_) == 12
    assert np.allclose(again.transform(annotated()), np.vstack(model.codes_))
    assert again.markers(top=3) == model.markers(top=3)
    assert again.score(annotated()) == pytest.approx(model.score(annotated()))
    again.write(held := annotated())
    assert not held.varm["cofactor"][~held.var_names.isin(model.features_)].any()
    assert pickle.loads(pickle.dumps(model)).features_ == model.features_


def test_what_is_no_saved_model_is_said_so(tmp_path):
    with pytest.raises(CofactorError, match=r"no.npz: expected the public part of a model, found no such file"):
        FederatedNMF.load(tmp_path / "no.npz")
    (tmp_path / "text.npz").write_text("no")
    with pytest.raises(CofactorError, match=r"text.npz: expected the public part of a model"):
        FederatedNMF.load(tmp_path / "text.npz")
    np.savez(tmp_path / "other.npz", a=np.ones(3))
    with pytest.raises(CofactorError, match=r"other.npz: expected a factor \(k x m\), found a"):
        FederatedNMF.load(tmp_path / "other.npz")
    FederatedMF(1, random_state=0).fit((["u", "v"], ["x", "y"], [1.0, 2.0])).save(tmp_path / "ratings.npz")
    with pytest.raises(CofactorError, match=r"a model of ratings: use FederatedMF.load"):
        FederatedNMF.load(tmp_path / "ratings.npz")


def test_preparation_is_done_over_all_clients_and_repeated(model):
    steps = (LibrarySize(50), Log1p())
    made = FederatedNMF(3, random_state=0, prepare=steps).fit(frames())
    ready = [np.log1p(50 * frame / frame.sum(axis=1).to_numpy()[:, None]) for frame in frames()]
    assert np.allclose(made.components_, FederatedNMF(3, random_state=0).fit(ready).components_)
    assert np.allclose(made.transform(frames()[1]), made.codes_[1])
    assert clone(made).prepare == steps
    masked, plain = (
        FederatedNMF(3, prepare="scale", rounds=2, secure=secure).fit(frames()) for secure in (True, False)
    )
    deviations = [fitted._preparation.steps[0].deviations for fitted in (masked, plain)]
    assert np.allclose(*deviations, rtol=1e-5)


def test_raw_counts_get_a_hint_and_only_they_do():
    counts = np.random.default_rng(0).poisson([0.2] * 15 + [20] * 5, size=(90, 20))
    with pytest.warns(UserWarning, match=r"look like raw counts .* prepare='library,log1p'"):
        FederatedNMF(2, random_state=0).fit(annotated(counts.astype(float)))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="the values look like")
        warnings.filterwarnings("error", message="prepare")
        FederatedNMF(2, random_state=0, prepare="library,log1p", tol=1e-2).fit(annotated(counts.astype(float)))
        FederatedNMF(2, random_state=0, tol=1e-2).fit(counts)  # without names they may be anything, as pixels
        FederatedNMF(2, random_state=0, beta_loss="kullback-leibler").fit(annotated(counts.astype(float)))


@pytest.mark.parametrize("form", [pyarrow.Table.from_pandas, pyarrow.RecordBatch.from_pandas])
def test_tables_of_pyarrow_are_data_frames(form):
    """What pyarrow calls columns are their values, which are nobody's names."""
    clients = [frame.reset_index(drop=True) for frame in frames()]
    made = FederatedNMF(3, random_state=0).fit([form(frame) for frame in clients])
    like = FederatedNMF(3, random_state=0).fit(clients)
    assert made.feature_names_in_.tolist() == like.feature_names_in_.tolist()
    np.testing.assert_array_equal(made.components_, like.components_)
    np.testing.assert_array_equal(made.transform(form(clients[0])), like.transform(clients[0]))


def test_ratings_in_tables_of_pyarrow_are_data_frames():
    held = pd.DataFrame(
        {"user": list("aabbc"), "item": list("xyxzx"), "rating": [5.0, 1, 4, 2, 5], "shop": list("ppqqp")}
    )
    there, like = pyarrow.Table.from_pandas(held), FederatedMF(1, random_state=0, rounds=3).fit(held, groups="shop")
    made = FederatedMF(1, random_state=0, rounds=3).fit(there, groups="shop")
    np.testing.assert_array_equal(made.factor_, like.factor_)
    np.testing.assert_array_equal(made.predict(there), like.predict(held))
    assert made.rmse(there) == like.rmse(held)


@pytest.mark.filterwarnings("ignore:.*rounds were not enough")
def test_features_that_a_client_lacks_were_not_observed():
    """The union sent a user with gaps to exact-gaps, and exact-gaps back to other data."""
    some = [frames()[0].iloc[:, :9], frames()[1].iloc[:, 3:]]
    gaps = [frame.mask(np.random.default_rng(0).uniform(size=frame.shape) < 0.1) for frame in some]
    names = list(dict.fromkeys(name for frame in some for name in frame))
    whole = [frame.reindex(columns=names) for frame in gaps]
    found, like = (
        FederatedNMF(3, method="exact-gaps", features=features, random_state=0, rounds=20).fit(clients)
        for features, clients in (("union", gaps), ("same", whole))
    )
    np.testing.assert_array_equal(found.components_, like.components_)
    np.testing.assert_array_equal(found.transform(gaps[1]), like.transform(whole[1]))
    np.testing.assert_allclose(found.marker_scores_, like.marker_scores_)


def test_markers_of_rows_without_names_are_asked_for_with_rows(model):
    bare = FederatedNMF(3, random_state=0).fit([X[SITES == site] for site in "abc"])
    with pytest.raises(CofactorError, match=r"markers: expected a fit of features with names, or rows to score"):
        bare.markers()
    found = bare.markers([X[SITES == site] for site in "abc"], top=4)
    assert [(m.component, GENES[m.feature]) for m in found] == [(m.component, m.feature) for m in model.markers(top=4)]


def test_private_fits_refuse_markers_and_sums_that_were_not_paid_for():
    private = Privacy(epsilon=8, delta=1e-3, clip=1.0, insecure_seed=1)
    with pytest.raises(PrivacyError, match=r"scale is refused in a private run"):
        FederatedNMF(2, privacy=private, prepare="scale").fit(frames())
    model = FederatedNMF(2, privacy=private, prepare="log1p", random_state=0).fit(frames())
    assert model.marker_scores_ is None
    with pytest.raises(PrivacyError, match=r"markers are refused after a private fit"):
        model.markers()


@pytest.mark.parametrize(
    ("spoil", "how", "text"),
    [
        (lambda h: h, {"groups": "hospital"}, r"client 0: expected a column 'hospital' to group by, found 'site'"),
        (lambda h: pd.DataFrame(h.X, columns=GENES), {"groups": "gg1"}, r"no such column; did you mean 'g1'\?"),
        (_twice, {}, r"found 'g1' more than once; adata.var_names_make_unique\(\) renames them"),
        (_nan, {}, r"client 0: NaN: .* row 2, column 7 \('g7'\)"),
        (_unlabelled, {"groups": "site"}, r"groups: expected a label for every row, found 2 rows without"),
    ],
)
def test_bad_annotated_data_are_refused_with_what_to_do(spoil, how, text):
    with pytest.raises(CofactorError, match=text):
        FederatedNMF(2).fit(spoil(annotated()), **how)


def test_bad_layers_are_refused_with_what_there_is():
    held = annotated()
    held.layers["counts"] = held.X
    with pytest.raises(DataError, match=r"expected a layer 'count', found \['counts'\]; did you mean 'counts'"):
        FederatedNMF(2, layer="count").fit(held)
    with pytest.raises(DataError, match=r"expected a raw matrix, found none"):
        FederatedNMF(2, layer="raw").fit(held)
    held.X = None
    with pytest.raises(DataError, match=r"expected a matrix X, found none; choose one of the layers \['counts'\]"):
        FederatedNMF(2).fit(held)
    with pytest.raises(CofactorError, match=r"layer 'counts' is for AnnData, found ndarray"):
        FederatedNMF(2, layer="counts").fit(X)


def test_fits_say_how_long_they_took_and_what_they_take():
    model = FederatedNMF(2, random_state=0, rounds=4, tol=0).fit(X)
    assert (model.n_iter_, model.n_components_) == (4, 2)
    ratings = FederatedMF(1, random_state=0, rounds=3, tol=0).fit((["u", "v"], ["x", "y"], [1.0, 2.0]))
    assert (ratings.n_iter_, ratings.n_components_) == (3, 1)
    assert ratings.__sklearn_tags__().transformer_tags is not None
    assert FederatedBMF().__sklearn_tags__().input_tags.positive_only


FRAME = pd.DataFrame(X, index=CELLS, columns=GENES)
WEIGHTS = pd.DataFrame(np.linspace(0.5, 1.5, X.size).reshape(X.shape), index=CELLS, columns=GENES)
TURNED = {
    "groups": pd.Series(SITES, index=CELLS)[::-1],
    "sample_weight": pd.Series(np.arange(90.0), index=CELLS)[::-1],
    "W": pd.DataFrame(np.ones((90, 3)), index=CELLS)[::-1],
    "cell_weight": WEIGHTS.iloc[:, ::-1],
    "H": pd.DataFrame(np.ones((3, 20)), columns=GENES).iloc[:, ::-1],
}


@pytest.mark.parametrize("name", TURNED)
@pytest.mark.parametrize("held", [FRAME, annotated()], ids=["frame", "AnnData"])
def test_what_is_named_in_another_order_is_not_taken_by_place(held, name):
    with pytest.raises(CofactorError, match=rf"{name}: expected the (rows|features) in the order of X, found"):
        FederatedNMF(3).fit(held, **{name: TURNED[name]})


def test_of_a_list_of_clients_each_is_asked():
    held = [FRAME[:40], FRAME[40:]]
    with pytest.raises(CofactorError, match=r"sample_weight: .*'cell89' at place 0, where X has 'cell40'"):
        FederatedNMF(3).fit(held, sample_weight=[np.ones(40), pd.Series(np.ones(50), index=CELLS[:39:-1])])
    model = FederatedNMF(3, rounds=2, tol=0).fit(held, cell_weight=[WEIGHTS[:40], WEIGHTS[40:]])
    with pytest.raises(CofactorError, match="cell_weight: expected the features in the order of X"):
        model.transform(FRAME, cell_weight=WEIGHTS.iloc[:, ::-1])


@pytest.mark.parametrize(
    "index", [CELLS, range(90), [f"row{i}" for i in range(90)][::-1]], ids=["theirs", "numbers", "others"]
)
def test_names_that_agree_or_say_nothing_leave_places_as_they_are(index):
    plain = FederatedNMF(3, random_state=0, rounds=2, tol=0).fit(X, groups=SITES)
    model = FederatedNMF(3, random_state=0, rounds=2, tol=0).fit(FRAME, groups=pd.Series(SITES, index=list(index)))
    np.testing.assert_array_equal(model.components_, plain.components_)


def test_below_the_estimators_names_are_not_matched_and_frames_must_agree():
    """A rank scan took columns of data frames by place, whatever they were called."""
    a, b = FRAME[:40], FRAME[40:]
    scan = {"ranks": range(2, 4), "seeds": 2}
    np.testing.assert_array_equal(select_rank([a, b], **scan).heldout, select_rank([X[:40], X[40:]], **scan).heldout)
    with pytest.raises(DataError, match="client 1: expected columns of the same names in the same order as client 0"):
        select_rank([a, b.iloc[:, ::-1]], **scan)
    with pytest.raises(DataError, match="client 0: expected a matrix, found AnnData; give its matrix"):
        select_rank(parts(annotated()), **scan)


def test_complex_columns_are_no_numbers():
    with pytest.raises(DataError, match="expected numbers, found others in the columns 'phase'"):
        FederatedNMF(3).fit(FRAME.assign(phase=1j))
