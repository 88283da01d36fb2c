"""Streamed requests in parallel, and how each of them ended."""

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

import aiohttp

TIMEOUT_S = 90.0
TEXT = "tick " * 20
"""The answer to ``brief`` (see ``server_process.SCRIPT``)."""


class Traffic:
    """``n_workers`` ask one question after the other until ``stop``; ``endings`` counts how they ended.

    ``ok``: the whole answer, one finish reason, one [DONE]. ``refused``: 503 with Retry-After and an error that says
    why. ``failed``: an answer that began and ended with one error event. Everything else raises.
    """

    def __init__(self, urls: Sequence[str], n_workers: int) -> None:
        self._urls = itertools.cycle(urls)
        self._n_workers = n_workers
        self._is_stopping = False
        self._has_ended = asyncio.Condition()
        self.endings: Counter[str] = Counter()
        self.messages: Counter[str] = Counter()

    async def run(self, play: Callable[[], Awaitable[None]]) -> None:
        """Traffic for as long as ``play`` runs."""
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        async with aiohttp.ClientSession(timeout=timeout) as session, asyncio.TaskGroup() as tasks:
            for _ in range(self._n_workers):
                tasks.create_task(self._work(session))
            try:
                await play()
            finally:
                self._is_stopping = True

    async def wait_for(self, ending: str, n: int) -> None:
        """Until ``n`` more requests have ended so."""
        goal = self.endings[ending] + n
        async with asyncio.timeout(TIMEOUT_S), self._has_ended:
            await self._has_ended.wait_for(lambda: self.endings[ending] >= goal)

    async def _work(self, session: aiohttp.ClientSession) -> None:
        while not self._is_stopping:
            ending = await self._ask(session, next(self._urls))
            async with self._has_ended:
                self.endings[ending] += 1
                self._has_ended.notify_all()
            if ending == "refused":
                await asyncio.sleep(0.05)  # a client that is refused does not hammer

    async def _ask(self, session: aiohttp.ClientSession, url: str) -> str:
        body = {"model": "tiny", "messages": [{"role": "user", "content": "brief"}], "stream": True}
        async with session.post(f"{url}/v1/chat/completions", json=body) as response:
            if response.status != 200:
                problem = await response.json()
                assert response.status == 503, problem
                assert int(response.headers["retry-after"]) >= 1
                self.messages[problem["error"]["message"]] += 1
                return "refused"
            events = [
                line.removeprefix(b"data: ").strip() async for line in response.content if line.startswith(b"data: ")
            ]
        return self._ending(events)

    def _ending(self, events: list[bytes]) -> str:
        chunks = [json.loads(event) for event in events if event != b"[DONE]"]
        errors = [chunk["error"] for chunk in chunks if "error" in chunk]
        choices = [choice for chunk in chunks for choice in chunk.get("choices", ())]
        reasons = [choice["finish_reason"] for choice in choices if choice["finish_reason"]]
        text = "".join(choice["delta"].get("content") or "" for choice in choices)
        if errors:
            assert len(errors) == 1, events
            assert not reasons, events
            assert TEXT.startswith(text), text
            self.messages[errors[0]["message"]] += 1
            return "failed"
        assert reasons == ["stop"], events
        assert events.count(b"[DONE]") == 1
        assert events[-1] == b"[DONE]"
        assert text == TEXT
        return "ok"
