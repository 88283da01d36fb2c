"""``tribar keys``: API keys for operators."""

from typing import Annotated

import typer

from tribar.app.api_keys import entry_for, new_key
from tribar.app.cli_help import SectionedCommand, examples

_EXAMPLES = examples(
    "tribar keys new                                 print a key and its entry",
    "tribar keys new --tenant alice >> keys.toml     see the key, file the entry",
)

keys = typer.Typer(name="keys", rich_markup_mode=None)


@keys.callback()
def _keys() -> None:
    """Make API keys for --api-keys-file."""


@keys.command(cls=SectionedCommand, epilog=_EXAMPLES)
def new(
    tenant: Annotated[
        str | None, typer.Option(metavar="NAME", help="Whose key it is; by default a tenant of its own.")
    ] = None,
) -> None:
    """Make an API key.

    The key goes to stderr and is shown this once; its entry for the file of --api-keys-file, which holds only its
    hash, goes to stdout.
    """
    key = new_key()
    entry = entry_for(key, tenant)
    typer.echo(f"API key, shown only now: {key}", err=True)
    typer.echo(entry)
