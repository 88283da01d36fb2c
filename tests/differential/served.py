"""Our own server over the suite's repository."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from tests.differential.case import Call, Case, Http
from tests.differential.cases.requests import post
from tests.differential.play import Addresses, play_call
from tests.differential.repository_facts import REPOSITORY, working_models
from tests.e2e.server_process import Server

FIRST_MODELS = ("batch_delay", "simple")
"""Loaded from the start: what is asked of all models is never asked of none."""

FLAGS = (
    *("--model-repository", str(REPOSITORY)),
    *("--model-control-mode", "explicit", "--load-model", ",".join(FIRST_MODELS)),
    *("--port", "0", "--grpc-port", "0", "--allow-shared-memory"),
)


class ServedRepository:
    """``tribar serve``. Models are loaded when a case first names them: each is a process, and takes its time."""

    def __init__(self, addresses: Addresses) -> None:
        self.addresses = addresses
        self._missing = set(working_models()) - set(FIRST_MODELS)

    def has_models_of(self, case: Case) -> Addresses:
        """Where to ask, once all that the case names is loaded."""
        self.has(*{name for call in case.calls for name in names_in(call)})
        return self.addresses

    def has(self, *models: str) -> Addresses:
        """Where to ask, once these are loaded, if they are not odd ones."""
        for model in self._missing.intersection(models):
            answer = play_call(post(f"/v2/repository/models/{model}/load", ""), self.addresses)
            assert answer["status"] == 200, answer
            self._missing.remove(model)
        return self.addresses


def names_in(call: Call) -> set[str]:
    """The models that a call is about."""
    if isinstance(call, Http):
        return {*re.findall("/models/([^/]+)", call.path), *call.entries}
    named = {str(message.get("model_name") or message.get("name")) for message in call.messages}
    return {*named, *call.entries}


@contextmanager
def serving_repository() -> Iterator[ServedRepository]:
    """On free ports."""
    server = Server(*FLAGS)
    try:
        http_port = server.wait_for_line(r"URL +http://127\.0\.0\.1:(\d+)")[1]
        grpc_port = server.wait_for_line(r"gRPC +(?:\w+://)?127\.0\.0\.1:(\d+)")[1]
        yield ServedRepository(Addresses(f"127.0.0.1:{http_port}", f"127.0.0.1:{grpc_port}"))
    finally:
        server.end()
