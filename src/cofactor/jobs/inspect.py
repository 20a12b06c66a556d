"""A run folder under inspection: what it has spent, and whether what it wrote is what it promised."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from cofactor.assurance import audits, ledger
from cofactor.assurance.audits import Audit
from cofactor.assurance.spending import Spending, record, spending
from cofactor.files import command, lines_of, resuming
from cofactor.jobs import forget, made_by
from cofactor.jobs.folder import RunFolder
from cofactor.jobs.preparing import schemas
from cofactor.local.refit import refit
from cofactor.methods.build import Facts, build
from cofactor.methods.planned import form
from cofactor.privacy import account
from cofactor.privacy.errors import LedgerError
from cofactor.records import Manifest
from cofactor.select.markers import SCORES, Regressed


def spent(folder: RunFolder) -> Spending:
    """Return what a run has spent, and of what budget; a ledger that does not hold is refused."""
    budget = folder.manifest_record().privacy
    if budget is not None:
        return spending(folder.charged(), budget)
    folder.verify().require(folder.path)
    return spending([], None, len({line.entry["round"] for line in ledger.read(folder.ledger_file)}))


def spent_of(path: Path) -> Spending:
    """Return what a run, or all runs of a ledger, have spent; what does not hold is refused."""
    if not path.is_file():
        return spent(RunFolder.open(path))
    found = account.read(path)
    found.verify()
    total = replace(found.spent(), epsilon=found.budget.epsilon)
    return Spending(len(found.charges), record(found.spent()), record(total))


def standing(folder: RunFolder) -> str:
    """Say how far a run that was interrupted has come, and what goes on with it."""
    if not folder.manifest_file.exists():
        return " before anything was written."
    if folder.manifest_record().privacy is not None:
        spent = command("privacy spend", folder.path)
        return f"; {spent} says what is charged, {resuming(folder.path)} whether it can go on."
    if not any(folder.path.glob("checkpoint*.npz")):
        return f" before a round was saved; {resuming(folder.path)} begins anew."
    rounds = folder.checkpoint.rounds() or len(lines_of(folder.path / "history.jsonl"))  # of several processes
    return f" after round {rounds}; {resuming(folder.path)} goes on there."


def audit(path: Path, *, seed: int = 0) -> list[Audit]:
    """Audit a run: its files, and, if it is private, its mechanism."""
    folder = RunFolder.open(path)
    method = method_of(folder)
    found = of_folder(folder, method)
    private = method is not None and method.traits.allowance is not None
    return [*found, *(audits.mechanism(method, seed=seed) if private else ())]


def of_folder(folder: RunFolder, method: Any) -> list[Audit]:
    """Audit what a run has written: chains, transcript, and budget."""
    manifest = folder.manifest_record()
    sent = audits.transcript_of(ledger.read(folder.ledger_file), method, manifest.inputs[0].features, _asked(folder))
    found = [audits.chains(folder.verify()), _of_its_code(sent, manifest)]
    private = method is not None and method.traits.allowance is not None
    return [*found, _budget(folder)] if private else found


def _of_its_code(found: Audit, manifest: Manifest) -> Audit:
    """Return what was found of a transcript; a run of other code may differ without anybody's doing.

    A private one has failed all the same: what it sent was paid for only as this code can tell.
    """
    if found.passed is not False or not (maker := made_by.others(manifest)):
        return found
    text = f"{found.text}; the run was made by {maker}, whose methods may send otherwise: audit it with that code"
    return found._replace(passed=False if manifest.privacy else None, text=text)


def _budget(folder: RunFolder) -> Audit:
    try:
        return audits.budget(spent(folder))
    except LedgerError as error:
        return Audit("budget", ledger.CHARGES, False, str(error))


def _asked(folder: RunFolder) -> dict[int, dict[str, tuple[int, ...]]]:
    """Return what clients may send before the first round, for preparation, and after the last one, for markers."""
    found = schemas(folder.preparation())
    if folder.finished and SCORES in (arrays := folder.public()):
        H = arrays["factor"]
        found[folder.evaluation().rounds] = Regressed(refit, H).schema(H.shape[1])
    return found


def method_of(folder: RunFolder) -> Any:
    """Build the method of a run without its data, in the form that its clients had.

    None where that needs to know which features a client lacks.
    """
    config, inputs = forget.as_run(folder), folder.manifest_record().inputs
    if config.features == "union" and config.privacy is None:
        return None
    rows = None if config.privacy else sum(line.rows or 0 for line in inputs)
    facts = Facts(len(inputs), inputs[0].features, rows)
    return form(*build(config.method, config.rank, config.plan, facts, config.method_options))
