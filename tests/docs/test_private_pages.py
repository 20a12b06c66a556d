"""What the pages on privacy promise is what their tables show."""

from __future__ import annotations

from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def lines(page: str, columns: int) -> list[list[str]]:
    rows = [line.strip("|").split("|") for line in (DOCS / page).read_text().splitlines() if line.startswith("| ")]
    found = [[cell.strip() for cell in row] for row in rows[1:] if len(row) == columns]
    return [row for row in found if row[0] != rows[0][0].strip()]  # a second table of the same kind


def test_private_fits_are_never_worse_than_their_floor() -> None:
    found = lines("reference/private-floor.md", 8)
    assert {row[1] for row in found} == {"1", "5", "5, secure", "20", "20, secure"}
    assert len({row[0] for row in found}) >= 24
    for row in found:
        for cell in row[2:7]:
            loss, floor = (float(value.strip("* ")) for value in cell.split("/"))
            assert loss <= 1.02 * floor + 1e-4, row
        assert float(row[7]) <= 1.02, row


def test_no_attack_found_more_than_was_claimed() -> None:
    found = lines("attacks.md", 7)
    assert len(found) >= 10
    for row in found:
        moved, lower, possible, claimed = map(float, row[3:])
        assert moved <= 1
        assert lower <= claimed, row
        assert possible <= claimed + 0.005, row


def test_no_row_in_any_view_gives_more_than_was_claimed() -> None:
    found = [row for row in lines("attacks.md", 6) if row[0].startswith(("`", "votes"))]
    assert len(found) >= 20
    for _, _, held, lower, possible, claimed in found:
        for part in held.split(";"):
            within, of = part.split(" of ")
            assert int(within) == int(of)
        assert float(lower or 0) <= float(claimed)
        assert float(possible) <= float(claimed)
