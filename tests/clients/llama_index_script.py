"""LlamaIndex's ``OpenAILike``: complete and chat, whole and streamed, both in sync and async, and calls of tools.

Run as ``python llama_index_script.py URL MODEL``.
"""

import asyncio
import sys

from llama_index.core.llms import ChatMessage  # type: ignore[import-not-found]
from llama_index.core.tools import FunctionTool  # type: ignore[import-not-found]
from llama_index.llms.openai_like import OpenAILike  # type: ignore[import-not-found]

URL, MODEL = sys.argv[1:]
PROMPT = "Once upon a time"
MESSAGES = [ChatMessage("Answer briefly.", role="system"), ChatMessage("Name three colours.")]


def llm_of(*, is_chat_model: bool, max_tokens: int = 24) -> OpenAILike:
    return OpenAILike(
        model=MODEL,
        api_base=f"{URL}/v1",
        api_key="-",
        context_window=2048,
        is_chat_model=is_chat_model,
        is_function_calling_model=is_chat_model,
        temperature=0,
        max_tokens=max_tokens,
        max_retries=0,
    )


def check_sync(llm: OpenAILike) -> None:
    completed = llm.complete(PROMPT)
    assert completed.text.strip()
    pieces = list(llm.stream_complete(PROMPT))
    assert pieces[-1].text == completed.text == "".join(piece.delta or "" for piece in pieces)
    answered = llm.chat(MESSAGES)
    assert answered.message.content.strip()
    assert answered.raw.usage.completion_tokens >= 1
    chunks = list(llm.stream_chat(MESSAGES))
    assert chunks[-1].message.content == answered.message.content
    assert "".join(chunk.delta or "" for chunk in chunks) == answered.message.content


async def check_async(llm: OpenAILike) -> None:
    completed, answered = await asyncio.gather(llm.acomplete(PROMPT), llm.achat(MESSAGES))
    pieces = [piece.delta or "" async for piece in await llm.astream_complete(PROMPT)]
    assert "".join(pieces) == completed.text
    chunks = [chunk.delta or "" async for chunk in await llm.astream_chat(MESSAGES)]
    assert "".join(chunks) == answered.message.content


def weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


def check_tools() -> None:
    llm = llm_of(is_chat_model=True, max_tokens=200)
    tool = FunctionTool.from_defaults(weather)
    answer = llm.chat_with_tools([tool], user_msg="How is the weather in Rome?", tool_required=True)
    (call,) = llm.get_tool_calls_from_response(answer)
    assert call.tool_name == "weather"
    assert isinstance(call.tool_kwargs["city"], str)


def main() -> None:
    for is_chat_model in (True, False):
        llm = llm_of(is_chat_model=is_chat_model)
        check_sync(llm)
        asyncio.run(check_async(llm))
    check_tools()


if __name__ == "__main__":
    main()
