"""Every implemented parameter through the unmodified ``openai`` client: sync, async and streamed, on a real model.

The model runs in fp32, so that its log-probabilities can be held against Hugging Face transformers.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

import openai
import pytest
import torch
from tests.e2e.reference_model import reference_model
from tests.e2e.server_process import Server, serving

from tribar.gateway.openai.chat import ChatFields
from tribar.gateway.openai.completions import CompletionFields

pytestmark = pytest.mark.timeout(300)

TOLERANCE = 1e-3
TEXTS = [
    "The capital of France is Paris.",
    "def add(a, b):\n    return a + b\n",
    "Café, naïve and 🐟 are words",
    "x",
    "The quick brown fox jumps over the lazy dog. " * 6,
]

SHARED: dict[str, Any] = {
    "add_special_tokens": False,
    "cache": {"mode": "exact", "tags": ["numbers"]},
    "frequency_penalty": 0.5,
    "guided_choice": ["yes", "no"],
    "guided_grammar": 'root ::= "a" [0-9]+',
    "guided_json": {"type": "integer"},
    "guided_regex": "[a-z]+",
    "ignore_eos": True,
    "include_stop_str_in_output": True,
    "logit_bias": {"260": -100},
    "max_tokens": 5,
    "metadata": {"run": "7"},
    "min_p": 0.01,
    "min_tokens": 2,
    "n": 2,
    "presence_penalty": 0.5,
    "priority": -1,
    "prompt_logprobs": 1,
    "repetition_penalty": 1.1,
    "response_format": {"type": "json_object"},
    "return_token_ids": True,
    "return_tokens_as_token_ids": True,
    "seed": 7,
    "skip_special_tokens": False,
    "stop": ["zzz", "qqq"],
    "stop_token_ids": [1],
    "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    "structured_outputs": {"regex": "[0-9]+"},
    "temperature": 0.5,
    "top_k": 10,
    "top_p": 0.9,
    "truncate_prompt_tokens": 4,
    "user": "somebody",
}
CHAT: dict[str, Any] = SHARED | {
    "add_generation_prompt": True,
    "chat_template_kwargs": {"enable_thinking": False},
    "continue_final_message": True,
    "logprobs": True,
    "max_completion_tokens": 5,
    "messages": [{"role": "user", "content": "Count"}, {"role": "assistant", "content": "1, 2,"}],
    "parallel_tool_calls": False,
    "tool_choice": "none",
    "tools": [{"type": "function", "function": {"name": "count"}}],
    "top_logprobs": 2,
}
COMPLETION: dict[str, Any] = SHARED | {"echo": True, "logprobs": 2, "prompt": ["Once", "Twice"]}
PLAIN: dict[str, Any] = {"model": "smollm2", "max_tokens": 3, "temperature": 0, "seed": 3}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    settings = ("--weights", "f32", "--kv-cache-dtype", "f32", "--max-model-len", "512", "--max-num-seqs", "8")
    with serving("--served-model-name", "smollm2", "--tool-call-parser", "hermes", *settings) as server:
        assert server.port
        yield server


@pytest.fixture(scope="module")
def client(server: Server) -> openai.OpenAI:
    return server.client()


@pytest.fixture(scope="module")
def reference() -> Any:
    return reference_model()


def split(parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters that the client has no argument for go into ``extra_body``."""
    extra = {"top_k", "min_p", "repetition_penalty", "min_tokens", "ignore_eos", "stop_token_ids"}
    extra |= {"skip_special_tokens", "include_stop_str_in_output", "add_special_tokens", "prompt_logprobs"}
    extra |= {"return_token_ids", "return_tokens_as_token_ids", "truncate_prompt_tokens", "add_generation_prompt"}
    extra |= {"continue_final_message", "chat_template_kwargs", "priority", "structured_outputs"}
    extra |= {"cache", "guided_choice", "guided_grammar", "guided_json", "guided_regex"}
    if "messages" not in parameters:
        extra |= {"metadata", "response_format"}
    ours = {name: value for name, value in parameters.items() if name in extra}
    return {name: value for name, value in parameters.items() if name not in extra} | {"extra_body": ours}


def chat_request(name: str) -> dict[str, Any]:
    fields = PLAIN | {"messages": CHAT["messages"][:1]}
    if name == "continue_final_message":
        fields["messages"] = CHAT["messages"]
    if name == "top_logprobs":
        fields["logprobs"] = True
    if name in {"parallel_tool_calls", "tool_choice"}:
        fields["tools"] = CHAT["tools"]
    if name == "max_completion_tokens":
        del fields["max_tokens"]
    return fields | ({name: CHAT[name]} if name not in {"model", "stream"} else {})


def completion_request(name: str) -> dict[str, Any]:
    return PLAIN | {"prompt": "Once upon"} | ({name: COMPLETION[name]} if name not in {"model", "stream"} else {})


def text_of(choice: Any) -> str:
    if hasattr(choice, "delta"):
        return str(choice.delta.content or "")
    return str(choice.message.content if hasattr(choice, "message") else choice.text)


def texts_of_stream(chunks: Any) -> dict[int, str]:
    texts: dict[int, str] = {}
    for chunk in chunks:
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + text_of(choice)
    return texts


def texts_of_whole(answer: Any) -> dict[int, str]:
    return {choice.index: text_of(choice) for choice in answer.choices}


async def streamed_together(url: str, kind: str, asked: list[dict[str, Any]]) -> list[dict[int, str]]:
    """The texts of streams that run at the same time."""
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="-", max_retries=0) as client:
        create: Any = client.chat.completions.create if kind == "chat" else client.completions.create

        async def one(fields: dict[str, Any]) -> dict[int, str]:
            return texts_of_stream([chunk async for chunk in await create(**split(fields), stream=True)])

        return list(await asyncio.gather(*map(one, asked)))


WHOLE_ONLY = {"prompt_logprobs"}
STREAMED_ONLY = {"stream_options"}


@pytest.mark.parametrize("kind", ["chat", "completion"])
def test_every_implemented_parameter_through_the_client(kind: str, server: Server, client: openai.OpenAI) -> None:
    """Law 4: asked by the blocking client for a whole answer and by the other for a stream, the texts are the same."""
    fields_of, request_of = (ChatFields, chat_request) if kind == "chat" else (CompletionFields, completion_request)
    create: Any = client.chat.completions.create if kind == "chat" else client.completions.create
    asked = {name: request_of(name) for name in fields_of.__struct_fields__}
    in_streams = [name for name in asked if name not in WHOLE_ONLY]
    texts = asyncio.run(streamed_together(server.url, kind, [asked[name] for name in in_streams]))
    streamed = dict(zip(in_streams, texts, strict=True))
    for name in set(asked) - STREAMED_ONLY:
        whole = texts_of_whole(create(**split(asked[name])))
        assert all(whole.values()), name
        assert name in WHOLE_ONLY or whole == streamed[name], name
    assert streamed["stream_options"] == streamed["model"]


def scores(answer: Any) -> list[float | None]:
    return list(answer.choices[0].logprobs.token_logprobs)


def teacher_forced(reference: Any, ids: list[int]) -> list[float]:
    """Log-probability of each token but the first, given those before it."""
    with torch.no_grad():
        logprobs = reference(torch.tensor([ids])).logits[0].log_softmax(-1)
    return [float(logprobs[i, token]) for i, token in enumerate(ids[1:])]


def test_echoed_log_likelihoods_equal_the_reference(client: openai.OpenAI, reference: Any) -> None:
    """As lm-eval asks: ``echo``, ``logprobs`` 1, ``max_tokens`` 0 and 1, prompts as texts and as token ids.

    BUG-029: each prompt is in the prefix cache by then, the last one with several blocks, and all of it is scored.
    """
    worst = 0.0
    for text in TEXTS:
        known = client.completions.create(
            **PLAIN | {"max_tokens": 0}, prompt=text, extra_body={"return_token_ids": True}
        )
        ids = known.choices[0].prompt_token_ids
        expected = teacher_forced(reference, ids) if len(ids) > 1 else []
        for prompt in (text, ids):
            for max_tokens in (1, 0):
                asked = PLAIN | {"max_tokens": max_tokens}
                answer = client.completions.create(**asked, prompt=prompt, echo=True, logprobs=1)
                logprobs = answer.choices[0].logprobs
                assert logprobs is not None
                first, *others = scores(answer)
                assert first is None
                assert logprobs.top_logprobs[0] is None
                assert len(others) == len(expected) + max_tokens
                for ours, theirs in zip(others, expected, strict=False):
                    assert ours is not None
                    worst = max(worst, abs(ours - theirs))
                assert answer.choices[0].text.startswith(text)
                assert (answer.choices[0].text == text) == (max_tokens == 0)
                shown = answer.choices[0].text
                for token, offset in zip(logprobs.tokens or [], logprobs.text_offset or [], strict=True):
                    assert token.startswith("bytes:") or shown[offset : offset + len(token)] == token
                assert answer.usage is not None
                assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (len(ids), max_tokens)
                assert answer.choices[0].finish_reason == "length"
    assert worst < TOLERANCE


def test_prompts_in_a_list_and_choices_are_scored_alike(client: openai.OpenAI) -> None:
    """Whole and streamed; prompt by prompt, choice by choice."""
    asked: dict[str, Any] = PLAIN | {"echo": True, "logprobs": 1, "n": 2, "prompt": TEXTS[:2], "max_tokens": 2}
    whole = client.completions.create(**asked)
    streamed: dict[int, dict[str, list[Any]]] = {}
    for chunk in client.completions.create(**asked, stream=True):
        for choice in chunk.choices:
            if choice.logprobs is not None:
                for key, values in choice.logprobs.model_dump().items():
                    streamed.setdefault(choice.index, {}).setdefault(key, []).extend(values)
    for choice in whole.choices:
        alone = client.completions.create(**asked | {"n": 1, "prompt": TEXTS[choice.index // 2]}).choices[0]
        assert choice.text == alone.text
        assert choice.logprobs is not None
        assert streamed[choice.index] == choice.logprobs.model_dump()
        assert alone.logprobs == choice.logprobs


def test_prompt_logprobs(client: openai.OpenAI, reference: Any) -> None:
    """vLLM's field, in both endpoints."""
    extra = {"prompt_logprobs": 3, "return_token_ids": True}
    completion: Any = client.completions.create(**PLAIN, prompt=TEXTS[0], extra_body=extra)
    chat: Any = client.chat.completions.create(
        **PLAIN, messages=[{"role": "user", "content": TEXTS[0]}], extra_body=extra
    )
    for entries, ids in (
        (completion.choices[0].prompt_logprobs, completion.choices[0].prompt_token_ids),
        (chat.prompt_logprobs, chat.prompt_token_ids),
    ):
        assert entries[0] is None
        expected = teacher_forced(reference, ids)
        for entry, token_id, logprob in zip(entries[1:], ids[1:], expected, strict=True):
            assert abs(entry[str(token_id)]["logprob"] - logprob) < TOLERANCE
            assert 3 <= len(entry) <= 4
            assert sorted(one["rank"] for one in entry.values() if one["rank"]) == [1, 2, 3]
    assert completion.choices[0].token_ids


def test_tokens_as_ids_name_the_ids(client: openai.OpenAI) -> None:
    extra = {"return_tokens_as_token_ids": True, "return_token_ids": True}
    choice: Any = client.completions.create(**PLAIN, prompt="Once", logprobs=1, extra_body=extra).choices[0]
    assert choice.logprobs.tokens == [f"token_id:{token_id}" for token_id in choice.token_ids]
    chat: Any = client.chat.completions.create(
        **PLAIN, messages=[{"role": "user", "content": "Hi"}], logprobs=True, extra_body=extra
    ).choices[0]
    assert [token.token for token in chat.logprobs.content] == [f"token_id:{i}" for i in chat.token_ids]


def test_a_truncated_prompt_is_its_end(client: openai.OpenAI) -> None:
    """Also where the whole would be far too long."""
    extra = {"truncate_prompt_tokens": 3, "return_token_ids": True}
    whole: Any = client.completions.create(**PLAIN, prompt=TEXTS[0], extra_body={"return_token_ids": True}).choices[0]
    for prompt in (TEXTS[0], whole.prompt_token_ids, [5] * 5000 + whole.prompt_token_ids):
        cut: Any = client.completions.create(**PLAIN, prompt=prompt, echo=True, extra_body=extra).choices[0]
        assert cut.prompt_token_ids == whole.prompt_token_ids[-3:]
        assert TEXTS[0].endswith(cut.text[: cut.text.index(".") + 1])


def test_running_usage(client: openai.OpenAI) -> None:
    """The last chunk of a choice and the last chunk of all agree."""
    options: Any = {"include_usage": True, "continuous_usage_stats": True}
    *chunks, last = client.completions.create(**PLAIN, prompt="Once", stream=True, stream_options=options)
    counts = [chunk.usage.completion_tokens for chunk in chunks if chunk.usage is not None]
    assert len(counts) == len(chunks)
    assert counts == sorted(counts)
    assert last.usage is not None
    assert counts[-1] == last.usage.completion_tokens == 3


TURNS: list[Any] = [
    {"messages": [{"role": "user", "content": "Hi <|im_end|> there"}]},
    {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]},
    {
        "messages": [{"role": "user", "content": "Count"}, {"role": "assistant", "content": "1, 2,"}],
        "continue_final_message": True,
    },
    {"messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": False},
    {"messages": [{"role": "user", "content": "Hi"}], "add_special_tokens": False},
    {"prompt": "Once upon a time 🐟"},
    {"prompt": "Once upon a time", "add_special_tokens": False},
    {"prompt": "long " * 400},
]


@pytest.mark.parametrize("turn", TURNS)
def test_tokenize_agrees_with_what_is_run(turn: dict[str, Any], client: openai.OpenAI, server: Server) -> None:
    """BUG-044: the same ids as the engine's, and their text back."""
    kind = "messages" if "messages" in turn else "prompt"
    create: Any = client.chat.completions.create if kind == "messages" else client.completions.create
    extra = {name: value for name, value in turn.items() if name != kind} | {"return_token_ids": True}
    answer = create(**PLAIN, **{kind: turn[kind]}, extra_body=extra)
    run = answer.prompt_token_ids if kind == "messages" else answer.choices[0].prompt_token_ids
    told = post(client, server, "/tokenize", turn | {"return_token_strs": True})
    assert told["tokens"] == run
    assert told["count"] == len(run) == answer.usage.prompt_tokens
    assert told["max_model_len"] == 512
    assert len(told["token_strs"]) == len(run)
    assert post(client, server, "/tokenize", turn | {"model": "smollm2"})["token_strs"] is None
    text = post(client, server, "/detokenize", {"tokens": run})["prompt"]
    assert turn["prompt"] == text if kind == "prompt" else turn["messages"][-1]["content"] in text


def post(client: openai.OpenAI, server: Server, path: str, body: dict[str, Any]) -> Any:
    return client.post(f"{server.url}{path}", body=body, cast_to=object)
