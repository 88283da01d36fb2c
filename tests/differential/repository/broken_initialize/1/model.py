"""Fails before it serves."""


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        raise RuntimeError("the weights are gone")
