"""``cofactor privacy``, ``cofactor ledger`` and ``cofactor audit``: budgets, what left each client, and checks."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from cofactor.cli.console import Console
from cofactor.cli.options import Json, RunPath, pair

LedgerPath = Annotated[Path, typer.Argument(help="A run folder, or a ledger over runs.")]
_NAMED = 16  # columns that a name of a client keeps on a narrow screen
UNITS = (
    "Of what: record (one row, there or not) or client (what it holds, replaced by nothing; that it is there is known)."
)
privacy = typer.Typer(help="What a budget buys, and what a run has spent.", no_args_is_help=True)
ledger = typer.Typer(help="What left each client, and what all runs on the same data cost.", no_args_is_help=True)


@privacy.command()
def plan(
    epsilon: Annotated[float, typer.Option(help="The total of the whole run.")],
    delta: Annotated[float, typer.Option(help="Below 1 / number of units.")],
    method: Annotated[str | None, typer.Option(help="A name from `cofactor methods`; default: that of fit.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds; without --method of shared statistics.")] = None,
    rank: Annotated[int | None, typer.Option("--rank", "-k", help="Number of components.")] = None,
    features: Annotated[int | None, typer.Option(help="Number of features.")] = None,
    rows: Annotated[int | None, typer.Option(help="Number of rows of all clients.")] = None,
    clients: Annotated[int | None, typer.Option(help="Number of clients.")] = None,
    unit: Annotated[str, typer.Option(help=UNITS)] = "record",
    clip: Annotated[float | None, typer.Option(help="Bound of a row, or of a client's update.")] = None,
    secure: Annotated[bool, typer.Option("--secure", help="With secure summation.")] = False,
    curious: Annotated[int, typer.Option(help="With --secure: clients that may use what they know of a sum.")] = 1,
    option: Annotated[list[str] | None, typer.Option(help="Option of the method, as name=value.")] = None,
    json: Json = False,
) -> None:
    """Say how much noise a budget means for a run, and whether a useful factor can be expected.

    Example: cofactor privacy plan --epsilon 1 --delta 1e-6 --features 784 --rank 30 --rows 70000

    Example: cofactor privacy plan --epsilon 1 --delta 1e-6 --rounds 50
    """
    from cofactor.assurance import forecast
    from cofactor.assurance.spending import record
    from cofactor.methods.foreseen import CLEAR
    from cofactor.privacy.accountant import check_unit

    sizes: dict[str, Any] = {"rank": rank, "features": features, "rows": rows, "clients": clients}
    sizes |= {"clip": clip, "secure": secure, "curious": curious, "options": dict(map(pair, option or []))}
    question = forecast.Question(epsilon, delta, method, rounds, unit=check_unit(unit), **sizes)
    found = forecast.answer(question)
    total = record(found.method.allowance.total())
    if json:
        noise = [n._asdict() for n in found.noise]
        known = {"method": question.name, "rounds": found.rounds, "noise_multipliers": forecast.multipliers(found)}
        more = {"noise": noise, "noise_over_signal": found.ratio, "expected": found.expected}
        print(jsonlib.dumps({**vars(total), **known, **more}, indent=1))
        return
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"{question.name}, {found.rounds} rounds: {total.text}")
    of_sum = f"of the sum of {clients}" if clients else "of the sum"
    table = Table()
    for column in ("array", "rounds", "sigma / Delta", "sigma of a message", of_sum):
        table.add_column(column, justify="left" if column == "array" else "right")
    for n in found.noise:
        whole = "-" if n.sigma_of_sum is None else f"{n.sigma_of_sum:.6g}"
        table.add_row(n.array, n.rounds, f"{n.multiplier:.6g}", f"{n.sigma:.6g}", whole)
    Console().print(table)
    console.print("Sigmas are in units of Delta, the bound of what one unit can change.")
    console.print(found.expected, style="" if found.ratio is None or found.ratio < CLEAR else "yellow")
    for line in forecast.meaning(secure=secure, unit=unit, clients=clients):
        console.print(f"- {line}")


@privacy.command()
def spend(run: LedgerPath, json: Json = False) -> None:
    """Say what a run, or all runs of a ledger, have spent, and of what budget; a ledger that does not hold is refused.

    Example: cofactor privacy spend run

    Example: cofactor privacy spend site.jsonl
    """
    from cofactor.jobs.inspect import spent_of

    found = spent_of(run)
    if json:
        budget = vars(found.budget) if found.budget else None
        print(jsonlib.dumps({"rounds": found.rounds, **vars(found.spent), "budget": budget}, indent=1))
        return
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"spent in {found.rounds} round{'' if found.rounds == 1 else 's'}: {found.spent.text}")
    if found.budget:
        console.print(f"budget: {found.budget.text}")
    if not found.spent.private:
        console.print("private: no", style="red")


@ledger.command()
def new(
    path: Annotated[Path, typer.Argument(help="The ledger to begin, as site.jsonl; its key is made beside it.")],
    epsilon: Annotated[float, typer.Option(help="The total of all runs on the same data.")],
    delta: Annotated[float, typer.Option(help="Below 1 / number of units.")],
    unit: Annotated[str, typer.Option(help=UNITS)] = "record",
) -> None:
    """Begin a ledger over runs: what all runs on the same data together may cost.

    Example: cofactor ledger new site.jsonl --epsilon 4 --delta 1e-6
    """
    from cofactor.privacy import account

    made = account.new(path, epsilon=epsilon, delta=delta, unit=unit)
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"{path}: a ledger of epsilon = {epsilon:g} at delta = {delta:g} (unit: {unit}) for all runs with it")
    console.print(f"{made.key_file}: its key. Keep both, and a copy elsewhere; only you should be able to read the key")


@ledger.command()
def show(
    run: LedgerPath,
    client: Annotated[str | None, typer.Option(help="One client only.")] = None,
    json: Json = False,
) -> None:
    """Show every array that left the clients: round, shape, type, bytes, bound, noise; or all charges of a ledger.

    Example: cofactor ledger show run --client a

    Example: cofactor ledger show site.jsonl
    """
    from cofactor.assurance import ledger as ledgers
    from cofactor.jobs.folder import RunFolder

    if run.is_file():
        _show_account(run, as_json=json)
        return
    folder = RunFolder.open(run)
    lines = [line.entry for line in ledgers.read(folder.ledger_file) if line.entry]
    names = list(dict.fromkeys(entry["client"] for entry in lines))
    if client is not None and client not in names:
        if ledgers.TOGETHER not in names:
            raise typer.BadParameter(f"expected one of the clients {', '.join(names[:8])}; found {client!r}")
        client = ledgers.TOGETHER
    chosen = [entry for entry in lines if client in (None, entry["client"])]
    if json:
        print(jsonlib.dumps(chosen, indent=1))
        return
    table = Table(box=SIMPLE_HEAD)
    noisy = any(entry.get("mechanism") for entry in chosen)
    columns = (
        "client",
        "round",
        "array",
        "shape",
        "dtype",
        "bytes",
        *(("clip", "noise", "multiplier") if noisy else ()),
    )
    for column in columns:
        left = column in ("client", "array", "dtype")
        least = min(_NAMED, max(map(len, names))) if column == "client" and names else None
        table.add_column(column, justify="left" if left else "right", no_wrap=column != "client", min_width=least)
    for entry in chosen:
        table.add_row(*(_cell(entry.get(column)) for column in columns))
    Console().print(table)
    kinds = sorted({entry["mechanism"] for entry in chosen if entry.get("mechanism")})
    Console().print(f"mechanism: {', '.join(kinds)}; noise over bound is the multiplier." if kinds else "no noise")
    masks = folder.manifest_record().masks
    if masks:
        Console(soft_wrap=True, highlight=False).print(f"Under masks. {masks}")
    for name in folder.config().forgotten:
        Console().print(f"{name} was forgotten; what had left it is in the ledgers below {run / 'forgotten'}.")
    if ledgers.TOGETHER in names:
        Console().print("A line of clients together stands for one message of each; the ledger says of which.")


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return " x ".join(map(str, value)) or "1"
    if isinstance(value, float):
        return f"{value:.4g}"
    return "-" if value is None else str(value)


def _show_account(path: Path, *, as_json: bool) -> None:
    """Print the rounds of all runs, as the file says, whole or not."""
    from cofactor.privacy import account

    found = account.read(path).entries
    if as_json:
        print(jsonlib.dumps(found, indent=1))
        return
    table = Table(box=SIMPLE_HEAD)
    for column in ("run", "round", "charged", "array", "mechanism", "multiplier"):
        table.add_column(column, justify="right" if column in ("round", "multiplier") else "left")
    for entry in found[1:]:
        for array, cost in dict(entry.get("costs") or {}).items():
            where = str(entry.get("run"))[:8], _cell(entry.get("round")), _cell(entry.get("charged"))
            table.add_row(*where, array, _cell(cost.get("mechanism")), _cell(cost.get("multiplier")))
    Console().print(table)


@ledger.command()
def verify(run: LedgerPath, json: Json = False) -> None:
    """Check that no line was changed, removed, moved or added, and who signed it; exit code 1 if one was.

    What this cannot see: a run, or a ledger over runs, put back to an older copy of all its files. Such a copy is whole
    and signed; it shows only against a last hash that was kept elsewhere.

    Example: cofactor ledger verify run

    Example: cofactor ledger verify site.jsonl
    """
    from cofactor.jobs.folder import RunFolder

    if run.is_file():
        _verify_account(run, as_json=json)
    found = RunFolder.open(run).verify()
    if json:
        chains = [{**c._asdict(), "key": found.keys.get(c.client)} for c in found.chains]
        more = {"charges": [c._asdict() for c in found.charges], "own_keys": found.own, "sealed": found.sealed}
        print(jsonlib.dumps({"ok": found.ok, "faults": found.all_faults(), "clients": chains, **more}, indent=1))
        raise typer.Exit(0 if found.ok else 1)
    console = Console(soft_wrap=True, highlight=False)
    for c in found.chains:
        key = f", key {found.keys[c.client][:16]}..." if c.client in found.keys else ""
        console.print(f"{c.client}: {c.entries} entries, last hash {c.last or '-'}{key}")
    for fault in found.all_faults():
        console.print(f"BROKEN {fault}", style="red", markup=False)
    if found.ok:
        open_end = "" if found.keys else ", so a missing end would not show"
        end = "" if found.sealed else f"; the run is not over{open_end}"
        paid = f", {sum(c.entries for c in found.charges)} charges" if found.keys else ""
        console.print(f"ok: {sum(c.entries for c in found.chains)} entries of {len(found.chains)} chains{paid}{end}")
        if found.keys and len(found.own) < len(found.keys):
            console.print("Keys are those of the manifest; not all clients' own are here to compare.")
    raise typer.Exit(0 if found.ok else 1)


def _verify_account(path: Path, *, as_json: bool) -> None:
    """Check a ledger over runs."""
    from cofactor.privacy import account

    found = account.read(path)
    faults = found.faults()
    if as_json:
        told = {"entries": len(found.entries), "last": found.last, "key": found.public}
        print(jsonlib.dumps({"ok": not faults, "faults": faults, **told}))
    else:
        console = Console(soft_wrap=True, highlight=False)
        for fault in faults:
            console.print(f"BROKEN {fault}", style="red", markup=False)
        if not faults:
            compared = "" if found.key_file.exists() else "; its key is not here to compare"
            console.print(f"last hash {found.last}: compare it with one that was kept elsewhere")
            console.print(f"ok: {len(found.entries)} lines, key {found.public[:16]}...{compared}")
    raise typer.Exit(1 if faults else 0)


def audit(
    run: RunPath, seed: Annotated[int, typer.Option(help="Seed of the coins of the audits.")] = 0, json: Json = False
) -> None:
    """Check a run: its ledger, its messages against what its method declares, its noise on worst-case records.

    Audits give lower bounds: they find bugs, they do not prove privacy. Exit code 1 if one fails.

    Example: cofactor audit run
    """
    from cofactor.jobs.inspect import audit as audit_run

    found = audit_run(Path(run), seed=seed)
    passed = all(line.passed is not False for line in found)
    if json:
        print(jsonlib.dumps({"passed": passed, "audits": [line._asdict() for line in found]}, indent=1))
        raise typer.Exit(0 if passed else 1)
    table = Table()
    for column in ("audit", "of", "verdict", "found"):
        table.add_column(column)
    for line in found:
        word = Text({True: "passed", False: "FAILED", None: "-"}[line.passed], "red" if line.passed is False else "")
        table.add_row(line.audit, line.of, word, line.text)
    Console().print(table)
    raise typer.Exit(0 if passed else 1)
