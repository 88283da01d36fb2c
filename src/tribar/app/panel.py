"""What the operator sees when the server is ready."""

import shlex

import orjson
from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from tribar.app.hosting import LanguageModel, Models
from tribar.app.pool import HostedPool


def show_ready(
    console: Console,
    url: str,
    ready_s: float,
    engine: LanguageModel | None,
    models: Models | None,
    pool: HostedPool | None = None,
) -> None:
    """Print models, sizes, URL and a first request. ``ready_s`` is the time from start to ready."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for label, text in () if engine is None else engine.summary():
        table.add_row(label, text)
    for part in (models, pool):
        for label, text in ({} if part is None else part.summary()).items():
            table.add_row(label, text)
    table.add_row("URL", url)
    console.print(Panel(table, title=f"tribar ready in {ready_s:.1f} s", title_align="left", expand=False))
    # Outside of the panel, so that it can be copied.
    if engine is not None:
        first = _curl(engine, url)
    elif pool is not None:
        first = f"curl {url}/v1/models"
    else:
        first = f"curl {url}/v2/repository/index -X POST"
    console.print(first, soft_wrap=True, markup=False, highlight=False)


def _curl(model: LanguageModel, url: str) -> str:
    body: dict[str, object] = {"model": model.name}
    if model.has_chat_template:
        path, body["messages"] = "chat/completions", [{"role": "user", "content": "Hello!"}]
    else:
        path, body["prompt"], body["max_tokens"] = "completions", "Once upon a time", 32
    data = shlex.quote(orjson.dumps(body).decode())
    return f"curl {url}/v1/{path} -H 'Content-Type: application/json' -d {data}"
