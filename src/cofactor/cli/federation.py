"""``cofactor federation``, ``serve``, ``join``, ``approve``: a federation of organisations over a network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cofactor.cli.console import plain

federation = typer.Typer(help="Make a federation: certificates and invites.", no_args_is_help=True)

Home = Annotated[Path, typer.Option("--home", help="The coordinator's folder of the federation.")]


@federation.command()
def init(
    clients: Annotated[str, typer.Option(help="Names of the clients, as alice,bob,carol.")],
    host: Annotated[str, typer.Option(help="Name or address of the server, as clients reach it.")] = "localhost",
    port: Annotated[int, typer.Option(help="Port of the server; clients join on the next one.")] = 8002,
    passphrase: Annotated[str | None, typer.Option(help="Seal the invites; tell it by another way.")] = None,
    home: Home = Path("federation"),
) -> None:
    """Make the certificates of a federation, and one file for each client to hand over.

    Example: cofactor federation init --clients alice,bob,carol --host fed.example.org
    """
    from cofactor.federation.invite import Federation

    names = [name.strip() for name in clients.split(",")]
    made = Federation.init(home, names, host=host, port=port, passphrase=passphrase)
    for name in made.clients:
        print(home / "invites" / f"{name}.cofactor")


@federation.command()
def invite(
    client: Annotated[str, typer.Argument(help="Name of the client.")],
    passphrase: Annotated[str | None, typer.Option(help="Seal the invite; tell it by another way.")] = None,
    home: Home = Path("federation"),
) -> None:
    """Make one more invite: of a new client, or of one that has lost its folder; the server may be running.

    Example: cofactor federation invite dave
    """
    from cofactor.federation.invite import Federation

    Federation.read(home).invite(client, passphrase)
    print(home / "invites" / f"{client}.cofactor")


def serve(home: Home = Path("federation")) -> None:
    """Run the server of a federation until it is stopped.

    Example: cofactor serve
    """
    from cofactor.federation.start import serve as run

    run(home, say=_say)


def join(
    invite: Annotated[Path, typer.Argument(help="The file that the coordinator handed over.")],
    data: Annotated[Path, typer.Option(help="The data of this client; they stay here.")],
    *,
    home: Annotated[Path | None, typer.Option(help="Folder for key, policy and results. Default: NAME-home.")] = None,
    layer: Annotated[str | None, typer.Option(help="Layer of an h5ad file.")] = None,
    leave_out: Annotated[
        str | None, typer.Option(help="Columns or features that are left out, as patient_id,age.")
    ] = None,
    passphrase: Annotated[str | None, typer.Option(help="Of the invite, if the coordinator has set one.")] = None,
) -> None:
    """Run a client of a federation until it is stopped; its key is made here and stays here.

    Example: cofactor join alice.cofactor --data mine.h5ad
    """
    from cofactor.data.formats.table import listed
    from cofactor.federation.start import take_part

    take_part(invite, data, home, layer=layer, left_out=listed(leave_out), passphrase=passphrase, say=_say)


def approve(
    home: Annotated[Path, typer.Argument(help="The folder of this client.")],
    run: Annotated[str, typer.Argument(help="The run that waits.")],
    deny: Annotated[bool, typer.Option("--deny", help="Say no.")] = False,
) -> None:
    """Approve or deny a run at a client whose policy asks a person.

    Example: cofactor approve alice-home 6f3a
    """
    from cofactor.federation.policy import answer

    asked = answer(home, run, not deny)["config"]
    _say(f"{'denied' if deny else 'approved'}: method {asked['method']}, rank {asked['rank']}")


def watch(
    folder: Annotated[Path, typer.Argument(help="A run folder of a federation, or the home of a client.")],
    port: Annotated[int, typer.Option(help="Port on this machine; 0 is any.")] = 0,
) -> None:
    """Show a live page on this machine: clients, rounds, bytes, faults; at a client, what left and what is asked for.

    Example: cofactor watch run
    """
    from cofactor.federation.watch import open_page

    server = open_page(folder, port)
    _say(server.url)
    server.serve_forever()


def examine(path: Path, passphrase: str | None, *, as_json: bool) -> int:
    """Print what was found about a federation; return 0 if all of it is in order."""
    import json

    from cofactor.federation.examine import examine as look

    found = look(path, passphrase)
    if as_json:
        print(json.dumps([finding._asdict() for finding in found], indent=1))
    else:
        for finding in found:
            _say(f"{'ok ' if finding.good else 'BAD'} {finding.what}: {finding.words}")
    return 0 if all(finding.good for finding in found) else 1


def fit(given: dict[str, Any], out: Path, config: Path | None, home: Path, *, least: int | None, quiet: bool) -> None:
    """Run over the clients of a federation, and bring the factor back; ``least`` of them must answer in a round."""
    from dataclasses import replace

    from cofactor.engines.flare_clients import Patience
    from cofactor.federation import submitting
    from cofactor.federation.invite import Federation
    from cofactor.federation.terms import read_config, settled
    from cofactor.types import CofactorError

    made = Federation.read(home)
    if config is not None:
        found, patience = read_config(config, made.clients)
    else:
        found, patience = settled({"inputs": made.clients, **given, "engine": "flare"}), Patience()
    if least is not None:
        if not 1 <= least <= len(found.inputs):
            raise CofactorError(f"--min-clients: expected 1 to {len(found.inputs)} (the clients), found {least}.")
        patience = replace(patience, least=least)
    if not quiet:
        if found.why:
            _say(f"Method {found.why}")
        _say(f"asks {', '.join(found.inputs)} by the server at {made.host}, port {made.port}")
    submitting.fit(made, found, patience, out, _teller(quiet=quiet))


def resume(out: Path, *, quiet: bool) -> None:
    """Go on with a run of a federation."""
    from cofactor.federation import submitting

    submitting.resume(out, _teller(quiet=quiet))


def forget(out: Path, client: str, *, quiet: bool) -> None:
    """Take a client out of a run of a federation."""
    from cofactor.federation import submitting

    submitting.forget(out, client, _teller(quiet=quiet))


def is_federated(out: Path) -> bool:
    """Whether a run folder belongs to a federation."""
    from cofactor.federation.driver import NOTE

    return (out / NOTE).exists()


def _teller(*, quiet: bool) -> Any:
    def tell(kind: str, line: dict[str, Any]) -> None:
        if quiet:
            return
        if kind == "history":
            loss = "" if line["loss"] is None else f"loss {line['loss']:.6g}, "
            _say(f"round {line['round'] + 1}: {loss}{line['participants']} clients, {line['seconds']:.2f} s")
        else:
            _say(f"{line['client'] or 'run'}: {line['what']}")

    return tell


def _say(text: str) -> None:
    print(plain(text), flush=True)
