"""What ``--help`` prints: plain text that fits 80 columns and never cuts the name of a flag."""

from typing import Any

import typer.core


class SectionedCommand(typer.core.TyperCommand):
    """A command whose options stand under the titles that they were declared with (``rich_help_panel``).

    Its arguments and formatter are typer's own click, which typer does not export.
    """

    def format_options(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401
        """Write one section for each title, in the order of declaration."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            title, record = _entry(parameter, ctx)
            sections.setdefault(title, []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


def _entry(parameter: Any, ctx: Any) -> tuple[str, tuple[str, str]]:  # noqa: ANN401
    if parameter.param_type_name == "argument":
        return "Arguments", (parameter.metavar, parameter.help)
    title = getattr(parameter, "rich_help_panel", None) or "Options"
    return title, parameter.get_help_record(ctx)


def examples(*lines: str) -> str:
    """An epilog that shows ``lines`` as they are (``\\b`` keeps click from wrapping a paragraph)."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
