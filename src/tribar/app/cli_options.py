"""Flags from the declarations in ``app/config.py``: a command that takes settings lists none of them itself."""

import inspect
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from tribar.app.config import ServeConfig
from tribar.app.option_kinds import Switch, Texts
from tribar.app.settings import Option, load_config, options
from tribar.core.errors import InvalidRequest

PANELS = {
    "model": "Model",
    "engine": "Engine",
    "modelserver": "Model server",
    "pool": "Pool of engines",
    "server": "Server",
    "stores": "Stores",
    "cluster": "Cluster",
    "limiting": "Limits",
    "cache": "Semantic cache",
}


def takes_settings(*rooms: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Turn ``command(config, **own)`` into a typer command with MODEL, ``--config`` and the flags of ``rooms``.

    The command's own further parameters keep their typer annotations and come first.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        _, *own = inspect.signature(command, eval_str=True).parameters.values()
        flags = [_parameter(option) for option in options().values() if option.room in rooms]
        own = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]

        def run(**given: Any) -> None:  # noqa: ANN401
            extras = {parameter.name: given.pop(parameter.name) for parameter in own}
            command(_config_of(given), **extras)

        signature = inspect.Signature([_MODEL, *own, _CONFIG, *flags])
        run.__signature__ = signature  # type: ignore[attr-defined]
        run.__annotations__ = {name: parameter.annotation for name, parameter in signature.parameters.items()}
        run.__doc__, run.__name__ = command.__doc__, command.__name__
        return run

    return decorate


def _config_of(given: dict[str, Any]) -> ServeConfig:
    argument, flag = given.pop("model_argument"), given.get("model")
    if argument is not None and flag is not None and argument != flag:
        raise InvalidRequest(f"two models: {argument} and --model {flag}\ntry: one server for each", param="model")
    given["model"] = argument if argument is not None else flag
    for name, value in given.items():
        if isinstance(value, list):  # a flag that may be repeated
            given[name] = ",".join(value) if value else None
    file = given.pop("config") or os.environ.get("TRIBAR_CONFIG") or None
    return load_config(given, os.environ, None if file is None else Path(file))


def _keyword(name: str, annotation: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


_MODEL = _keyword(
    "model_argument",
    Annotated[str | None, typer.Argument(metavar="MODEL", help="The same as --model.", show_default=False)],
)
_CONFIG = _keyword(
    "config",
    Annotated[str | None, typer.Option("--config", metavar="FILE", help="Read settings from a TOML file.")],
)


def _parameter(option: Option) -> inspect.Parameter:
    """Texts are read by the option's own kind, so that a mistake reads the same in every source."""
    common: Mapping[str, Any] = {
        "help": option.help + _shown_default(option),
        "show_default": False,
        "rich_help_panel": PANELS[option.room],
    }
    if isinstance(option.kind, Switch):
        names = f"{option.flag}/--no-{option.flag[2:]}"
        return _keyword(option.key, Annotated[bool | None, typer.Option(names, metavar="", **common)])
    flag = typer.Option(option.flag, metavar=option.kind.metavar, **common)
    if isinstance(option.kind, Texts):
        return _keyword(option.key, Annotated[list[str] | None, flag])
    return _keyword(option.key, Annotated[str | None, flag])


def _shown_default(option: Option) -> str:
    match option.default:
        case None | ():
            return ""
        case bool(is_on):
            return f" (default {'on' if is_on else 'off'})"
        case float(number):
            return f" (default {number:g})"
        case other:
            return f" (default {other})"
