"""Makes a case's calls on a server and tells what it answered, without what differs from run to run."""

import contextlib
import http.client
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.json_format import ParseDict
from tests.differential.case import Call, Case, Grpc, Http
from tests.differential.observe import Answer, observe_grpc, observe_http
from tritonclient.grpc import service_pb2, service_pb2_grpc

TIMEOUT_S = 20.0
SERVICE = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]


@dataclass(frozen=True)
class Addresses:
    """Where a server listens, as host:port."""

    http: str
    grpc: str


def play(case: Case, addresses: Addresses) -> list[Answer]:
    """The answers to the calls, in order."""
    return [play_call(call, addresses) for call in case.calls]


def play_call(call: Call, addresses: Addresses) -> Answer:
    """The answer to one call."""
    return play_http(call, addresses.http) if isinstance(call, Http) else play_grpc(call, addresses.grpc)


def play_http(call: Http, address: str) -> Answer:
    """An answer over HTTP; a connection that is closed without one is an answer too."""
    connection = http.client.HTTPConnection(address, timeout=TIMEOUT_S)
    with contextlib.closing(connection):
        connection.putrequest(call.method, call.path, skip_accept_encoding=True)
        for name, value in call.headers.items():
            connection.putheader(name, value)
        given = {name.lower() for name in call.headers}
        if (call.body or call.method == "POST") and not given & {"content-length", "transfer-encoding"}:
            connection.putheader("Content-Length", str(len(call.body)))
        try:
            connection.endheaders(call.body or None)
            response = connection.getresponse()
            headers = {name.lower(): value for name, value in response.getheaders()}
            return observe_http(call, response.status, headers, response.read())
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
            return {"status": 0}


def play_grpc(call: Grpc, address: str) -> Answer:
    """An answer over gRPC: the status code, and the messages that came before it."""
    method = SERVICE.methods_by_name[call.rpc]
    messages = [ParseDict(message, getattr(service_pb2, method.input_type.name)()) for message in call.messages]
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    answers: list[Any] = []
    with grpc.insecure_channel(address, options=options) as channel:
        stub = getattr(service_pb2_grpc.GRPCInferenceServiceStub(channel), call.rpc)
        try:
            if call.rpc == "ModelStreamInfer":
                answers.extend(stub(iter(messages), timeout=call.timeout_s))
            else:
                answers.append(stub(messages[0], timeout=call.timeout_s))
        except grpc.RpcError as error:
            return observe_grpc(call, error.code().name, error.details() or "", answers)
    return observe_grpc(call, "OK", "", answers)
