"""Run the method of a configuration: in rounds, or as a stream where it is asynchronous."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cofactor.engines.rounds import Callback, Run, Watch, run
from cofactor.engines.stream import StreamRun, run_stream
from cofactor.method import Method
from cofactor.runs import private
from cofactor.runs.build import rounds_of, stop_of, streams
from cofactor.runs.config import Config
from cofactor.runs.folder import RunFolder
from cofactor.types import Data


def carry(
    folder: RunFolder,
    config: Config,
    method: Method,
    data: Sequence[Data],
    *,
    clients: int,
    watch: Watch | None,
    callbacks: Sequence[Callback],
    engine: Any = None,
) -> Run:
    """Run and return what came out; a stream merges as many updates as that many rounds of all clients have.

    A stream has no checkpoint: resumed, it begins anew.
    """
    if streams(config):
        updates = config.rounds * clients
        return run_stream(
            method, data, updates=updates, seed=config.seed, watch=watch, callbacks=callbacks, engine=engine
        )
    return run(
        method,
        data,
        rounds=rounds_of(config, method),
        seed=config.seed,
        engine=private.carrier(config, engine),
        participation=config.participation,
        stop=stop_of(config),
        checkpoint=folder.checkpoint,
        watch=watch,
        callbacks=callbacks,
    )


def write_arrivals(folder: RunFolder, outcome: Run, names: Sequence[str]) -> None:
    """Write who answered when, and on how old a factor; nothing for a run of rounds."""
    if isinstance(outcome, StreamRun):
        lines = [arrival._asdict() | {"client": names[arrival.client]} for arrival in outcome.arrivals]
        folder.write_json("arrivals.json", {"arrivals": lines, "absent": [names[j] for j in outcome.absent]})
