"""Which families there are, and which of them a weight file holds (EDGE_CASES BUG-058)."""

from collections.abc import Callable

from tribar.core.errors import Unsupported
from tribar.runtime.architectures import gemma2, gemma3, llama, qwen2, qwen3
from tribar.runtime.architectures.base import ModelDescription
from tribar.runtime.architectures.settings import Settings
from tribar.runtime.architectures.source import Source
from tribar.runtime.formats.base import WeightFile

Reader = Callable[[Source], ModelDescription]

HF_ARCHITECTURES: dict[str, Reader] = {
    "LlamaForCausalLM": llama.from_config,
    "MistralForCausalLM": llama.from_config,
    "Qwen2ForCausalLM": qwen2.from_config,
    "Qwen3ForCausalLM": qwen3.from_config,
    "Gemma2ForCausalLM": gemma2.from_config,
    "Gemma3ForCausalLM": gemma3.from_config,
    "Gemma3ForConditionalGeneration": gemma3.from_config,
}
"""``architectures`` of config.json -> its reader."""

HF_MODEL_TYPES: dict[str, Reader] = {
    "llama": llama.from_config,
    "mistral": llama.from_config,
    "qwen2": qwen2.from_config,
    "qwen3": qwen3.from_config,
    "gemma2": gemma2.from_config,
    "gemma3": gemma3.from_config,
    "gemma3_text": gemma3.from_config,
}
"""``model_type`` of config.json, asked where ``architectures`` is absent."""

GGUF_ARCHITECTURES: dict[str, Reader] = {
    "llama": llama.from_gguf,
    "qwen2": qwen2.from_gguf,
    "qwen3": qwen3.from_gguf,
    "gemma2": gemma2.from_gguf,
    "gemma3": gemma3.from_gguf,
}
"""``general.architecture`` of GGUF -> its reader."""


def describe(weights: WeightFile, max_model_len: int | None = None) -> ModelDescription:
    """The description of the model in ``weights``, for sequences of up to ``max_model_len`` (None: all it can).

    Raises ``Unsupported`` for an unknown architecture, naming it and the supported ones, and ``BadModelFile`` naming
    the key for missing, odd-typed or absurd settings.
    """
    if is_gguf(weights):
        architecture = Settings(weights.path, weights.metadata).string("general.architecture")
        reader = _choose(weights, GGUF_ARCHITECTURES, architecture)
        return reader(Source(weights, Settings(weights.path, weights.metadata, f"{architecture}."), max_model_len))
    config = Settings(weights.path, weights.metadata).nested("config")
    reader = _hf_reader(weights, config)
    text = config.nested("text_config") if config.has("text_config") else config
    return reader(Source(weights, text, max_model_len))


def is_gguf(weights: WeightFile) -> bool:
    """Whether names and conventions are GGUF's, not Hugging Face's."""
    return "config" not in weights.metadata


def _hf_reader(weights: WeightFile, config: Settings) -> Reader:
    names = config.get("architectures")
    if isinstance(names, list) and names:
        return _choose(weights, HF_ARCHITECTURES, str(names[0]))
    return _choose(weights, HF_MODEL_TYPES, config.string("model_type"))


def _choose(weights: WeightFile, readers: dict[str, Reader], architecture: str) -> Reader:
    if architecture not in readers:
        raise Unsupported(
            f"{weights.path}: architecture {architecture!r} is not supported; supported: {', '.join(readers)}"
        )
    return readers[architecture]
