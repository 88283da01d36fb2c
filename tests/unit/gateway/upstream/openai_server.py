"""A scripted OpenAI-compatible server in the test's own loop: what is asked is kept, what is answered is given."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any

import orjson
from aiohttp import web

Step = bytes | asyncio.Event | None
"""Bytes are sent, an event is waited for, None breaks the connection off."""

Script = Callable[[dict[str, Any]], Iterable[Step] | web.Response]


def event(document: object) -> bytes:
    return b"data: " + orjson.dumps(document) + b"\n\n"


def chunk(text: str = "", finish: str | None = None, **delta: object) -> bytes:
    return event({"choices": [{"index": 0, "delta": {"content": text, **delta}, "finish_reason": finish}]})


def usage(n_prompt: int, n_output: int, n_cached: int = 0) -> bytes:
    details = {"cached_tokens": n_cached}
    told = {"prompt_tokens": n_prompt, "completion_tokens": n_output, "prompt_tokens_details": details}
    return event({"choices": [], "usage": told})


DONE = b"data: [DONE]\n\n"


def say(*texts: str, finish: str = "stop") -> Script:
    """An answer of these chunks, and its usage."""

    def script(body: dict[str, Any]) -> Iterable[Step]:
        prompt = body.get("prompt", body.get("messages"))
        yield from map(chunk, texts)
        yield chunk(finish=finish)
        yield usage(len(prompt or ()), len(texts))
        yield DONE

    return script


class OpenAiServer:
    """``bodies``, ``headers`` and ``peers`` are those of the requests so far; ``n_open`` are being answered."""

    def __init__(self, script: Script, models: Sequence[dict[str, Any]] | web.Response | None = None) -> None:
        self.script = script
        self.models = [{"id": "m", "max_model_len": 65536}] if models is None else models
        self.url = ""
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.peers: set[object] = set()
        self.n_open = self.n_gone = self.n_probes = 0
        self.changed = asyncio.Event()

    async def until(self, condition: Callable[["OpenAiServer"], bool]) -> None:
        while not condition(self):
            await self.changed.wait()

    @contextlib.asynccontextmanager
    async def serving(self, port: int = 0) -> AsyncIterator["OpenAiServer"]:
        app = web.Application(client_max_size=64 << 20)
        app.router.add_get("/v1/models", self._list)
        app.router.add_post("/v1/{path:.*}", self._answer)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _list(self, request: web.Request) -> web.StreamResponse:
        self.n_probes += 1
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        if isinstance(self.models, web.Response):
            return _copy(self.models)
        return web.json_response({"object": "list", "data": self.models})

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = orjson.loads(await request.read())
        self.paths.append(request.path)
        assert request.transport is not None
        self.peers.add(request.transport.get_extra_info("peername"))
        self.bodies.append(body)
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        self._count(1)
        try:
            steps = self.script(body)
            if isinstance(steps, web.Response):
                return _copy(steps)
            return await self._stream(request, steps)
        except (asyncio.CancelledError, ConnectionError):
            self.n_gone += 1
            raise
        finally:
            self._count(-1)

    async def _stream(self, request: web.Request, steps: Iterable[Step]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        for step in steps:
            if step is None:
                assert request.transport is not None
                request.transport.abort()
                return response
            if isinstance(step, asyncio.Event):
                await step.wait()
            else:
                await response.write(step)
        await response.write_eof()
        return response

    def _count(self, change: int) -> None:
        self.n_open += change
        self.changed.set()
        self.changed = asyncio.Event()


def _copy(response: web.Response) -> web.Response:
    return web.Response(body=response.body, status=response.status, headers=response.headers)
