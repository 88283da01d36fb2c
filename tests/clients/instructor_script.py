"""Instructor: an answer as a Pydantic object, by ``response_format`` and by a tool, whole, streamed and async.

Run as ``python instructor_script.py URL MODEL``.
"""

import asyncio
import sys
from typing import Literal

import instructor  # type: ignore[import-not-found]
import openai
from pydantic import BaseModel, Field

URL, MODEL = sys.argv[1:]
MODES = (instructor.Mode.JSON_SCHEMA, instructor.Mode.TOOLS)
ASKED = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Ada is 36 years old and likes the colour green."}],
    "temperature": 0,
    "max_tokens": 200,
    "max_retries": 0,
}


class Person(BaseModel, extra="forbid"):
    """Somebody. Where more fields were allowed, a small model would hardly come to an end."""

    name: str = Field(max_length=20)
    age: int = Field(ge=0, le=150)
    colour: Literal["red", "green", "blue"]


def check_sync(mode: instructor.Mode) -> None:
    with openai.OpenAI(base_url=f"{URL}/v1", api_key="-", max_retries=0) as client:
        ask = instructor.from_openai(client, mode=mode).chat.completions
        person, completion = ask.create_with_completion(response_model=Person, **ASKED)
        assert isinstance(person, Person), mode
        assert completion.usage.completion_tokens >= 5
        partial = list(ask.create_partial(response_model=Person, **ASKED))
        assert len(partial) > 3
        assert Person.model_validate(partial[-1].model_dump()).age == person.age, mode


async def check_async(mode: instructor.Mode) -> None:
    async with openai.AsyncOpenAI(base_url=f"{URL}/v1", api_key="-", max_retries=0) as client:
        ask = instructor.from_openai(client, mode=mode).chat.completions
        people = await asyncio.gather(*(ask.create(response_model=Person, **ASKED) for _ in range(3)))
        assert all(isinstance(person, Person) for person in people), mode


def main() -> None:
    for mode in MODES:
        check_sync(mode)
        asyncio.run(check_async(mode))


if __name__ == "__main__":
    main()
