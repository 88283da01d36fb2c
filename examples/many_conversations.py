"""Several conversations at once against a running server; each turn reuses the cached prefix of the one before.

python examples/many_conversations.py [URL]
"""

import asyncio
import sys

from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam

CITIES = ("Paris", "Kyoto", "Nairobi", "Lima", "Oslo", "Hanoi", "Quito", "Turin")
QUESTIONS = ("Describe {city} in two sentences.", "What would you eat there?", "And what would you avoid?")


async def converse(client: AsyncOpenAI, model: str, city: str) -> str:
    """Ask all questions about ``city``; returns how many prompt tokens of each turn came from the cache."""
    messages: list[ChatCompletionMessageParam] = []
    turns = []
    for question in QUESTIONS:
        messages.append({"role": "user", "content": question.format(city=city)})
        answer = await client.chat.completions.create(model=model, messages=messages, max_tokens=48)
        messages.append({"role": "assistant", "content": answer.choices[0].message.content or ""})
        usage = answer.usage
        details = usage.prompt_tokens_details if usage else None
        if usage and details:
            turns.append(f"{details.cached_tokens} of {usage.prompt_tokens}")
    return f"{city}: cached prompt tokens by turn: {', '.join(turns)}"


async def main(url: str) -> None:
    """Print one line for each conversation as it ends."""
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as client:
        model = (await client.models.list()).data[0].id
        for line in asyncio.as_completed([converse(client, model, city) for city in CITIES]):
            print(await line)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:2] or ["http://127.0.0.1:8000"]))
