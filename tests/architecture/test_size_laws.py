"""The size laws: a written limit is not a limit, a failing test is."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
PYTHON_FILES = sorted(
    path for room in ("src", "tests", "benchmarks", "examples") for path in (ROOT / room).rglob("*.py")
)
FORBIDDEN_NAMES = ("manager", "helper", "helpers", "utils", "util", "common", "misc")


def too_large(path: Path) -> Iterator[str]:
    source = path.read_text(encoding="utf-8")
    if (n_lines := source.count("\n")) > MAX_FILE_LINES:
        yield f"{path}: {n_lines} lines; split it by responsibility"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MAX_FUNCTION_LINES:
                yield f"{path}:{node.lineno} {node.name} has {length} lines"


def test_files_and_functions_stay_small() -> None:
    assert PYTHON_FILES
    assert not [fault for path in PYTHON_FILES for fault in too_large(path)]


def test_no_file_is_named_after_nothing() -> None:
    named = [path for path in (ROOT / "src").rglob("*.py") if path.stem.strip("_") in FORBIDDEN_NAMES]
    assert not named, f"name the noun: {named}"
