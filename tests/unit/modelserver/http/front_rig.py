"""The HTTP front over a fake service, asked without a socket."""

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.types import Message

from tribar.core.tensors import DataType
from tribar.modelserver.fake_service import FakeModel, FakeService
from tribar.modelserver.http.app import HttpFront
from tribar.modelserver.settings import ServerSettings
from tribar.modelserver.shared_memory import SharedMemory
from tribar.modelserver.signature import Signature, TensorSpec

LENGTH = "inference-header-content-length"


def signature(
    name: str,
    inputs: Mapping[str, DataType],
    dims: tuple[int, ...] = (-1,),
    *,
    max_batch_size: int = 8,
    is_decoupled: bool = False,
    labels: tuple[str, ...] = (),
) -> Signature:
    """A model whose n-th output is like its n-th input."""
    return Signature(
        name=name,
        versions=("1",),
        platform="python",
        inputs={key: TensorSpec(key, datatype, dims) for key, datatype in inputs.items()},
        outputs={
            f"OUTPUT{index}": TensorSpec(f"OUTPUT{index}", datatype, dims, labels=labels)
            for index, datatype in enumerate(inputs.values())
        },
        max_batch_size=max_batch_size,
        is_decoupled=is_decoupled,
    )


def identity(datatype: DataType, **options: Any) -> FakeModel:
    """``INPUT0`` comes back as ``OUTPUT0``. Its name is the datatype's in lower case."""
    return FakeModel(signature(datatype.lower(), {"INPUT0": datatype}, **options))


def identities() -> dict[str, FakeModel]:
    """A model of each datatype."""
    return {datatype.lower(): identity(datatype) for datatype in DataType}


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, or the part of it that is JSON."""
        n_bytes = int(self.headers.get(LENGTH, len(self.body)))
        return json.loads(self.body[:n_bytes])

    @property
    def tail(self) -> bytes:
        """What follows the JSON."""
        return self.body[int(self.headers.get(LENGTH, len(self.body))) :]

    @property
    def error(self) -> str:
        """The text of an error."""
        found = self.json
        assert set(found) == {"error"}
        assert found["error"]
        return str(found["error"])


class Front:
    """Asks the application."""

    def __init__(
        self,
        models: Mapping[str, FakeModel] | None = None,
        *,
        shared_memory: SharedMemory | None = None,
        max_body_bytes: int = 2**20,
        **options: Any,
    ) -> None:
        self.service = FakeService(identities() if models is None else models)
        self.settings = ServerSettings()
        self.app = HttpFront(
            self.service,
            max_body_bytes=max_body_bytes,
            shared_memory=shared_memory or SharedMemory(),
            settings=self.settings,
            **options,
        )

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes | Iterable[bytes] = b"",
        headers: Mapping[str, str] | None = None,
        *,
        left: asyncio.Event | None = None,
    ) -> Answer:
        """The answer to a request whose body comes in pieces; the client leaves when ``left`` is set."""
        pieces = iter([body] if isinstance(body, bytes) else body)
        waiting = next(pieces, None)

        async def receive() -> Message:
            nonlocal waiting
            if waiting is None:
                await (left or asyncio.Event()).wait()
                return {"type": "http.disconnect"}
            piece, waiting = waiting, next(pieces, None)
            return {"type": "http.request", "body": piece, "more_body": waiting is not None}

        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append({**message, "body": bytes(message.get("body", b""))})

        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()],
        }
        await self.app(scope, receive, send)
        assert [message["type"] for message in sent[:1]] == ["http.response.start"]
        assert all(message["type"] == "http.response.body" for message in sent[1:])
        assert not sent[-1].get("more_body", False)
        answer_headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        whole = b"".join(message["body"] for message in sent[1:])
        assert int(answer_headers.get("content-length", len(whole))) == len(whole)
        return Answer(sent[0]["status"], answer_headers, whole)

    async def get(self, path: str) -> Answer:
        """GET."""
        return await self.ask("GET", path)

    async def post(self, path: str, content: Any = b"", **headers: str) -> Answer:
        """POST of bytes as they are, or of anything else as JSON."""
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        return await self.ask("POST", path, body, {key.replace("_", "-"): value for key, value in headers.items()})

    async def infer(self, model: str, *inputs: Mapping[str, Any], **fields: Any) -> Answer:
        """An inference in JSON."""
        return await self.post(f"/v2/models/{model}/infer", {"inputs": list(inputs)} | fields)

    async def infer_binary(self, model: str, head: Mapping[str, Any], tail: bytes, **headers: str) -> Answer:
        """An inference whose inputs follow the JSON."""
        text = json.dumps(head).encode()
        headers = {LENGTH: str(len(text))} | {key.replace("_", "-"): value for key, value in headers.items()}
        return await self.ask("POST", f"/v2/models/{model}/infer", text + tail, headers)


def given(datatype: str, shape: Any, data: Any, name: str = "INPUT0") -> dict[str, Any]:
    """An input with its elements."""
    return {"name": name, "datatype": datatype, "shape": shape, "data": data}


def following(datatype: str, shape: Any, n_bytes: Any, name: str = "INPUT0") -> dict[str, Any]:
    """An input whose elements follow the JSON."""
    return {"name": name, "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": n_bytes}}


def wanted(name: str = "OUTPUT0", **parameters: Any) -> dict[str, Any]:
    """An output that a request asks for."""
    return {"name": name, "parameters": parameters}
