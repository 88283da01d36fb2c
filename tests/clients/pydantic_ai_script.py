"""Pydantic AI: text, streams, output by ``response_format`` and by a tool, and an agent that may call a tool.

Run as ``python pydantic_ai_script.py URL MODEL``.
"""

import asyncio
import sys
from typing import Any

from pydantic import BaseModel, Field
from pydantic_ai import Agent, NativeOutput, ToolOutput  # type: ignore[import-not-found]
from pydantic_ai.models.openai import OpenAIChatModel  # type: ignore[import-not-found]
from pydantic_ai.providers.openai import OpenAIProvider  # type: ignore[import-not-found]

URL, NAME = sys.argv[1:]
QUESTION = "Describe the city of Rome."


class Place(BaseModel, extra="forbid"):
    """A city. Where more fields were allowed, a small model would hardly come to an end."""

    name: str = Field(max_length=20)
    population: int = Field(ge=0, le=10**8)


def agent(**options: Any) -> Agent:
    model = OpenAIChatModel(NAME, provider=OpenAIProvider(base_url=f"{URL}/v1", api_key="-"))
    return Agent(model, model_settings={"temperature": 0, "max_tokens": 200}, retries=0, **options)


def check_text() -> None:
    plain = agent(instructions="Answer in one short sentence.")
    first = plain.run_sync("What is the capital of France?")
    assert first.output.strip()
    assert first.usage.output_tokens >= 1
    second = plain.run_sync("And of Italy?", message_history=first.all_messages())
    assert second.output.strip()


async def check_streams() -> None:
    plain = agent()
    whole = await plain.run(QUESTION)
    async with plain.run_stream(QUESTION) as stream:
        pieces = [piece async for piece in stream.stream_text(delta=True, debounce_by=None)]
    assert len(pieces) > 3
    assert "".join(pieces) == whole.output


def check_structured_output() -> None:
    for kind in (NativeOutput, ToolOutput):
        made = agent(output_type=kind(Place)).run_sync(QUESTION)
        assert isinstance(made.output, Place), kind


def check_tools() -> None:
    """The model decides whether it calls, and is too small to decide well; either way the run comes to its end."""
    seen: list[str] = []

    def weather(city: str) -> str:
        """The weather of a city."""
        seen.append(city)
        return f"sunny in {city}"

    answer = agent(tools=[weather]).run_sync("How is the weather in Rome?")
    assert answer.output.strip()
    assert all(isinstance(city, str) for city in seen)


def main() -> None:
    check_text()
    asyncio.run(check_streams())
    check_structured_output()
    check_tools()


if __name__ == "__main__":
    main()
