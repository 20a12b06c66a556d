"""From files to clients: read, match features by name, split or group; every process of a team takes its own."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from cofactor.data import harmonise, load, partition
from cofactor.data.formats.failing import State, state_of
from cofactor.data.formats.table import Table
from cofactor.engines.team import kept
from cofactor.jobs import weighing
from cofactor.jobs.config import Config
from cofactor.jobs.place import Place
from cofactor.jobs.rated_files import held_out, stacked, titles, triples
from cofactor.methods.blocks import blocks
from cofactor.methods.build import AUTO, Facts, refuse_dealt, settle
from cofactor.methods.refusals import AGAIN
from cofactor.privacy.errors import PrivacyError
from cofactor.types import Array, CofactorError, Data


@dataclass(frozen=True)
class Inputs:
    """The clients of a run that are this process's: names, data, shared feature names and where each came from.

    ``known`` are the features of every client of the run, where they differ; ``held`` what ratings are held out;
    ``rows`` the names of the rows of each client, where they have some; ``titles`` what people call the features;
    ``weights`` how often the rows of each client count, where not once, and ``scales`` by what they were scaled for it;
    ``states`` what all files of the run were like before any was read.
    """

    names: list[str]
    data: list[Data]
    feature_names: list[str] | None
    sources: list[str]
    known: list[Array] | None = None
    held: list[Any] = field(default_factory=list)
    rows: list[list[str] | None] = field(default_factory=list)
    titles: list[str] | None = None
    weights: list[Array] = field(default_factory=list)
    scales: list[Array] = field(default_factory=list)
    states: Mapping[str, State] = field(default_factory=dict)

    @property
    def plain(self) -> list[Data]:
        """The rows as they were before each was scaled by how often it counts."""
        return weighing.scaled(self.data, [1 / s for s in self.scales]) if self.scales else self.data

    def labels(self) -> list[str]:
        """Return what errors call the clients: their names, and the files they came from."""
        return [f"{name} ({path})" for name, path in zip(self.names, self.sources, strict=True)]


def read(config: Config, place: Place) -> tuple[Config, Inputs]:
    """Read the clients of this process; return them with the configuration as it is settled now that data are seen.

    In a private run other processes hear nothing of what is in a file that cannot be read.
    """
    if config.together and place.count > 1:
        refuse_dealt(config.plan)
    _check_once(config)
    states = {path: state_of(Path(path)) for path in config.inputs}
    with _kept(config):
        config, inputs = _read(config, place)
    return config, replace(inputs, states=states)


def _check_once(config: Config) -> None:
    """Tell of files that are given more than once: their rows count as often, and no epsilon is the price of that."""
    held = [_file(path) for path in config.inputs]
    again = [config.inputs[held.index(file)] for file, times in Counter(held).items() if times > 1]
    if again and config.privacy is not None:
        raise PrivacyError(AGAIN.format(what=f"{again[0]}: expected each file", again="it"))
    for path in again:
        warnings.warn(f"{path}: is given more than once, so that its rows count as often.", UserWarning, stacklevel=3)


def _file(path: str) -> Any:
    """Return what a file is, whatever it is called here: links of both kinds lead to the same one."""
    try:
        found = Path(path).stat()
    except OSError:  # another machine's, or nobody's, which is said when it is read
        return path
    return found.st_dev, found.st_ino


def _kept(config: Config) -> AbstractContextManager[None]:
    return kept("of a file", private=True) if config.privacy is not None else nullcontext()


def _read(config: Config, place: Place) -> tuple[Config, Inputs]:
    if config.kind == "ratings":
        return config, rated(config, place)
    if len(config.inputs) > 1:
        config = _chosen(config, None)
        return config, matched(config, place)
    table = read_table(config.inputs[0], config, opens=place.opens)
    if table.shape[0] < place.count and config.privacy is None:  # the number of rows is nobody's business
        raise CofactorError(
            f"{config.inputs[0]}: expected at most {table.shape[0]} processes (its rows), found {place.count}."
        )
    together, config = config.together, _chosen(config, table)
    if together and place.count > 1:
        config = replace(config, split=place.count, by="rows")
    return config, (in_blocks if config.kind == "blocks" else cut)(config, table, place)


def _chosen(config: Config, table: Table | None) -> Config:
    """Return the configuration with a method in place of "auto", and the reason."""
    if config.method != AUTO:
        return config
    facts = Facts(2, 1, 1)  # several clients keep their rows: nothing else counts
    if table is not None and config.together:
        facts = Facts(1, table.shape[1], table.shape[0], some=table.X)
    chosen = settle(AUTO, config.rank, config.plan, facts)
    return replace(config, method=chosen.method, why=chosen.why)


def read_table(path: str, config: Config, *, opens: bool | None = None) -> Table:
    """Read one file of a configuration; ``opens`` leaves formats that can be read in parts on disk."""
    columns = [name for name in (config.group_by, config.label, config.row_weights, *config.left_out) if name]
    how: Any = {"layer": config.layer, "guesses": config.privacy is None, "distinct": config.features != "position"}
    table = load.read_features(path, aside=columns, opens=opens, **how)
    if isinstance(table.X, np.memmap):  # whoever writes to the file meanwhile would change it here, or end the process
        table = replace(table, X=np.array(table.X))
    if config.cell_weights is not None:
        table = weighing.of_cells(table, config.cell_weights)
    return harmonise.without(table, config.left_out) if config.left_out and not load.has_columns(path) else table


def in_blocks(config: Config, table: Table, place: Place) -> Inputs:
    """Cut one file into row and column blocks."""
    count = config.split or 1
    names, mine = [f"client-{j}" for j in range(count)] if config.split else file_names(config.inputs), place.own(count)
    data: list[Data] = [*blocks(table.X, count, mine)]
    return Inputs(names[mine], data, table.feature_names, [config.inputs[0]] * len(data))


def cut(config: Config, table: Table, place: Place) -> Inputs:
    """Make clients of one file: one, or several by a column or by a partitioner."""
    weights = weighing.of_rows(table, config.row_weights)
    if config.group_by:
        groups = partition.by_group(table.column(config.group_by))
        names, parts = [str(name) for name in groups], list(groups.values())
    elif config.split:
        parts = _split(table, config)
        names = [f"client-{j}" for j in range(len(parts))]
    else:
        names = file_names(config.inputs)
        found = Inputs(names, [table.X], table.feature_names, list(config.inputs), rows=[table.row_names])
        return found if weights is None else replace(found, weights=[weights])
    there = [j for j, name in enumerate(names) if name not in config.forgotten]
    names, parts = [names[j] for j in there], [parts[j] for j in there]
    mine = place.own(len(parts))
    data = [place.take(table.X, part) for part in parts[mine]]
    rows = [None if table.row_names is None else [table.row_names[i] for i in part] for part in parts[mine]]
    counts = [] if weights is None else [weights[part] for part in parts[mine]]
    sources = [config.inputs[0]] * len(data)
    return Inputs(names[mine], data, table.feature_names, sources, rows=rows, weights=counts)


def _split(table: Table, config: Config) -> list[Array]:
    count, n = config.split or 1, table.shape[0]
    if config.privacy is not None and n < count:  # clients may be empty: a refusal would tell how many rows there are
        return [*np.arange(n)[:, None], *([np.zeros(0, dtype=np.int64)] * (count - n))]
    if config.by == "iid":
        return partition.iid(table.shape[0], count, seed=config.seed)
    if config.by == "rows":
        return partition.sorted_by(np.arange(table.shape[0]), count)
    labels = table.column(config.label or "")
    if config.by == "sorted":
        return partition.sorted_by(labels, count)
    return partition.dirichlet(labels, count, alpha=config.alpha, seed=config.seed)


def matched(config: Config, place: Place) -> Inputs:
    """Read this process's files, and match features by name; of the others' files, names of features are enough."""
    with place.guard("the inputs"), _kept(config):
        own = place.own(len(config.inputs))
        mine = [read_table(path, config, opens=place.opens if place.remote else None) for path in config.inputs[own]]
    tables = harmonise.among(mine, own, place.together("the clients", list(map(harmonise.head, mine))))
    features, data, known = harmonise.merged(tables, config.features)  # type: ignore[arg-type]
    counts = [w for table in mine if (w := weighing.of_rows(table, config.row_weights)) is not None]
    known = None if config.kind == "gaps" else known  # to which features that a client lacks were not observed
    names, sources, rows = file_names(config.inputs)[own], list(config.inputs)[own], [t.row_names for t in mine]
    return Inputs(names, data[own], features, sources, known, rows=rows, weights=counts)


def file_names(paths: Sequence[str]) -> list[str]:
    """Name clients after their files; where names repeat after the folders that tell them apart, or with a number.

    >>> file_names(["north/data.npy", "south/data.npy", "east.csv"]), file_names(["a/x.csv", "a/x.npy"])
    (['north', 'south', 'east'], ['x-0', 'x-1'])
    """
    stems = [Path(p).name.split(".")[0] for p in paths]
    again = {stem for stem in stems if stems.count(stem) > 1}
    folders = [Path(p).resolve().parent.parts for p in paths]
    names = list(stems)
    for stem in again:
        here = [j for j, other in enumerate(stems) if other == stem]
        level = next(
            (i for i in range(1, 4) if len({folders[j][-i : -i + 1 or None] for j in here}) == len(here)), None
        )
        for j in here:
            names[j] = folders[j][-level] if level else f"{stem}-{j}"
    return names if len(set(names)) == len(names) else [f"{n}-{j}" if n in again else n for j, n in enumerate(stems)]


def rated(config: Config, place: Place) -> Inputs:
    """Read files of ratings, each of them a client; items are matched by name.

    The users of one file are clients on request. Several processes share one file: blocks of its users are clients.
    """
    tables = triples(config)
    items, R = stacked(tables)
    users = [name for table in tables for name in table.row_names or []]
    if len(users) < place.count:
        raise CofactorError(f"expected at most {len(users)} processes (the users), found {place.count}.")
    if note := harmonise.near_misses(tables):
        warnings.warn(f"{note} Items of other names are other items.", UserWarning, stacklevel=3)
    split = held_out(config, R)
    if config.users_as_clients:
        bounds, names = list(range(len(users) + 1)), users
    elif config.together and place.count > 1:
        bounds = np.linspace(0, len(users), place.count + 1).astype(int).tolist()
        names = [f"client-{j}" for j in range(place.count)]
    else:
        bounds, names = np.cumsum([0, *(table.shape[0] for table in tables)]).tolist(), file_names(config.inputs)
    sources = list(config.inputs) if len(tables) > 1 else list(config.inputs) * len(names)
    own = place.own(len(names))
    parts = list(pairwise(bounds))[own]
    held = [split.test[a:b] for a, b in parts] if split.test.nnz else []
    data = [split.train[a:b] for a, b in parts]
    rows = [users[a:b] for a, b in parts]
    return Inputs(names[own], data, items, sources[own], held=held, rows=[*rows], titles=titles(config, items))
