"""The verbs of the command line. Each only reads its arguments; the work is in the library."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cofactor.cli import privacy
from cofactor.cli.options import Json, Quiet, RunPath, Seed, pair

app = typer.Typer(
    name="cofactor",
    help="Factorize together what cannot be pooled.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

app.add_typer(privacy.privacy, name="privacy")
app.add_typer(privacy.ledger, name="ledger")
app.command()(privacy.audit)


@app.callback()
def root(
    debug: Annotated[bool, typer.Option(help="Show the traceback of an error.")] = False,
) -> None:
    """Factorize together what cannot be pooled."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("demo"),
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Five clients with skewed digits learn one factor; compare with pooling and with the published methods.

    Example: cofactor demo --out demo
    """
    from cofactor.cli.demo import run_demo

    run_demo(out, seed=seed, as_json=json)


@app.command()
def fit(
    inputs: Annotated[list[str] | None, typer.Argument(help="Files; each is a client.")] = None,
    rank: Annotated[int | None, typer.Option("--rank", "-k", help="Number of components.")] = None,
    out: Annotated[Path, typer.Option(help="The run folder to make.")] = Path("run"),
    config: Annotated[Path | None, typer.Option(help="A TOML file instead of the other options.")] = None,
    method: Annotated[str | None, typer.Option(help="A name from `cofactor methods`, or auto.")] = None,
    boolean: Annotated[bool | None, typer.Option("--boolean", help="0/1 data: a Boolean method.")] = None,
    rounds: Annotated[int | None, typer.Option(help="The most rounds; iterations of methods on blocks.")] = None,
    tol: Annotated[float | None, typer.Option(help="Stop when the loss falls by less than this share.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the run.")] = None,
    participation: Annotated[float | None, typer.Option(help="Share of clients in each round.")] = None,
    engine: Annotated[str | None, typer.Option(help="What carries the messages: inline, mpi.")] = None,
    features: Annotated[
        str | None, typer.Option(help="Match features by name: same, intersection, union, position.")
    ] = None,
    layer: Annotated[str | None, typer.Option(help="Layer of h5ad files.")] = None,
    group_by: Annotated[str | None, typer.Option(help="One file: a column that names the client.")] = None,
    split: Annotated[int | None, typer.Option(help="One file: simulate this many clients.")] = None,
    by: Annotated[str | None, typer.Option(help="With --split: iid, rows, dirichlet or sorted.")] = None,
    label: Annotated[str | None, typer.Option(help="With --by dirichlet or sorted: the label column.")] = None,
    alpha: Annotated[float | None, typer.Option(help="With --by dirichlet: small is skewed.")] = None,
    ratings: Annotated[
        bool | None,
        typer.Option("--ratings", help="Files are triples user,item,rating; users of one file are clients."),
    ] = None,
    holdout: Annotated[
        str | None, typer.Option(help="With --ratings: hold some out to judge by; time, random or user.")
    ] = None,
    holdout_share: Annotated[float | None, typer.Option(help="With --holdout: the share held out.")] = None,
    duplicates: Annotated[str | None, typer.Option(help="With --ratings: ratings given twice; error or mean.")] = None,
    image: Annotated[str | None, typer.Option(help="Features are pixels of a picture, as 28x28.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Privacy: the total of the whole run.")] = None,
    delta: Annotated[float | None, typer.Option(help="With --epsilon: below 1 / number of units.")] = None,
    unit: Annotated[
        str | None, typer.Option(help="With --epsilon: whose presence is hidden; record or client.")
    ] = None,
    clip: Annotated[float | None, typer.Option(help="With --epsilon: bound of a row, or of a client's update.")] = None,
    secure: Annotated[bool | None, typer.Option("--secure", help="Sum under masks: the server sees sums only.")] = None,
    insecure_noise_seed: Annotated[
        int | None, typer.Option(help="With --epsilon, for tests: noise that can be repeated; private: no.")
    ] = None,
    option: Annotated[list[str] | None, typer.Option(help="Option of the method, as name=value.")] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Learn one shared factor from files that are clients, and write a run folder.

    Example: cofactor fit a.h5ad b.npz c.csv -k 20 --out run

    Example: cofactor fit all.csv --group-by hospital -k 20 --out run

    Example: cofactor fit ratings.csv --ratings --holdout time -k 10 --out run

    Example: cofactor fit a.npz b.npz c.npz -k 20 --epsilon 1 --delta 1e-6 --secure --out run

    Example: mpiexec -n 4 cofactor fit --engine mpi big.npy -k 50 --out run
    """
    from cofactor.cli import verbs

    given = {
        name: value
        for name, value in {
            "rank": rank,
            "method": method,
            "boolean": boolean,
            "rounds": rounds,
            "tol": tol,
            "seed": seed,
            "participation": participation,
            "engine": engine,
            "features": features,
            "layer": layer,
            "group_by": group_by,
            "split": split,
            "by": by,
            "label": label,
            "alpha": alpha,
            "image": image,
            "ratings": ratings,
            "holdout": holdout,
            "holdout_share": holdout_share,
            "duplicates": duplicates,
            "epsilon": epsilon,
            "delta": delta,
            "unit": unit,
            "clip": clip,
            "secure": secure,
            "insecure_noise_seed": insecure_noise_seed,
            "inputs": inputs or None,
            "options": dict(map(pair, option)) if option else None,
        }.items()
        if value is not None
    }
    verbs.fit(given, out, config_file=config, as_json=json, quiet=quiet)


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
    out: Annotated[Path, typer.Option(help="Where the codes go (.npy).")] = Path("codes.npy"),
    layer: Annotated[str | None, typer.Option(help="Layer of an h5ad file.")] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compute the codes of new rows for the shared factor, on the machine that holds them.

    Example: cofactor transform run new.csv --out codes.npy
    """
    from cofactor.cli import verbs

    verbs.transform(run, file, out, layer=layer, as_json=json, quiet=quiet)


@app.command()
def recommend(
    run: RunPath,
    file: Annotated[Path, typer.Argument(help="Ratings of one or more users, as user,item,rating.")],
    n: Annotated[int, typer.Option("-n", help="How many items.")] = 10,
    json: Json = False,
) -> None:
    """Recommend items that users have not rated, from their own ratings and the factor of a run on ratings alone.

    Example: cofactor recommend run mine.csv -n 5
    """
    from cofactor.cli import verbs

    verbs.recommend(run, file, n, as_json=json)


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
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Suggest a rank from held-out cells and stability; one upload per client, the rest are scalars.

    Example: cofactor rank a.h5ad b.h5ad -k 2:30 --out run
    """
    from cofactor.cli import verbs
    from cofactor.runs.config import Config

    settings: dict[str, Any] = {"features": features, "layer": layer, "group_by": group_by, "seed": seed}
    config = Config(inputs, 1, **settings)
    verbs.rank(config, _ranks(ranks), out, seeds=seeds, as_json=json, quiet=quiet)


@app.command()
def passports(run: RunPath, json: Json = False) -> None:
    """Show each component of a run: share, clients that find it, stability, drift, top features.

    Example: cofactor passports run
    """
    from cofactor.cli import verbs

    verbs.passports(run, as_json=json)


@app.command()
def report(
    run: RunPath,
    out: Annotated[Path | None, typer.Option(help="The HTML file.")] = None,
    pictures: Annotated[bool, typer.Option("--pictures", help="Boolean runs: add pictures, which show rows.")] = False,
) -> None:
    """Write the report of a run: one HTML file that needs no network.

    Example: cofactor report run
    """
    from cofactor.report.html import render

    print(render(run, out, pictures=pictures))


@app.command()
def methods(json: Json = False) -> None:
    """List the methods by name, with what each one sends.

    Example: cofactor methods
    """
    from cofactor.cli.methods import show_methods

    show_methods(as_json=json)


@app.command()
def doctor(json: Json = False) -> None:
    """Check this installation: versions, optional packages, threads, a small run.

    Example: cofactor doctor
    """
    from cofactor.cli.doctor import examine

    raise typer.Exit(examine(as_json=json))


def _ranks(text: str) -> list[int]:
    """Read ``2:30`` (both ends), ``2:30:2`` or ``5,10,20``."""
    try:
        if ":" not in text:
            return [int(part) for part in text.split(",")]
        low, high, *step = (int(part) for part in text.split(":"))
        return list(range(low, high + 1, *step))
    except ValueError as error:
        raise typer.BadParameter(f"expected ranks as 2:30, 2:30:2 or 5,10,20; found {text!r}") from error
