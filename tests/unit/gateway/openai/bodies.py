"""Bodies of the OpenAI endpoints as the calls they become."""

from typing import Any

import msgspec

from tribar.core.fake_generator import FAKE_CARD
from tribar.core.requests import ChatPrompt
from tribar.gateway.json_body import decode
from tribar.gateway.openai.call import OpenAiCall
from tribar.gateway.openai.chat import ChatBody, chat_call
from tribar.gateway.openai.completions import CompletionBody, completion_call

CHAT_DECODER = msgspec.json.Decoder(ChatBody)
COMPLETION_DECODER = msgspec.json.Decoder(CompletionBody)
USER: dict[str, Any] = {"role": "user", "content": "hi"}


def chat(**fields: Any) -> OpenAiCall:
    raw = msgspec.json.encode({"model": "fake", "messages": [USER]} | fields)
    body = decode(raw, CHAT_DECODER, 64)
    return chat_call(body, FAKE_CARD, trace_id="t")


def completion(**fields: Any) -> OpenAiCall:
    raw = msgspec.json.encode({"model": "fake", "prompt": "x"} | fields)
    return completion_call(decode(raw, COMPLETION_DECODER, 64), FAKE_CARD, trace_id="t")


def chat_prompt(*messages: dict[str, Any], **fields: Any) -> ChatPrompt:
    prompt = chat(messages=list(messages), **fields).requests[0].prompt
    assert isinstance(prompt, ChatPrompt)
    return prompt
