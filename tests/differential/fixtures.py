"""The recorded answers: one JSON file a subject, one line a case."""

import json
from collections.abc import Mapping
from pathlib import Path

from tests.differential.observe import Answer

RECORDED = Path(__file__).parent / "recorded"


def read(subject: str) -> dict[str, list[Answer]]:
    """The answers of the real server by case."""
    return dict(json.loads((RECORDED / f"{subject}.json").read_text(encoding="utf-8")))


def write(subject: str, answers: Mapping[str, list[Answer]], repository: str) -> None:
    """Replace a subject's answers; the path of the models' repository becomes a word."""
    lines = [f"{json.dumps(name)}: {as_line(answer)}" for name, answer in answers.items()]
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    (RECORDED / f"{subject}.json").write_text(text.replace(repository, "REPOSITORY"), encoding="utf-8")


def as_line(answers: list[Answer]) -> str:
    """Compact JSON with sorted keys."""
    return json.dumps(answers, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
