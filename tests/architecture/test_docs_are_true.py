"""Documents name only paths, make targets and rooms that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
ROOMS = sorted(path.name for path in (ROOT / "src/tribar").iterdir() if (path / "__init__.py").exists())


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_paths_in_documents_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    named = re.findall(r"`((?:src|tests|benchmarks|docs|examples|native)/[\w./-]*)`", text)
    links = re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", text)
    named += [str((document.parent / link).resolve()) for link in links]
    missing = [path for path in named if not (ROOT / path).exists()]
    assert not missing, f"{document.name} names what does not exist: {missing}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_make_targets_in_documents_exist(document: Path) -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.M))
    named = set(re.findall(r"`make ([\w-]+)", document.read_text(encoding="utf-8")))
    assert named <= targets, f"{document.name} names unknown targets {named - targets}"


def test_architecture_names_every_room() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    missing = [room for room in ROOMS if f"`{room}/`" not in text]
    assert not missing, f"docs/architecture.md does not describe {missing}"
