"""The catalog: every name builds its method, and wrong names or options say what would be right."""

import pytest
from tests.helpers.methods import KIND, NAMES, make

from cofactor.methods import catalog
from cofactor.types import CofactorError

PROMISED = [
    "exact",
    "oneshot",
    "fnmf-lap",
    "fnmf-lap-rho",
    "fnmf-sinkhorn",
    "fnmf-sinkhorn-rho",
    "fnmf-knn",
    "fedavg",
    "fedprox",
    "ipalm",
    "mur",
]


def test_every_promised_name_is_there_the_default_first():
    assert catalog.names()[0] == "exact"
    assert set(PROMISED) <= set(catalog.names())
    assert len(set(catalog.names())) == len(catalog.names())


def test_every_entry_is_of_one_kind_and_says_what_it_is():
    for kind in catalog.KINDS:
        assert [name for name in NAMES if KIND[name] == kind] == catalog.names(kind)
    assert len(NAMES) == len(set(NAMES)) == len(catalog.ENTRIES)
    for entry in catalog.ENTRIES:
        assert entry.what.endswith("."), entry.name
        assert set(entry.secure_options) | set(entry.private_options) <= set(entry.options)


def test_an_unknown_kind_suggests_the_near_one():
    with pytest.raises(CofactorError, match=r"unknown kind 'rating'\. Did you mean 'ratings'\?"):
        catalog.names("rating")


@pytest.mark.parametrize("name", NAMES)
def test_methods_have_the_rank_and_are_frozen(name):
    method = make(name, 7)
    assert method.rank == 7
    with pytest.raises(AttributeError):
        method.rank = 3


@pytest.mark.parametrize(
    ("wrong", "right"), [("exat", "exact"), ("fnmf_lap", "fnmf-lap"), ("onshot", "oneshot"), ("FedAvg", "fedavg")]
)
def test_unknown_name_suggests_the_near_one(wrong, right):
    with pytest.raises(CofactorError, match=f"{wrong}.*Did you mean '{right}'"):
        catalog.make(wrong, 3)


def test_name_without_a_near_one_lists_all():
    with pytest.raises(CofactorError) as error:
        catalog.make("zzz", 3)
    assert "Did you mean" not in str(error.value)
    assert all(name in str(error.value) for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_unknown_option_is_named_with_the_method(name):
    with pytest.raises(CofactorError, match=f"unknown option of method '{name}' 'speed'"):
        catalog.make(name, 3, speed=3)


def test_unknown_option_lists_the_options():
    with pytest.raises(CofactorError) as error:
        catalog.make("fedprox", 3, gamma=3)
    assert all(option in str(error.value) for option in ("sweeps", "anchor", "common_start"))


def test_unknown_start_lists_the_starts():
    with pytest.raises(CofactorError) as error:
        catalog.make("exact", 3, start="svd2")
    assert all(word in str(error.value) for word in ("svd2", "summaries", "lap", "random"))


@pytest.mark.parametrize("rank", [0, -1, 2.5])
def test_rank_must_be_a_positive_whole_number(rank):
    with pytest.raises(CofactorError, match=f"rank.*{rank}"):
        catalog.make("exact", rank)


def test_options_reach_the_method():
    assert catalog.make("exact", 3, momentum=0.0).then.momentum == 0
    assert catalog.make("exact", 3, sweeps=7).then.update.sweeps == 7
    assert catalog.make("exact", 3, local_rank=9).first.method.local_rank == 9
    assert catalog.make("fedavg", 3, sweeps=5).sweeps == 5
    assert catalog.make("fnmf-lap", 3, gamma=0.5).gamma == 0.5
    assert catalog.make("oneshot", 3, restarts=2).method.aggregator.restarts == 2


def test_one_upload_methods_have_one_round():
    for name in ("oneshot", "ipalm", "mur", "oneshot-lap"):
        assert catalog.make(name, 3).rounds == 1


@pytest.mark.parametrize("name", catalog.names("blocks"))
def test_methods_on_blocks_need_the_shape_of_the_matrix(name):
    with pytest.raises(CofactorError, match=f"method '{name}' depends on the matrix: expected its shape"):
        catalog.make(name, 3)


@pytest.mark.parametrize("name", catalog.names("private"))
def test_private_methods_need_a_budget(name):
    with pytest.raises(CofactorError, match=f"method '{name}' adds noise: expected privacy=Privacy"):
        catalog.make(name, 3)
