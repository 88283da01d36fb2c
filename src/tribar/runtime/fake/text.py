"""The text side of a fake model: one token per byte, then special tokens. Same attributes as ``runtime.text``."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tribar.core.errors import InvalidRequest
from tribar.core.requests import ChatPrompt, IdsPrompt, Prompt, TextPrompt
from tribar.runtime.fake.model import FakeModel, load_fake_model
from tribar.runtime.fake.replies import N_BYTES
from tribar.runtime.text.chat_messages import join_parts, template_messages
from tribar.runtime.text.described_tools import describe_tools
from tribar.runtime.text.detokenizer import Detokenizer


@dataclass(frozen=True, slots=True)
class ByteTokenizer:
    """Id = byte, then ``specials``; ids above both (padded embedding rows) have no bytes."""

    token_bytes: Sequence[bytes]
    special_ids: frozenset[int]
    bos_id: int | None = None
    adds_bos: bool = False
    strips_leading_space: bool = False

    @property
    def vocab_size(self) -> int:
        """Number of ids, padding included."""
        return len(self.token_bytes)

    def encode(self, text: str, *, add_special: bool = False) -> list[int]:
        """UTF-8 bytes; typed special tokens are plain text, and this tokenizer adds none of its own."""
        return list(text.encode("utf-8", "replace"))

    def detokenizer(self, *, skip_special: bool = True, continues: bool = False) -> Detokenizer:
        """A fresh incremental detokenizer; bytes have no leading space to drop."""
        return Detokenizer(self.token_bytes, self.special_ids if skip_special else frozenset())

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """Text of the ids, U+FFFD for broken UTF-8."""
        kept = [i for i in ids if not (skip_special and i in self.special_ids)]
        return b"".join(self.token_bytes[i] for i in kept).decode("utf-8", "replace")


class ByteTemplate:
    """Renders a conversation as ``role: content`` lines and opens the assistant's turn; tools are described in it."""

    def render(self, prompt: ChatPrompt) -> str:
        """The prompt's text. Raises ``InvalidRequest`` naming the field for what is no conversation of texts."""
        messages = describe_tools(template_messages(prompt.messages), prompt.tools)
        lines = [f"{message['role']}: {join_parts(message)['content']}" for message in messages]
        if prompt.continue_final_message:
            return "\n".join(lines)
        return "".join(f"{line}\n" for line in lines) + ("assistant: " if prompt.add_generation_prompt else "")


@dataclass(frozen=True, slots=True)
class ByteText:
    """Tokenizer, template and end tokens of a fake model."""

    tokenizer: ByteTokenizer
    template: ByteTemplate
    end_ids: frozenset[int]

    def encode_prompt(self, prompt: Prompt, max_tokens: int | None = None) -> tuple[int, ...]:
        """Ids of any form of prompt. Raises ``InvalidRequest`` where there are none, or one is unknown.

        Encoding costs nothing here, so nothing is refused for ``max_tokens`` before it.
        """
        match prompt:
            case ChatPrompt():
                ids = tuple(self.tokenizer.encode(self.template.render(prompt)))
            case TextPrompt(text):
                ids = tuple(self.tokenizer.encode(text))
            case IdsPrompt(ids):
                vocab_size = self.tokenizer.vocab_size
                if any(not 0 <= i < vocab_size for i in ids):
                    raise InvalidRequest(f"ids must lie in 0 ... {vocab_size - 1}", param="prompt")
        if not ids:
            raise InvalidRequest("the prompt is empty", param="prompt")
        return ids


def byte_text(model: FakeModel) -> ByteText:
    """The text side of a loaded fake model."""
    table = [bytes([i]) for i in range(N_BYTES)] + [special.encode() for special in model.specials]
    special_ids = frozenset(range(N_BYTES, len(table))) | frozenset(model.eos_ids)
    table += [b""] * (model.vocab_size - len(table))
    tokenizer = ByteTokenizer(tuple(table), special_ids)
    return ByteText(tokenizer, ByteTemplate(), frozenset(model.eos_ids))


def load_fake_text(path: Path) -> ByteText:
    """The text side of a fake model file. Raises ``BadModelFile``."""
    return byte_text(load_fake_model(path))
