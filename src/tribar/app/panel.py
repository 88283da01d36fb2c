"""What the operator sees when the server is ready."""

import shlex

import orjson
from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from tribar.app.hosted_engine import HostedEngine
from tribar.app.hosting import Models
from tribar.app.option_kinds import format_size
from tribar.app.pool import HostedPool
from tribar.app.resolve import ResolvedConfig
from tribar.core.requests import ModelCard


def show_ready(
    console: Console,
    url: str,
    ready_s: float,
    engine: HostedEngine | None,
    models: Models | None,
    pool: HostedPool | None = None,
) -> None:
    """Print models, sizes, URL and a first request. ``ready_s`` is the time from start to ready."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    if engine is not None:
        _describe_engine(table, engine.resolved, engine.card())
    for part in (models, pool):
        for label, text in ({} if part is None else part.summary()).items():
            table.add_row(label, text)
    table.add_row("URL", url)
    console.print(Panel(table, title=f"tribar ready in {ready_s:.1f} s", title_align="left", expand=False))
    # Outside of the panel, so that it can be copied.
    if engine is not None:
        first = _curl(engine.card(), url)
    elif pool is not None:
        first = f"curl {url}/v1/models"
    else:
        first = f"curl {url}/v2/repository/index -X POST"
    console.print(first, soft_wrap=True, markup=False, highlight=False)


def _describe_engine(table: Table, resolved: ResolvedConfig, card: ModelCard) -> None:
    runner = resolved.runner_config
    kv_bytes = resolved.kv_bytes * card.n_blocks // runner.n_blocks
    table.add_row("model", f"{card.name} ({card.architecture}), {resolved.runner} runner on {runner.device}")
    table.add_row("context", f"{card.max_model_len:,} tokens, at most {card.max_num_seqs} sequences at a time")
    table.add_row("KV cache", f"{format_size(kv_bytes)} for {(card.n_blocks - 1) * card.block_size:,} tokens")
    for note in resolved.notes:
        table.add_row("note", note)


def _curl(card: ModelCard, url: str) -> str:
    body: dict[str, object] = {"model": card.name}
    if card.has_chat_template:
        path, body["messages"] = "chat/completions", [{"role": "user", "content": "Hello!"}]
    else:
        path, body["prompt"], body["max_tokens"] = "completions", "Once upon a time", 32
    data = shlex.quote(orjson.dumps(body).decode())
    return f"curl {url}/v1/{path} -H 'Content-Type: application/json' -d {data}"
