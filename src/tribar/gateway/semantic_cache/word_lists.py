"""Reads the word lists of ``data/``: lines that start with ``#`` are remarks."""

from collections.abc import Iterator
from functools import cache
from importlib.resources import files


def read_lines(name: str) -> list[str]:
    """The lines of one list, without remarks and empty ones."""
    text = files(__package__).joinpath("data", name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line.strip() and not line.startswith("# ")]


@cache
def read_words(name: str) -> frozenset[str]:
    """Words that are separated by spaces."""
    return frozenset(word for line in read_lines(name) for word in line.split())


@cache
def read_costs(name: str) -> dict[str, float]:
    """Word to cost, of lines that begin with a cost and go on with words."""
    costs = dict[str, float]()
    for line in read_lines(name):
        cost, *words = line.split(" ")
        costs.update(dict.fromkeys(words, float(cost)))
    return costs


def read_sections(name: str) -> Iterator[tuple[str, list[str]]]:
    """``[heading]`` and the lines below it, for each heading."""
    heading, lines = "", list[str]()
    for line in read_lines(name):
        if line.startswith("["):
            if heading:
                yield heading, lines
            heading, lines = line.strip("[]"), []
        else:
            lines.append(line)
    yield heading, lines
