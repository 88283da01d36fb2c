"""Reading our documents: tables, fenced blocks, inline code."""

import re
from pathlib import Path

from tests.documents.code_tables import Row

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def read(name: str) -> str:
    """The document's text."""
    return (ROOT / name).read_text(encoding="utf-8")


def tables(text: str) -> list[list[Row]]:
    """The rows of every table, without its heading."""
    found = re.findall(r"(?:^\|.*\|\n)+", text, flags=re.M)
    return [[_cells(line) for line in table.splitlines()[2:]] for table in found]


def _cells(line: str) -> Row:
    return tuple(cell.strip() for cell in line.strip("|").split(" | "))


def table_with(text: str, first_cell: str) -> list[Row]:
    """The one table that has a row beginning with ``first_cell``."""
    found = [rows for rows in tables(text) if any(row[0] == first_cell for row in rows)]
    assert len(found) == 1, f"{len(found)} tables have a row {first_cell}"
    return found[0]


def blocks(text: str, language: str) -> list[str]:
    """The contents of the fenced blocks in ``language``."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.M | re.S)


def spans(text: str) -> list[str]:
    """Inline code outside of fenced blocks."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))
