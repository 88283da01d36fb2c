"""``tribar models``: model repositories for operators."""

from pathlib import Path
from typing import Annotated

import typer

from tribar.app.cli_help import SectionedCommand, examples
from tribar.core.errors import Unsupported

_EXAMPLES = examples(
    "tribar models validate models                   every model of a repository",
    "tribar models validate models/resnet            one model",
)

models = typer.Typer(name="models", rich_markup_mode=None)


@models.callback()
def _models() -> None:
    """Check model repositories."""


@models.command(cls=SectionedCommand, epilog=_EXAMPLES)
def validate(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A model repository, or one model's directory.")],
) -> None:
    """Check the configurations in DIR without loading a model.

    Prints a line for each model: what would be served, or what is wrong, where (file:line:column) and how to mend it.
    Ends with 1 if any model cannot be served. Whether this machine has the GPUs is not checked.
    """
    try:
        from tribar.modelserver.model_config.inspection import inspect
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("tribar"):
            raise
        raise Unsupported(f"model configurations need {error.name}: pip install 'tribar[models]'") from error
    n_broken = 0
    for finding in inspect(directory):
        if finding.problem:
            n_broken += 1
            typer.echo(" ".join(finding.problem.split()))
        else:
            versions = ", ".join(str(version) for version in finding.versions)
            typer.echo(f"{finding.name}: ok, version {versions} on {finding.backend}")
    raise typer.Exit(1 if n_broken else 0)
