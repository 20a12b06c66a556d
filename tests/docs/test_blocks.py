"""Every code block of README.md and of the docs runs, and prints what the page says it prints."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from tests.helpers.scripts import ROOT, load

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


docs = load("docs/blocks.py")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_blocks_of_a_page_run_and_print_what_it_says(path: Path, tmp_path: Path) -> None:
    for block, printed in docs.run_page(path, tmp_path):
        if block.promised:
            found = list(docs.differences(block.promised.code, printed))
            assert not found, f"{path.relative_to(ROOT)}:{block.promised.line}: {'; '.join(found[:5])}\n{printed}"


def test_the_first_lines_of_the_readme_end_without_a_warning() -> None:
    first = next(block for block in docs.blocks((ROOT / "README.md").read_text()) if block.info == "python")
    assert "FederatedNMF" in first.code
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exec(compile(first.code, "README.md", "exec"), {})


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_fences_are_code_that_runs_or_text(path: Path) -> None:
    known = {*docs.RUN, docs.OUTPUT, "text"}
    found = [match["info"].strip() for match in docs.FENCE.finditer(path.read_text())]
    assert set(found) <= known
    assert path.read_text().count("```") == 2 * len(found)
    promised = [block for block in docs.blocks(path.read_text()) if block.promised]
    assert found.count(docs.OUTPUT) == len(promised), "an output block must follow the block that prints it"


def test_blocks_are_found_in_order_with_their_outputs() -> None:
    page = 'a\n\n```python\nprint(1)\n```\n\n```text title="Output"\n1\n```\n'
    page += "\n```text\nno\n```\n\n  ```bash\n  ls\n  ```\n"
    found = docs.blocks(page)
    assert [(b.info, b.code, b.line) for b in found] == [("python", "print(1)\n", 3), ("bash", "ls\n", 15)]
    assert found[0].promised.code == "1\n"
    assert found[1].promised is None
    assert docs.rewritten(page, [(found[0], "2\n")]) == page.replace("\n1\n", "\n2\n")


@pytest.mark.parametrize(
    ("promised", "printed", "same"),
    [
        ("error 0.100", "error  0.101\n", True),
        ("error 0.100", "error 0.110", False),
        ("3 rounds", "4 rounds", False),
        ("[0.1 0.20]", "[0.1 0.201]", True),
        ("a b", "a", False),
        ("┃ a ┃ 1 ┃", "│ a │ 1 │\n├───┼───┤", True),
        ("a=1.00", "b=1.00", False),
    ],
)
def test_outputs_may_differ_in_the_last_digits_only(promised: str, printed: str, same: bool) -> None:
    assert (not list(docs.differences(promised, printed))) == same


def test_a_failing_block_names_its_page_and_line(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Title\n\n```bash\nexit 3\n```\n")
    with pytest.raises(AssertionError, match=r"page\.md:3: exit code 3"):
        docs.run_page(page, tmp_path)
