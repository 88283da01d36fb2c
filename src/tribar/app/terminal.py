"""``tribar chat``: a conversation bound to this process's standard streams."""

import contextlib
import os
import sys
from collections.abc import Iterator

from tribar.app.chat import HELP, Chat, ChatModel
from tribar.app.config import ServeConfig
from tribar.app.remote_chat import RemoteChat
from tribar.core.errors import InvalidRequest
from tribar.runtime.sources import DEFAULT_MODEL

PROMPT = "> "


def talk(
    config: ServeConfig, *, url: str | None, system: str | None, temperature: float, max_tokens: int | None
) -> int:
    """Talk until the input ends; the exit code is 1 when a question failed.

    The prompt is only shown to a person: with a pipe on standard input, answers are the only output.
    """
    is_person = sys.stdin.isatty()
    with _chat_model(config, url, temperature, max_tokens) as model:
        if is_person:
            sys.stderr.write(HELP + "\n")
        read_line = _ask if is_person else _next_line
        n_failed = Chat(model, read_line, _write, _report, system).run()
    return 1 if n_failed else 0


@contextlib.contextmanager
def _chat_model(
    config: ServeConfig, url: str | None, temperature: float, max_tokens: int | None
) -> Iterator[ChatModel]:
    if url is not None:
        key = os.environ.get("TRIBAR_API_KEY", "").rpartition(":")[2]  # a server reads a tenant before the colon
        yield RemoteChat(url, config.model.model, temperature=temperature, max_tokens=max_tokens, api_key=key)
        return
    from tribar.app.llm import LLM
    from tribar.app.local_chat import LocalChat
    from tribar.app.pull import DownloadBar

    model = config.model.model or DEFAULT_MODEL
    with DownloadBar(model) as bar:
        llm = LLM.from_config(config, progress=bar)
    with llm:
        if not llm.card.has_chat_template:
            raise InvalidRequest(f"{model} has no chat template, so it cannot chat", param="model")
        yield LocalChat(llm, temperature=temperature, max_tokens=max_tokens)


def _ask() -> str | None:
    try:
        return input(PROMPT)
    except (EOFError, KeyboardInterrupt):
        sys.stdout.write("\n")
        return None


def _next_line() -> str | None:
    return sys.stdin.readline() or None


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _report(message: str) -> None:
    sys.stderr.write(f"error: {message}\n")
