"""A model's say over the other models of its server."""

from collections.abc import Mapping

from tribar.modelserver.backends.python.messages import Answer, Question
from tribar.modelserver.backends.python.worker.api.errors import TritonModelException
from tribar.modelserver.backends.python.worker.session import Session


class ModelControl:
    """Load, unload, and ask whether a model is ready. All but ``is_ready`` raise ``TritonModelException``."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def load_model(self, model_name: str, config: str = "", files: Mapping[str, bytes] | None = None) -> None:
        """Load or reload; ``config`` is JSON, ``files`` have names such as ``file:1/model.onnx``."""
        question = Question(0, "load", model_name=model_name, config=config, files=dict(files or {}))
        _raise_error(self._session.ask(question), "Failed to load model: ")

    def unload_model(self, model_name: str, unload_dependents: bool = False) -> None:
        """Unload; returns when no new request reaches it."""
        question = Question(0, "unload", model_name=model_name, unload_dependents=unload_dependents)
        _raise_error(self._session.ask(question), "Failed to unload model: ")

    def is_model_ready(self, model_name: str, model_version: str = "") -> bool:
        """Whether it can be asked now."""
        answer = self._session.ask(Question(0, "ready", model_name=model_name, model_version=str(model_version)))
        _raise_error(answer, "")
        return answer.value


def _raise_error(answer: Answer, what: str) -> None:
    if answer.response.error is not None:
        raise TritonModelException(f"{what}{answer.response.error}")
