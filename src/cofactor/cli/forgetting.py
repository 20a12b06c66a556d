"""``cofactor forget``: take a client out of a run."""

from __future__ import annotations

from typing import Annotated

import typer

from cofactor.cli.options import Json, Quiet, RunPath


def forget(
    run: RunPath,
    client: Annotated[str, typer.Option(help="The client to forget, by its name.")],
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make a run what it would have been without a client; where its method cannot, say that only a new run forgets.

    Example: cofactor forget run --client bob
    """
    from cofactor.cli import federation, verbs
    from cofactor.cli.progress import Progress
    from cofactor.jobs import forget as jobs
    from cofactor.jobs.folder import RunFolder

    if federation.is_federated(run if run.exists() else jobs.anew(run)):  # whoever was here before was killed
        federation.forget(run, client, quiet=quiet or json)
    else:
        with verbs.interrupted(run), Progress(quiet=quiet or json) as progress:
            jobs.forget(run, client, callbacks=[progress])
    verbs.conclude(RunFolder.open(run), as_json=json, quiet=quiet)
