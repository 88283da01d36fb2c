"""Shell commands of the documents as lists of words, and the ``tribar`` command run up to where it would do work."""

import shlex
from typing import Any

import pytest

from tribar.app.cli import main

PLACES_OF_WORK = (
    "tribar.app.cluster_engine.run_cluster_engine",
    "tribar.app.launch.launch",
    "tribar.app.pull.pull_model",
    "tribar.app.terminal.talk",
)


def commands(block: str) -> list[list[str]]:
    """The simple commands of a bash block: continued lines are joined, pipes and redirections cut, comments dropped."""
    found: list[list[str]] = []
    for line in block.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|>")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, "|"]:
            if word == "|" and words:
                found.append(words[: words.index(">>")] if ">>" in words else words)
                words = []
            elif word != "|":
                words.append(word)
    return found


def rehearse(monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    """Run ``tribar`` with ``arguments``: everything is read and checked, nothing is served, fetched or said."""

    def work(*_: Any, **__: Any) -> int:
        return 0

    for place in PLACES_OF_WORK:
        monkeypatch.setattr(place, work)
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0, f"tribar {shlex.join(arguments)} is refused"
