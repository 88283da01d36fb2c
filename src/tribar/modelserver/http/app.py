"""The model server's HTTP front: one ASGI application for everything below ``/v2``."""

import logging
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from starlette.types import Receive, Scope, Send

from tribar.core.errors import TribarError
from tribar.modelserver.http.body import BodyReader
from tribar.modelserver.http.departure import PATIENCE_S
from tribar.modelserver.http.exchange import JSON, Answer, Endpoint, Exchange
from tribar.modelserver.http.generate import Generation
from tribar.modelserver.http.inference import Inference
from tribar.modelserver.http.models import ModelEndpoints
from tribar.modelserver.http.problem import error_body, status_of
from tribar.modelserver.http.repository import RepositoryEndpoints
from tribar.modelserver.http.setting_endpoints import SettingEndpoints
from tribar.modelserver.http.shared_memory_endpoints import SharedMemoryEndpoints
from tribar.modelserver.overdue import Overdue
from tribar.modelserver.service import Service
from tribar.modelserver.settings import ServerSettings
from tribar.modelserver.shared_memory import SharedMemory
from tribar.modelserver.version_number import version_number

_log = logging.getLogger(__name__)

Methods = Mapping[str, Endpoint]
"""What a path answers, by method."""


class Found(NamedTuple):
    """What a path names, "" where it names none."""

    methods: Methods
    model: str
    version: str
    region: str


_MAX_KEPT_PATHS: Final = 1024
_MAX_KEPT_PATH_CHARS: Final = 200
"""What the most recent paths name is kept: most requests are for a few."""

_BODY_PAUSE_S: Final = 60.0
_BODY_TIMEOUT_S: Final = 600.0
_NOT_FOUND: Final = Answer(404, (error_body("Not Found"),))
_WRONG_METHOD: Final = Answer(405, (error_body("Method Not Allowed"),))


class HttpFront:
    """Answers requests by asking ``service``. It answers its own errors, too: nothing raises out of it.

    Bodies, also once they are decompressed, have at most ``max_body_bytes``, and large ones together, until they are
    answered, ``max_all_bodies_bytes`` (sixteen of them where it is None). Each piece of a body has ``body_pause_s`` to
    arrive, and all of it ``body_timeout_s``. ``version`` is what the metadata tells of the server.
    """

    def __init__(
        self,
        service: Service,
        *,
        max_body_bytes: int,
        shared_memory: SharedMemory,
        settings: ServerSettings,
        version: str = "",
        max_all_bodies_bytes: int | None = None,
        body_pause_s: float = _BODY_PAUSE_S,
        body_timeout_s: float = _BODY_TIMEOUT_S,
    ) -> None:
        self._bodies = bodies = BodyReader(
            max_body_bytes,
            max_all_bytes=max_all_bodies_bytes or 16 * max_body_bytes,
            pause_s=body_pause_s,
            timeout_s=body_timeout_s,
        )
        models = ModelEndpoints(service, version)
        patience = Overdue(PATIENCE_S)
        inference = Inference(service, bodies, patience, shared_memory)
        generation = Generation(service, bodies, patience)
        repository = RepositoryEndpoints(service, bodies)
        setting = SettingEndpoints(service, bodies, settings)
        self._server: dict[str, Methods] = {
            "/v2": {"GET": models.server},
            "/v2/health/live": {"GET": models.live},
            "/v2/health/ready": {"GET": models.ready},
            "/v2/models/stats": {"GET": models.statistics},
            "/v2/repository/index": {"POST": repository.index},
            "/v2/trace/setting": {"GET": setting.trace, "POST": setting.update_trace},
            "/v2/logging": {"GET": setting.log, "POST": setting.update_log},
        }
        self._model: dict[str, Methods] = {
            "": {"GET": models.metadata},
            "ready": {"GET": models.model_ready},
            "config": {"GET": models.config},
            "stats": {"GET": models.statistics},
            "infer": {"POST": inference.infer},
            "generate": {"POST": generation.generate},
            "generate_stream": {"POST": generation.generate_stream},
            "trace/setting": {"GET": setting.trace, "POST": setting.update_trace},
        }
        self._repository: dict[str, Methods] = {
            "load": {"POST": repository.load},
            "unload": {"POST": repository.unload},
        }
        self._memory = _memory_paths(SharedMemoryEndpoints(bodies, shared_memory))
        self._named_repository: Methods = {"POST": repository.of_named_repository}
        self._index: Methods = {"POST": repository.index}
        self._find_again = lru_cache(_MAX_KEPT_PATHS)(self._find)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        exchange = Exchange(scope, receive, send)
        try:
            answer = await self._answer(exchange)
        except TribarError as error:
            answer = _failed(error)
        except Exception:
            _log.exception("a request for %s failed", scope["path"][:200])
            answer = Answer(500, (error_body("an internal error, which is in the server's log"),))
        finally:
            if exchange.n_held_bytes:
                self._bodies.release(exchange)
        if answer is not None and not exchange.is_started:
            await answer.write(send)

    async def _answer(self, exchange: Exchange) -> Answer | None:
        scope = exchange.scope
        path = scope["raw_path"].decode("latin-1") if "raw_path" in scope else scope["path"]
        found = self._find_again(path) if len(path) <= _MAX_KEPT_PATH_CHARS else self._find(path)
        if found is None:
            return _NOT_FOUND
        endpoint = found.methods.get(scope["method"])
        if endpoint is None:
            return _WRONG_METHOD
        exchange.model, exchange.version, exchange.region = found.model, found.version, found.region
        return await endpoint(exchange)

    def _find(self, path: str) -> Found | None:
        """What the path names. As in Triton it is taken as it is written: ``%2F`` is three characters.

        Raises ``InvalidRequest``.
        """
        parts = path.split("/")
        if len(parts) < 4 or path in self._server:
            return _found(self._server.get(path))
        if parts[1] != "v2":
            return None
        if parts[2] == "models":
            return self._find_model(parts)
        if parts[2] == "repository":
            return self._find_repository(parts)
        return self._find_memory(parts)

    def _find_model(self, parts: list[str]) -> Found | None:
        """``/v2/models/NAME[/versions/NUMBER][/VERB]``."""
        model, version, start = parts[3], "", 4
        if len(parts) > 5 and parts[4] == "versions":
            if not parts[5].isdecimal():
                return None
            version, start = version_number(parts[5]), 6
        verb = "/".join(parts[start:])
        if not model or (not verb and len(parts) > start):
            return None
        return _found(self._model.get(verb), model, version)

    def _find_repository(self, parts: list[str]) -> Found | None:
        """``/v2/repository[/REPOSITORY]/models/NAME/VERB`` and ``/v2/repository/REPOSITORY/index``."""
        match parts[3:]:
            case ["models", name, verb] if name:
                return _found(self._repository.get(verb), name)
            case [repository, "models", name, verb] if repository and name and verb in self._repository:
                return _found(self._named_repository)
            case [repository, "index"] if repository:
                return _found(self._index)
            case _:
                return None

    def _find_memory(self, parts: list[str]) -> Found | None:
        """``/v2/{system|cuda}sharedmemory[/region/NAME]/VERB``."""
        verbs = self._memory.get(parts[2], {})
        match parts[3:]:
            case [verb]:
                return _found(verbs.get(verb))
            case ["region", name, verb] if name:
                return _found(verbs.get(verb), region=name)
            case _:
                return None


def _found(methods: Methods | None, model: str = "", version: str = "", *, region: str = "") -> Found | None:
    return None if methods is None else Found(methods, model, version, region)


def _failed(error: TribarError) -> Answer:
    headers = [JSON]
    if error.retry_after_s is not None:
        headers.append((b"retry-after", b"%d" % max(1, round(error.retry_after_s))))
    return Answer(status_of(error), (error_body(error.message),), headers)


def _memory_paths(memory: SharedMemoryEndpoints) -> dict[str, dict[str, Methods]]:
    """By kind of memory and action."""
    return {
        "systemsharedmemory": {
            "status": {"GET": memory.status},
            "register": {"POST": memory.register},
            "unregister": {"POST": memory.unregister},
        },
        "cudasharedmemory": {
            "status": {"GET": memory.cuda_status},
            "register": {"POST": memory.cuda_register},
            "unregister": {"POST": memory.cuda_unregister},
        },
    }
