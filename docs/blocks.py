"""Run the code blocks of a page, and compare what they print with what the page says they print.

python docs/blocks.py README.md docs/index.md            # run
python docs/blocks.py --write docs/index.md              # run, and write the output blocks anew

The blocks ``python`` and ``bash`` of a page run in order in one folder, the Python ones in one namespace. A block
``text title="Output"`` right after one of them holds what it prints; numbers may differ in their last digits. Any
other fence is an illustration. There is no way to skip a block.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any

FENCE = re.compile(
    r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<code>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
LINES = re.compile(r"[\u2500-\u257f]+")
OUTPUT = 'text title="Output"'
RUN = ("python", "bash")
TOLERANCE = 0.02
SECONDS = 300


@dataclass(frozen=True)
class Block:
    """A fenced block: its language (with options), its code, where it stands, and the output the page promises."""

    info: str
    code: str
    line: int
    span: tuple[int, int]
    promised: Block | None = None


@dataclass
class Page:
    """Runs blocks one after another in one folder."""

    path: Path
    folder: Path
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "__main__"})

    def run(self, block: Block) -> str:
        """Run a block and return what it printed; an error names the page and the line."""
        return self._python(block) if block.info == "python" else self._bash(block)

    def _python(self, block: Block) -> str:
        code = compile("\n" * block.line + block.code, str(self.path), "exec")
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(code, self.names)
        return out.getvalue()

    def _bash(self, block: Block) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block.code],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        if done.returncode:
            raise AssertionError(
                f"{self.path}:{block.line}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
            )
        return done.stdout


def environment() -> dict[str, str]:
    """Return the variables a page runs with: this Python's commands first, plain output, no outside data."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("COFACTOR_DATA", "FORCE_COLOR")
    }
    bin_folder = str(Path(sys.executable).parent)
    return kept | {
        "PATH": bin_folder + os.pathsep + os.environ["PATH"],
        "MPLBACKEND": "Agg",
        "NO_COLOR": "1",
        "COLUMNS": "80",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


def blocks(text: str) -> list[Block]:
    """Return the blocks that run, each with the output block that follows it."""
    found = [
        Block(
            m["info"].strip(),
            _dedent(m["code"], len(m["indent"])),
            text[: m.start()].count("\n") + 1,
            m.span(),
        )
        for m in FENCE.finditer(text)
    ]
    out = []
    for block, after in pairwise(
        [*found, Block("", "", 0, (len(text), len(text)))]
    ):
        if block.info in RUN:
            follows = (
                after.info == OUTPUT
                and not text[block.span[1] : after.span[0]].strip()
            )
            out.append(
                Block(
                    block.info,
                    block.code,
                    block.line,
                    block.span,
                    after if follows else None,
                )
            )
    return out


def _dedent(code: str, indent: int) -> str:
    return "".join(
        line[indent:] if line.strip() else "\n"
        for line in code.splitlines(keepends=True)
    )


def differences(promised: str, printed: str) -> Iterator[str]:
    """Say where two outputs differ: not in spaces and lines of tables, and in numbers with a point only by much."""
    for want, got in zip_longest(_words(promised), _words(printed)):
        if want != got and (want is None or got is None or not _close(want, got)):
            yield f"promised {want!r}, printed {got!r}"


def _words(text: str) -> list[str]:
    return [word for word in text.split() if not LINES.fullmatch(word)]


def _close(want: str, got: str) -> bool:
    """Whether two words are the same but for the last digits of their numbers."""
    numbers = [NUMBER.findall(w) for w in (want, got)]
    if NUMBER.sub("#", want) != NUMBER.sub("#", got) or not numbers[0]:
        return False
    return all(a == b or ("." in a and _near(a, b)) for a, b in zip(*numbers))


def _near(want: str, got: str) -> bool:
    """Whether two numbers differ by two in a hundred, or by one in the last digit that is promised."""
    last = 10.0 ** -len(want.partition("e")[0].partition(".")[2])
    return abs(float(want) - float(got)) <= max(
        TOLERANCE * abs(float(want)), 1.01 * last
    )


@contextlib.contextmanager
def at(folder: Path) -> Iterator[None]:
    """Work in a folder with the variables of a page."""
    before, old, new = Path.cwd(), dict(os.environ), environment()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(new)
    try:
        yield
    finally:
        os.chdir(before)
        os.environ.clear()
        os.environ.update(old)


def run_page(path: Path, folder: Path) -> list[tuple[Block, str]]:
    """Run all blocks of a page in a folder; return each with what it printed."""
    page, text = Page(path, folder), path.read_text()
    with at(folder):
        return [(block, page.run(block)) for block in blocks(text)]


def rewritten(text: str, results: list[tuple[Block, str]]) -> str:
    """Return the page with its output blocks as they were printed."""
    for block, printed in reversed(results):
        if old := block.promised:
            lines = [line.rstrip() for line in printed.strip("\n").splitlines()]
            start, end = old.span
            text = (
                text[:start]
                + f"```{OUTPUT}\n"
                + "\n".join(lines)
                + "\n```"
                + text[end:]
            )
    return text


if __name__ == "__main__":
    for name in [a for a in sys.argv[1:] if a != "--write"]:
        path = Path(name).resolve()
        with tempfile.TemporaryDirectory() as temporary:
            results = run_page(path, Path(temporary))
        if "--write" in sys.argv:
            path.write_text(rewritten(path.read_text(), results))
        for block, printed in results:
            problems = (
                list(differences(block.promised.code, printed))
                if block.promised
                else []
            )
            print(
                f"{name}:{block.line}: {'ok' if not problems else '; '.join(problems[:3])}"
            )
            if not block.promised and printed:
                print(printed)
