"""One streamed answer from a running server, with the asynchronous OpenAI client.

python examples/stream_async.py [URL]
"""

import asyncio
import sys

from openai import AsyncOpenAI


async def main(url: str) -> None:
    """Print the answer as it comes, then what it cost."""
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as client:
        model = (await client.models.list()).data[0].id
        chunks = await client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": "Name three rivers in Europe."}],
            max_tokens=64,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
        async for chunk in chunks:
            if chunk.choices:
                print(chunk.choices[0].delta.content or "", end="", flush=True)
            elif chunk.usage is not None:
                print(f"\n[{chunk.usage.prompt_tokens} tokens in, {chunk.usage.completion_tokens} out]")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:2] or ["http://127.0.0.1:8000"]))
