"""``--method auto``: the method that the data of a configuration call for."""

from __future__ import annotations

from dataclasses import replace

from cofactor.methods.choice import Choice, choose, density_of
from cofactor.runs.config import Config
from cofactor.runs.inputs import read_table


def settled(config: Config) -> Config:
    """Return the configuration with a method in place of "auto", and the reason."""
    if config.method != "auto":
        return config
    if config.engine == "mpi":
        from cofactor.engines.processes import Processes

        choice = Processes().alone("the inputs", lambda: chosen(config, blocks=True))
    else:
        choice = chosen(config)
    return replace(config, method=choice.method, why=choice.why)


def chosen(config: Config, *, blocks: bool | None = None) -> Choice:
    """Choose the method for the data of a configuration."""
    if not config.together:
        return choose((0, 0), config.rank, clients=2)
    table = read_table(config.inputs[0], config, blocks=blocks)
    return choose(table.shape, config.rank, density=density_of(table.X))
