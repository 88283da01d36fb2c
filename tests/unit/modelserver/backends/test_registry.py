import pytest

from tribar.core.errors import Unsupported
from tribar.modelserver.backends import registry
from tribar.modelserver.backends.base import Backend
from tribar.modelserver.backends.fake import FakeBackend
from tribar.modelserver.backends.registry import BackendRegistry


class Point:
    name = "mine"

    def load(self) -> type[Backend]:
        return FakeBackend


def test_a_package_adds_its_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "entry_points", lambda group: [Point()] if group == "tribar.backends" else [])
    backends = BackendRegistry()
    assert {"onnxruntime", "python", "pytorch", "mine"} == set(backends)
    assert isinstance(backends["mine"], FakeBackend)
    assert backends["mine"] is backends["mine"]
    with pytest.raises(KeyError):
        backends["tensorrt"]


def test_a_missing_extra_is_told_when_a_model_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_BUILT_IN", {"onnxruntime": ("a_module_that_nobody_has", "X")})
    with pytest.raises(Unsupported, match=r"'onnxruntime' cannot be imported .*tribar\[models\]"):
        BackendRegistry()["onnxruntime"]
