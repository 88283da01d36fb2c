"""What an engine process is told: one JSON document."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from tribar.core.errors import InvalidRequest
from tribar.core.requests import ModelCard
from tribar.engine.config import SchedulerConfig
from tribar.engine.grammar.compiler import can_follow_grammars
from tribar.engine.grammar.vocabulary import Vocabulary
from tribar.engine.limits import Limits
from tribar.runtime.runner import RunnerInfo
from tribar.runtime.runners import RunnerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """Everything one engine needs, resolved. ``runner`` is a key of ``runtime.runners.RUNNERS``.

    ``grace_s`` is how long open requests may go on after SIGTERM. Without a ``vocabulary`` it follows no grammars.
    """

    name: str
    runner: str
    runner_config: RunnerConfig
    scheduler: SchedulerConfig = SchedulerConfig()
    architecture: str = ""
    has_chat_template: bool = False
    tool_format: str = ""
    reasoning_format: str = ""
    created_s: int = 0
    grace_s: float = 30.0
    vocabulary: Vocabulary = Vocabulary()

    def to_json(self) -> bytes:
        """The document that ``from_json`` reads."""
        return msgspec.json.encode(self, enc_hook=_encode_path)

    @classmethod
    def from_json(cls, document: bytes) -> "EngineSpec":
        """Raises ``InvalidRequest`` saying what is wrong and where."""
        try:
            return msgspec.json.decode(document, type=cls, dec_hook=_decode_path)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidRequest(f"the engine spec is not valid: {error}", param="spec") from error

    def card(self, info: RunnerInfo) -> ModelCard:
        """The card of this model on a runner that turned out to be ``info``: with the limits that the engine enforces.

        Raises ``InvalidRequest`` where nothing could ever run.
        """
        limits = Limits.of(self.scheduler, info)
        takes_grammars = "masks" in info.capabilities and can_follow_grammars(self.vocabulary)
        return ModelCard(
            name=self.name,
            architecture=self.architecture,
            max_model_len=limits.max_model_len,
            vocab_size=info.vocab_size,
            n_blocks=info.n_blocks,
            block_size=info.block_size,
            max_num_seqs=limits.max_running,
            created_s=self.created_s,
            has_chat_template=self.has_chat_template,
            capabilities=info.capabilities | ({"grammars"} if takes_grammars else set()),
            tool_format=self.tool_format,
            reasoning_format=self.reasoning_format,
        )


def _encode_path(value: object) -> str:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no place in an engine spec")


def _decode_path(kind: type, value: object) -> Path:
    if kind is Path and isinstance(value, str):
        return Path(value)
    raise TypeError(f"expected {kind.__name__}, got {type(value).__name__}")
