"""The verbs of the command line. Each only reads its arguments; the work is in the library."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cofactor import __version__
from cofactor.cli import federation, fitting, forgetting, keyring, privacy, recommending, reproducing
from cofactor.cli.interrupts import Verbs
from cofactor.cli.options import Json, Quiet, RunPath, Seed, with_options
from cofactor.jobs.settings import Settings

app = typer.Typer(
    name="cofactor",
    cls=Verbs,
    help="Factorize together what cannot be pooled.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

app.add_typer(privacy.privacy, name="privacy")
app.add_typer(privacy.ledger, name="ledger")
app.add_typer(keyring.keys, name="keys")
app.command()(privacy.audit)
app.add_typer(federation.federation, name="federation")
for command in (
    federation.serve,
    federation.join,
    federation.approve,
    federation.watch,
    forgetting.forget,
    recommending.recommend,
    recommending.similar,
    reproducing.reproduce,
):
    app.command()(command)


def _version(asked: bool) -> None:
    if asked:
        print(f"cofactor {__version__}")
        raise typer.Exit


@app.callback()
def root(
    debug: Annotated[bool, typer.Option(help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Factorize together what cannot be pooled."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture and the report.")] = Path("demo"),
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Five clients with skewed digits learn one factor; compare with pooling and with the published methods.

    Example: cofactor demo --out demo
    """
    from cofactor.cli.demo import run_demo

    run_demo(out, seed=seed, as_json=json)


app.command()(with_options(fitting.fit, Settings))
app.command()(with_options(fitting.consensus, Settings, without=fitting.SETTLED))


@app.command()
def resume(run: RunPath, json: Json = False, quiet: Quiet = False) -> None:
    """Continue a run that was interrupted; it ends with the same factor as if it had not been.

    Example: cofactor resume run
    """
    from cofactor.cli import verbs

    verbs.resume(run, as_json=json, quiet=quiet)


@app.command()
def transform(
    run: RunPath,
    file: Annotated[Path, typer.Argument(help="New rows with the features of the run.")],
    out: Annotated[Path, typer.Option(help="Where codes go: .npy, .csv, .tsv, .parquet, .h5ad.")] = Path("codes.npy"),
    layer: Annotated[str | None, typer.Option(help="Layer of an h5ad file.")] = None,
    client: Annotated[
        str | None, typer.Option(help="Of shared-own: the client whose rows they are, and whose own part counts.")
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compute the codes of new rows for the shared factor, on the machine that holds them.

    Tables keep the names of rows; an h5ad file is written again with codes, factor and markers in it.

    Example: cofactor transform run new.csv --out codes.csv

    Example: cofactor transform run new.h5ad --out new_with_codes.h5ad
    """
    from cofactor.cli import verbs

    verbs.transform(run, file, out, layer=layer, client=client, as_json=json, quiet=quiet)


@app.command()
def evaluate(
    run: RunPath,
    pooled: Annotated[bool, typer.Option("--pooled", help="Pool the inputs (all are here) for a bound.")] = False,
    json: Json = False,
) -> None:
    """Show the error of every client, next to its own local fit and, on request, to a pooled run.

    Example: cofactor evaluate run --pooled
    """
    from cofactor.cli import verbs

    verbs.evaluate(run, pooled=pooled, as_json=json)


@app.command()
def rank(
    inputs: Annotated[list[str], typer.Argument(help="Files; each is a client.")],
    ranks: Annotated[str, typer.Option("--rank", "-k", help="Ranks to scan, as 2:30 or 2:30:2 or 5,10,20.")] = "2:20",
    seeds: Annotated[int, typer.Option(help="Starts per rank, for stability.")] = 3,
    out: Annotated[Path | None, typer.Option(help="A run folder (or a new one) for rank.json and rank.png.")] = None,
    group_by: Annotated[str | None, typer.Option(help="One file: a column that names the client.")] = None,
    features: Annotated[str, typer.Option(help="Match features by name: same, intersection, position.")] = "same",
    layer: Annotated[str | None, typer.Option(help="Layer of h5ad files.")] = None,
    leave_out: Annotated[str | None, typer.Option(help="Columns or features that are left out.")] = None,
    prepare: Annotated[str | None, typer.Option(help="Steps before, as those of `cofactor fit`.")] = None,
    ratings: Annotated[bool, typer.Option("--ratings", help="Files are triples user,item,rating.")] = False,
    boolean: Annotated[bool, typer.Option("--boolean", help="0/1 data: ranks of Boolean factors.")] = False,
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Suggest a rank from held-out cells and stability; one upload per client, the rest are scalars.

    With --ratings ranks are judged by the RMSE on held-out ratings, with --boolean by features hidden from new rows.

    Example: cofactor rank a.h5ad b.h5ad -k 2:30 --out run

    Example: cofactor rank ratings.csv --ratings -k 2,5,10,20

    Example: cofactor rank bits.npz --boolean -k 2:12
    """
    from cofactor.cli import verbs
    from cofactor.jobs.config import Config

    settings: dict[str, Any] = {"features": features, "layer": layer, "group_by": group_by, "seed": seed}
    settings |= {"prepare": prepare, "leave_out": leave_out, "ratings": ratings, "boolean": boolean}
    config = Config(inputs, 1, **settings)
    verbs.rank(config, _ranks(ranks), out, seeds=seeds, as_json=json, quiet=quiet)


@app.command()
def passports(run: RunPath, json: Json = False) -> None:
    """Show each component of a run: share, clients that find it, stability, what it moved in the last rounds, features.

    Example: cofactor passports run
    """
    from cofactor.cli import verbs

    verbs.passports(run, as_json=json)


@app.command()
def markers(
    run: RunPath,
    top: Annotated[int, typer.Option(help="How many features of each component.")] = 20,
    out: Annotated[Path | None, typer.Option(help="A tsv file for the table.")] = None,
    json: Json = False,
) -> None:
    """Show the features that go with each component more than with the others, best first.

    Example: cofactor markers run --top 20 --out markers.tsv
    """
    from cofactor.cli import verbs

    verbs.markers(run, top, out, as_json=json)


@app.command()
def report(
    run: RunPath,
    out: Annotated[Path | None, typer.Option(help="The HTML file.")] = None,
    pictures: Annotated[bool, typer.Option("--pictures", help="Boolean runs: add pictures, which show rows.")] = False,
) -> None:
    """Write the report of a run: one HTML file that needs no network.

    Example: cofactor report run
    """
    from cofactor.jobs import new_rows
    from cofactor.jobs.folder import RunFolder
    from cofactor.report.html import render

    if out is not None:
        new_rows.spare(RunFolder.open(run), out, own="report.html")
    print(render(run, out, pictures=pictures))


@app.command()
def methods(
    names: Annotated[list[str] | None, typer.Argument(help="Only these, with their options.", metavar="NAME")] = None,
    json: Json = False,
) -> None:
    """List the methods by name, with what each one sends; of those that are named, their options, too.

    Example: cofactor methods exact
    """
    from cofactor.cli.methods import show_methods

    show_methods(names or (), as_json=json)


@app.command()
def doctor(
    json: Json = False,
    federation_: Annotated[
        Path | None,
        typer.Option(
            "--federation", help="Check a federation: the folder of the coordinator or a client, or an invite."
        ),
    ] = None,
    passphrase: Annotated[str | None, typer.Option(help="Of an invite that is sealed.")] = None,
) -> None:
    """Check this installation: versions, optional packages, threads, a small run.

    Example: cofactor doctor

    Example: cofactor doctor --federation alice.cofactor
    """
    if federation_ is not None:
        raise typer.Exit(federation.examine(federation_, passphrase, as_json=json))
    from cofactor.cli.doctor import examine

    raise typer.Exit(examine(as_json=json))


@app.command("compile")
def compile_(quiet: Quiet = False) -> None:
    """Compile the loops of all kinds of data now, as when an image is built: first fits find them on disk.

    They are kept beside the package or, where that cannot be written, for this user; NUMBA_CACHE_DIR
    names another place.

    Example: cofactor compile
    """
    from cofactor.cli.compiling import compile_all

    compile_all(quiet=quiet)


def _ranks(text: str) -> list[int]:
    """Read ``2:30`` (both ends), ``2:30:2`` or ``5,10,20``."""
    try:
        if ":" not in text:
            return [int(part) for part in text.split(",")]
        low, high, *step = (int(part) for part in text.split(":"))
        return list(range(low, high + 1, *step))
    except ValueError as error:
        raise typer.BadParameter(f"expected ranks as 2:30, 2:30:2 or 5,10,20; found {text!r}") from error
