"""``ModelInfer``: one request, one response."""

from tribar.modelserver.grpc.call import UnaryCall
from tribar.modelserver.grpc.http2.stream import Buffer
from tribar.modelserver.grpc.infer_reader import InferReader
from tribar.modelserver.grpc.infer_writer import InferWriter
from tribar.modelserver.grpc.wire import joined
from tribar.modelserver.service import Service


class Inference:
    """Answers ``ModelInfer``. A client that goes away or whose deadline passes cancels the call, and so the work."""

    def __init__(self, service: Service, reader: InferReader, writer: InferWriter) -> None:
        self._service = service
        self._reader = reader
        self._writer = writer

    async def model_infer(self, content: Buffer, asked: UnaryCall) -> bytes:
        """The serialised response. Raises what ``Service.infer`` and the reader do."""
        parsed = await self._reader.parse(content)
        call = await self._reader.read(parsed, asked.deadline_s)
        response = await self._service.infer(call.request)
        return await joined(await self._writer.parts(response, call))
