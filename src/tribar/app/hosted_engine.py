"""One language model of the front end: its supervised engine process, and the client that asks it."""

import asyncio
import functools
import logging
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry

from tribar.app.engine_spec import engine_spec
from tribar.app.model import OpenedModel
from tribar.app.model_version import model_version
from tribar.app.option_kinds import format_size
from tribar.app.resolve import ResolvedConfig
from tribar.app.supervisor import EX_CONFIG, ProcessSupervisor
from tribar.core.errors import Internal
from tribar.core.ports import ProcessSpec
from tribar.engine.client import EngineClient
from tribar.engine.public_prefix import PublicPrefix
from tribar.gateway.catalog import ServedModel
from tribar.gateway.vocabulary import Vocabulary
from tribar.telemetry.metrics import EngineFamilies, EngineMetrics
from tribar.wire.unix_socket import UnixSocketChannel

ENGINE = "engine"
ENGINE_TARGET = "tribar.engine.process"

MAX_EARLY_DEATHS = 3
"""An engine that ends so often before it was ever ready will not get there: the server gives up."""

KILL_MARGIN_S = 5.0
"""How much longer than its grace an engine may take to end before it is killed."""

_log = logging.getLogger(__name__)


class HostedEngine:
    """Implements ``LanguageModel``. ``directory`` is private to the server: the engine's socket and spec lie there."""

    def __init__(
        self,
        opened: OpenedModel,
        resolved: ResolvedConfig,
        directory: Path,
        supervisor: ProcessSupervisor,
        registry: CollectorRegistry,
        public_prefix: str,
        *,
        grace_s: float,
    ) -> None:
        self._failed = asyncio.Event()
        self.resolved = resolved
        self._opened = opened
        self._directory = directory
        self._socket_path = directory / "engine.sock"
        self._supervisor = supervisor
        self._grace_s = grace_s
        self._is_ready = False
        self._n_early_deaths = 0
        self._client = EngineClient(
            functools.partial(UnixSocketChannel.connect, self._socket_path),
            opened.text,
            observer=EngineMetrics(EngineFamilies(registry), resolved.name),
            public_prefix=shared_prefix(public_prefix, opened),
        )

    @property
    def name(self) -> str:
        """See ``LanguageModel``."""
        return self.resolved.name

    @property
    def has_chat_template(self) -> bool:
        """See ``LanguageModel``."""
        return self._opened.has_chat_template

    @property
    def version(self) -> str:
        """See ``LanguageModel``."""
        return model_version(self._opened.facts.path)

    def served(self) -> ServedModel:
        """See ``LanguageModel``."""
        return ServedModel(self._client, vocabulary_of(self._opened))

    def summary(self) -> Sequence[tuple[str, str]]:
        """See ``LanguageModel``. Raises ``Unavailable`` before it is ready."""
        card, runner = self._client.card(), self.resolved.runner_config
        kv_bytes = self.resolved.kv_bytes * card.n_blocks // runner.n_blocks
        return [
            ("model", f"{card.name} ({card.architecture}), {self.resolved.runner} runner on {runner.device}"),
            ("context", f"{card.max_model_len:,} tokens, at most {card.max_num_seqs} sequences at a time"),
            ("KV cache", f"{format_size(kv_bytes)} for {(card.n_blocks - 1) * card.block_size:,} tokens"),
            *(("note", note) for note in self.resolved.notes),
        ]

    async def start(self) -> None:
        """Spawn the engine and return once it serves; never where it fails, which ``run`` tells."""
        spec_path = self._directory / "engine.json"
        spec_path.write_bytes(engine_spec(self.resolved, self._opened, grace_s=self._grace_s).to_json())
        self._supervisor.on_exit(ENGINE, self._on_exit)
        arguments = ("--spec", str(spec_path), "--socket", str(self._socket_path), "--parent-pid", str(os.getpid()))
        await self._supervisor.spawn(
            ProcessSpec(
                ENGINE,
                ENGINE_TARGET,
                arguments,
                self._socket_path,
                cores=self.resolved.runner_config.n_threads,
                memory_bytes=self.resolved.memory_bytes,
            )
        )
        await self._client.wait_ready()
        self._is_ready = True

    async def run(self) -> None:
        """Serve until cancelled. Raises ``Internal`` where the engine does not start, and what breaks the client."""
        client = asyncio.create_task(self._client.run(), name="engine client")
        failed = asyncio.create_task(self._failed.wait())
        try:
            await asyncio.wait([client, failed], return_when=asyncio.FIRST_COMPLETED)
            if client.done():
                client.result()
            raise self._error()
        finally:
            client.cancel()
            failed.cancel()

    async def stop(self, grace_s: float) -> None:
        """The engine gives open requests their grace and ends the rest; so their streams end in order, too."""
        self._client.expect_end()
        await self._supervisor.stop_all(grace_s + KILL_MARGIN_S)

    def _error(self) -> Internal:
        status = self._supervisor.status(ENGINE)
        last_line = status.last_line.removeprefix("error: ")
        if status.exit_code == EX_CONFIG:
            return Internal(last_line)
        hint = " (killed: out of memory?)" if status.exit_code == -signal.SIGKILL else ""
        return Internal(f"the engine ended with exit code {status.exit_code}{hint} while it started: {last_line}")

    async def _on_exit(self, exit_code: int) -> None:
        """A dead engine is restarted, but not for ever where it never got ready."""
        self._n_early_deaths += not self._is_ready
        if exit_code == EX_CONFIG or self._n_early_deaths >= MAX_EARLY_DEATHS:
            self._failed.set()


def vocabulary_of(opened: OpenedModel) -> Vocabulary:
    """The tokens of a model, as the gateway writes them."""
    tokens = opened.text.tokenizer
    return Vocabulary(tokens.token_bytes, tokens.special_ids, tokens.strips_leading_space)


def shared_prefix(text: str, opened: OpenedModel) -> PublicPrefix | None:
    """The operator's public prefix, if there is one."""
    if not text:
        return None
    prefix = PublicPrefix.of(text, opened.text)
    _log.info("tenants share the whole blocks of a public prefix of %d tokens", max(len(form) for form in prefix.forms))
    return prefix
