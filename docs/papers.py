"""The pages of the papers, made from results that `cofactor reproduce` wrote.

cofactor reproduce --all --out reproduced
python docs/papers.py --collect reproduced    # take results and figures into docs/papers
python docs/papers.py --draw                  # draw the figures of all results again
python docs/papers.py --write                 # renew the pages between their marks
"""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from cofactor.reproduce.claims import Verdict, judge
from cofactor.reproduce.drawn import draw
from cofactor.reproduce.experiment import find
from cofactor.reproduce.written import tables, verdict_table

DOCS = Path(__file__).parent
HOME = DOCS / "papers"
RESULTS, FIGURES = HOME / "results", HOME / "figures"
BEGIN, END = "<!-- made by docs/papers.py -->", "<!-- end -->"
PAGES = {
    "FNMF": "fnmf.md",
    "FELB": "felb.md",
    "DSANLS": "dsanls.md",
    "DP-NMF": "dp-nmf.md",
    "FedMAvg": "fedmavg.md",
}
"""The page of every paper."""
ORDER = ("reproduced", "reproduced with correction", "not reproduced", "not run")


def collect(folder: Path) -> None:
    """Take the results and figures of a run folder."""
    for path in sorted(folder.glob("*/results.json")):
        shutil.copyfile(path, RESULTS / f"{path.parent.name}.json")
        shutil.copyfile(
            path.with_name("figure.png"), FIGURES / f"{path.parent.name}.png"
        )


def redraw() -> None:
    """Draw the figure of every result again."""
    for result in results():
        name = result["experiment"]
        draw(FIGURES / f"{name}.png", find(name), result["cells"])


def results() -> list[dict[str, Any]]:
    """Return what was measured, experiment by experiment."""
    return [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]


def verdicts(result: dict[str, Any]) -> list[Verdict]:
    """Return the verdicts that the claims of today give on the lines that were measured."""
    return judge(find(result["experiment"]), result["cells"])


def section(result: dict[str, Any]) -> str:
    """One experiment: what was run, its figure, tables and verdicts."""
    e, name = find(result["experiment"]), result["experiment"]
    title = e.title.removeprefix(f"{e.paper} ").removeprefix(f"{e.paper}: ")
    size = f"{result['size']} size"
    declared = {cell["seed"] for cell in e.cells(result["size"])}
    drawn = {line["cell"]["seed"] for line in result["cells"]}
    if len(drawn) < len(declared):
        size += f", {len(drawn)} of {len(declared)} seeds"
    made = f"`{result['command']}`: {size}, {len(result['cells'])} cells, {result['cpu_seconds']:.0f} CPU seconds."
    failed = [line for line in result["cells"] if line.get("error")]
    parts = [
        f"## {title[0].upper()}{title[1:]}",
        e.note,
        f"![{e.title}](figures/{name}.png)",
    ]
    parts += [verdict_table(verdicts(result)), *tables(e, result["cells"])]
    parts += [f"{len(failed)} cells failed: {failed[0]['error']}"] if failed else []
    return "\n\n".join([*parts, made + f" [All numbers](results/{name}.json)."])


def page(paper: str) -> str:
    """Everything that was measured for one paper."""
    return "\n\n".join(
        section(result) for result in results() if result["paper"] == paper
    )


def sizes() -> str:
    """Say which experiments stand here at full size, with all seeds or some, and which at quick size."""
    found = results()
    full = [result for result in found if result["size"] == "full"]
    some = [r["experiment"] for r in full if "--seeds" in r["command"]]
    every = [r["experiment"] for r in full if r["experiment"] not in some]
    quick = [r["experiment"] for r in found if r["size"] == "quick"]
    seconds = sum(result["cpu_seconds"] for result in found)
    groups = {
        "full size": every,
        "full size with the first seeds only": some,
        "quick size (smaller data, fewer seeds)": quick,
    }
    said = [
        f"At {name} ({len(names)}): {', '.join(names)}."
        for name, names in groups.items()
        if names
    ]
    return "\n\n".join(
        [*said, f"All of it together: {seconds / 60:.0f} CPU minutes."]
    )


def summary(root: str = "", *, headlines: bool = False) -> str:
    """Claim, paper, here: one line for each claim of a paper, or only for those that are headlines."""
    lines = ["| claim | paper | here | verdict |", "|---|---|---|---|"]
    for paper, name in PAGES.items():
        found = [
            f"| {v.says} | {v.paper} | {v.here} | {v.verdict} |"
            for result in results()
            for claim, v in zip(find(result["experiment"]).claims, verdicts(result))
            if result["paper"] == paper
            and v.paper != "-"
            and (claim.get("headline") or not headlines)
        ]
        none = (
            []
            if headlines
            else [f"| **{paper}** | | no experiment yet | not run |"]
        )
        lines += (
            [f"| [**{paper}**]({root}{name}) | | | |", *found] if found else none
        )
    return "\n".join(lines)


def counts(root: str) -> str:
    """How many claims of each paper hold, on one line each; ``root`` leads to the pages."""
    lines = [
        "| paper | claims | reproduced | with correction | not reproduced | not run |",
        "|---|---|---|---|---|---|",
    ]
    for paper, name in PAGES.items():
        found = [
            v
            for r in results()
            if r["paper"] == paper
            for v in verdicts(r)
            if v.paper != "-"
        ]
        if found:
            number = Counter(v.verdict for v in found)
            cells = " | ".join(str(number[word]) for word in ORDER)
            lines.append(f"| [{paper}]({root}{name}) | {len(found)} | {cells} |")
    return "\n".join(lines)


def made() -> dict[Path, str]:
    """Return every page with marks, as it should be."""
    parts = {
        HOME / name: page(paper)
        for paper, name in PAGES.items()
        if (HOME / name).exists()
    }
    parts[HOME / "index.md"] = f"{sizes()}\n\n{summary()}"
    parts[DOCS / "index.md"] = summary("papers/", headlines=True)
    parts[DOCS.parent / "README.md"] = counts("docs/papers/")
    return {path: put(path.read_text(), text) for path, text in parts.items()}


def put(text: str, part: str) -> str:
    """Return a page with what stands between its marks replaced."""
    head, mark, tail = text.partition(BEGIN)
    if not mark:
        raise SystemExit(f"expected the marks {BEGIN} and {END}")
    return f"{head}{BEGIN}\n\n{part}\n\n{END}{tail.partition(END)[2]}"


if __name__ == "__main__":
    if "--collect" in sys.argv:
        collect(Path(sys.argv[sys.argv.index("--collect") + 1]))
    if "--draw" in sys.argv:
        redraw()
    if "--write" in sys.argv:
        for path, text in made().items():
            path.write_text(text)
