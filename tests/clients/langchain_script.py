"""LangChain's ``ChatOpenAI`` and ``OpenAI``: invoke, stream, batch, all of it async, usage, tools, structured output.

Run as ``python langchain_script.py URL MODEL``.
"""

import asyncio
import sys

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage  # type: ignore[import-not-found]
from langchain_core.tools import tool  # type: ignore[import-not-found]
from langchain_openai import ChatOpenAI, OpenAI  # type: ignore[import-not-found]
from pydantic import BaseModel, Field

URL, MODEL = sys.argv[1:]
QUESTIONS = [[HumanMessage(f"Name a colour, number {i}.")] for i in range(4)]
TURNS = [
    SystemMessage("Answer in one short sentence."),
    HumanMessage("What is the capital of France?"),
    AIMessage("Paris."),
    HumanMessage("And of Italy?"),
]


class Place(BaseModel, extra="forbid"):
    """A city. Where more fields were allowed, a small model would hardly come to an end."""

    name: str = Field(max_length=20)
    population: int = Field(ge=0, le=10**8)


@tool  # type: ignore[untyped-decorator]
def weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


def chat_model(max_tokens: int = 24) -> ChatOpenAI:
    return ChatOpenAI(
        base_url=f"{URL}/v1", api_key="-", model=MODEL, temperature=0, max_tokens=max_tokens, max_retries=0
    )


def check_whole_answers() -> None:
    llm = chat_model()
    answer = llm.invoke(TURNS)
    assert answer.content.strip()
    usage = answer.usage_metadata
    assert usage["input_tokens"] > 20
    assert 1 <= usage["output_tokens"] <= 24
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert answer.response_metadata["finish_reason"] in {"stop", "length"}
    assert answer.response_metadata["model_name"] == MODEL
    together = llm.batch(QUESTIONS)
    assert [one.content for one in together] == [llm.invoke(question).content for question in QUESTIONS]
    assert llm.bind(stop=[together[0].content[1:4]]).invoke(QUESTIONS[0]).content == together[0].content[:1]
    scored = llm.bind(logprobs=True, top_logprobs=2).invoke(TURNS).response_metadata["logprobs"]["content"]
    assert len(scored) >= 1
    assert all(len(token["top_logprobs"]) == 2 for token in scored)


def check_streams() -> None:
    llm = chat_model()
    chunks = list(llm.stream(TURNS, stream_usage=True))
    assert len(chunks) > 3
    total = chunks[0]
    for chunk in chunks[1:]:
        total += chunk
    whole = llm.invoke(TURNS)
    assert total.content == whole.content
    assert total.usage_metadata["output_tokens"] == whole.usage_metadata["output_tokens"]


async def check_async() -> None:
    llm = chat_model()
    whole = await llm.ainvoke(TURNS)
    pieces = [chunk.content async for chunk in llm.astream(TURNS)]
    assert "".join(pieces) == whole.content
    together = await llm.abatch(QUESTIONS)
    assert all(one.content.strip() for one in together)


def check_completions() -> None:
    llm = OpenAI(base_url=f"{URL}/v1", api_key="-", model=MODEL, temperature=0, max_tokens=8, max_retries=0)
    text = llm.invoke("Once upon a time")
    assert text.strip()
    assert "".join(llm.stream("Once upon a time")) == text
    assert llm.batch(["Once upon a time", "The sun"])[0] == text


def check_tools() -> None:
    llm = chat_model(max_tokens=200)
    answer = llm.bind_tools([weather], tool_choice="weather").invoke("How is the weather in Rome?")
    (call,) = answer.tool_calls
    assert call["name"] == "weather"
    assert isinstance(call["args"]["city"], str)
    turns = [HumanMessage("How is the weather in Rome?"), answer, weather.invoke(call)]
    assert llm.invoke(turns).content.strip()


def check_structured_output() -> None:
    llm = chat_model(max_tokens=200)
    for method in ("json_schema", "function_calling"):
        made = llm.with_structured_output(Place, method=method).invoke("Describe the city of Rome.")
        assert isinstance(made, Place), method


def main() -> None:
    check_whole_answers()
    check_streams()
    asyncio.run(check_async())
    check_completions()
    check_tools()
    check_structured_output()


if __name__ == "__main__":
    main()
