"""Everything between text and ids for one model, loaded from its files."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from tribar.core.errors import BadModelFile, InvalidRequest, TooLarge
from tribar.core.requests import ChatPrompt, IdsPrompt, Prompt, TextPrompt
from tribar.runtime.formats import open_weights
from tribar.runtime.text.chat_template import ChatTemplate
from tribar.runtime.text.gguf_tokenizer import tokenizer_from_gguf
from tribar.runtime.text.gguf_vocabulary import Vocabulary, read_vocabulary
from tribar.runtime.text.hf_tokenizer import named_tokens, tokenizer_from_json
from tribar.runtime.text.tokenizer import Tokenizer

MAX_CUT_CHARACTERS = 2**20
"""The longest text that is encoded to keep some tokens at its end: a second or two of one core."""


@dataclass(frozen=True, slots=True)
class Text:
    """A model's tokenizer, chat template (if it has one) and the ids that end a generation."""

    tokenizer: Tokenizer
    template: ChatTemplate | None
    end_ids: frozenset[int]

    def encode_prompt(self, prompt: Prompt, max_tokens: int | None = None) -> tuple[int, ...]:
        """The ids the model sees: at least one. Raises ``InvalidRequest``.

        ``max_tokens``: what cannot be so short is refused without the work of encoding it; what is encoded may still
        be longer. Without it the caller keeps the end of any prompt, which has to be encoded from its start, since no
        rule of all tokenizers says where in a text their ids begin anew. So that has a limit: ``TooLarge`` past
        ``MAX_CUT_CHARACTERS``.

        A chat whose text has no control strings gets the ids that Hugging Face's tokenizer gives the rendered text;
        control strings that callers typed stay ordinary characters. Where the tokenizer's convention is to begin
        with BOS, a chat begins with exactly one, whether the template writes it or not (unless ``add_special`` is off).
        """
        match prompt:
            case ChatPrompt():
                ids = self._encode_chat(prompt, max_tokens)
            case TextPrompt(text, add_special):
                self._refuse_longer(text, max_tokens, "prompt")
                ids = self.tokenizer.encode(text, add_special=add_special)
            case IdsPrompt(given):
                self.tokenizer.check_ids(given)
                ids = list(given)
        if not ids:
            raise InvalidRequest("the prompt is empty", param="prompt")
        return tuple(ids)

    def _refuse_longer(self, text: str, max_tokens: int | None, param: str) -> None:
        if max_tokens is None:
            _refuse_cutting(text, param)
            return
        least = self.tokenizer.least_tokens(text)
        if least > max_tokens:
            raise InvalidRequest(
                f"the prompt has {len(text)} characters, so at least {least} tokens; at most {max_tokens} can be used: "
                "shorten the prompt",
                param=param,
                code="context_length_exceeded",
            )

    def _encode_chat(self, prompt: ChatPrompt, max_tokens: int | None) -> list[int]:
        if self.template is None:
            message = "this model has no chat template: use /v1/completions with the prompt's text"
            raise InvalidRequest(message, param="messages")
        tokenizer = self.tokenizer
        rendered = self.template.render(prompt, tokenizer.shield)
        typed = rendered.covered.restore(rendered.text) if rendered.covered else rendered.text
        self._refuse_longer(typed, max_tokens, "messages")
        if rendered.covered:
            ids = tokenizer.encode_shielded(rendered.text, rendered.covered.restore)
        else:
            ids = tokenizer.encode_control(rendered.text)
        begins_with_bos = prompt.add_special and tokenizer.adds_bos
        if begins_with_bos and tokenizer.bos_id is not None and ids[:1] != [tokenizer.bos_id]:
            ids.insert(0, tokenizer.bos_id)
        return ids


def _refuse_cutting(text: str, param: str) -> None:
    if len(text) > MAX_CUT_CHARACTERS:
        raise TooLarge(
            f"the prompt has {len(text)} characters; at most {MAX_CUT_CHARACTERS} are tokenised to keep their end: "
            "send the end of the text",
            param=param,
            code="context_length_exceeded",
        )


def load_text(path: Path) -> Text:
    """From a ``.gguf`` file or a Hugging Face directory. Raises ``BadModelFile`` or ``Unsupported``."""
    if (path / "tokenizer.json").is_file():
        with _well_formed(str(path)):
            return _text_from_directory(path)
    if path.is_dir() and not any(path.glob("*.gguf")):
        raise BadModelFile(f"{path}: no tokenizer.json there: save the model's fast tokenizer into the directory")
    weights = open_weights(path)
    try:
        return text_from_gguf(weights.metadata, str(path))
    finally:
        weights.close()


def text_from_gguf(metadata: Mapping[str, Any], path: str) -> Text:
    """From a GGUF file's metadata; ``path`` is for messages. Raises ``BadModelFile`` or ``Unsupported``."""
    with _well_formed(path):
        vocabulary = read_vocabulary(metadata, path)
    tokenizer = tokenizer_from_gguf(metadata, vocabulary, path)
    sources = {
        name: metadata.get(key)
        for name, key in (("default", "tokenizer.chat_template"), ("tool_use", "tokenizer.chat_template.tool_use"))
    }
    return Text(tokenizer, _template(sources, _gguf_named_tokens(vocabulary), path), vocabulary.end_ids)


@contextmanager
def _well_formed(path: str) -> Iterator[None]:
    """Values of a type that their key does not have, in files that others wrote, are the files' fault."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise BadModelFile(f"{path}: malformed tokenizer or model configuration: {error!r}") from error


def _text_from_directory(path: Path) -> Text:
    config = _json(path / "tokenizer_config.json")
    tokenizer = tokenizer_from_json(path / "tokenizer.json", config)
    named = named_tokens(config)
    eos = tokenizer.special_texts.get(named.get("eos_token", ""))
    end_ids = {eos} if eos is not None else set()
    for name in ("generation_config.json", "config.json"):
        described = _json(path / name)
        end_ids |= _eos_ids(described) | _eos_ids(described.get("text_config", {}))
    return Text(tokenizer, _template(_template_sources(path, config), named, str(path)), frozenset(end_ids))


def _template_sources(path: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Chat templates by name. Files beside the tokenizer go before entries of its configuration."""
    listed = config.get("chat_template")
    sources = {"default": listed} if not isinstance(listed, list) else {e["name"]: e["template"] for e in listed}
    if (path / "chat_template.jinja").is_file():
        sources["default"] = (path / "chat_template.jinja").read_text(encoding="utf-8")
    for extra in sorted((path / "additional_chat_templates").glob("*.jinja")):
        sources[extra.stem] = extra.read_text(encoding="utf-8")
    return sources


def _template(sources: Mapping[str, Any], named: Mapping[str, str], path: str) -> ChatTemplate | None:
    source, tool_source = sources.get("default"), sources.get("tool_use")
    if source is None:
        return None
    if not isinstance(source, str) or not isinstance(tool_source, str | None):
        raise BadModelFile(f"{path}: the chat template is not a text")
    try:
        return ChatTemplate(source, special_tokens=named, tool_source=tool_source)
    except BadModelFile as error:
        raise BadModelFile(f"{path}: {error.message}") from error


def _gguf_named_tokens(vocabulary: Vocabulary) -> dict[str, str]:
    roles = {"bos_token": vocabulary.bos_id, "eos_token": vocabulary.eos_id, "unk_token": vocabulary.unk_id}
    return {role: vocabulary.tokens[token_id] for role, token_id in roles.items() if token_id is not None}


def _eos_ids(described: Mapping[str, Any]) -> set[int]:
    value = described.get("eos_token_id")
    values: Iterable[object] = value if isinstance(value, list) else [value]
    return {item for item in values if isinstance(item, int)}


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        value = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        raise BadModelFile(f"{path}: not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadModelFile(f"{path}: the file does not hold a JSON object")
    return value
