"""What ``auto_complete_config`` changes."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Self

_TENSOR_PROPERTIES = ("name", "data_type", "dims")


class ModelConfig:
    """A model's configuration as JSON in Triton's layout. All changes raise ``ValueError`` where they contradict it."""

    def __init__(self, model_config: str) -> None:
        self._config: dict[str, Any] = json.loads(model_config)

    def as_dict(self) -> dict[str, Any]:
        """The configuration; only to be read."""
        return self._config

    def to_json(self) -> str:
        """The configuration as it is now."""
        return json.dumps(self._config)

    def set_max_batch_size(self, max_batch_size: int) -> Self:
        """The largest batch, which may not be less than the configured one."""
        configured = self._config.get("max_batch_size", 0)
        if configured > max_batch_size:
            raise ValueError(
                f"configuration specified max_batch_size {configured}, but in auto-complete-config function for model "
                f"'{self._name}' specified max_batch_size {max_batch_size}"
            )
        self._config["max_batch_size"] = max_batch_size
        return self

    def set_dynamic_batching(self) -> Self:
        """Batch requests, unless that is configured."""
        for scheduler in ("sequence_batching", "ensemble_scheduling"):
            if scheduler in self._config:
                raise ValueError(
                    f"Configuration specified scheduling_choice as '{scheduler}', but auto-complete-config function "
                    f"for model '{self._name}' tries to set scheduling_choice as 'dynamic_batching'"
                )
        self._config.setdefault("dynamic_batching", {})
        return self

    def add_input(self, input: Mapping[str, Any]) -> Self:  # noqa: A002 - Triton's name
        """An input: ``name``, ``data_type``, ``dims``, and perhaps ``optional``."""
        self._add("input", input, extra=("optional",))
        return self

    def add_output(self, output: Mapping[str, Any]) -> Self:
        """An output: ``name``, ``data_type``, ``dims``."""
        self._add("output", output, extra=())
        return self

    def set_model_transaction_policy(self, transaction_policy_dict: Mapping[str, Any]) -> Self:
        """``{"decoupled": True}``: the model may give any number of responses."""
        if set(transaction_policy_dict) - {"decoupled"}:
            raise ValueError(
                f"model transaction property in auto-complete-config function for model '{self._name}' contains "
                "property other than 'decoupled'."
            )
        policy = self._config.setdefault("model_transaction_policy", {})
        if "decoupled" in transaction_policy_dict:
            configured, wanted = policy.get("decoupled"), transaction_policy_dict["decoupled"]
            if configured is not None and configured != wanted:
                raise ValueError(
                    f"trying to change decoupled property in auto-complete-config for model '{self._name}', which is "
                    f"already set to '{configured}'."
                )
            policy["decoupled"] = wanted
        return self

    @property
    def _name(self) -> str:
        return str(self._config.get("name", ""))

    def _add(self, kind: str, tensor: Mapping[str, Any], extra: Sequence[str]) -> None:
        self._check_properties(kind, tensor, extra)
        name, dims = tensor["name"], list(tensor["dims"])
        entries: list[dict[str, Any]] = self._config.setdefault(kind, [])
        for entry in entries:
            if entry["name"] == name:
                self._check_agreement(kind, entry, tensor["data_type"], dims)
                entry.update(tensor, dims=dims)
                return
        entries.append({**tensor, "dims": dims})

    def _check_properties(self, kind: str, tensor: Mapping[str, Any], extra: Sequence[str]) -> None:
        where = f"in auto-complete-config function for model '{self._name}'"
        if "name" not in tensor:
            raise ValueError(f"{kind} {where} is missing 'name' property.")
        allowed = [*_TENSOR_PROPERTIES, *extra]
        if set(tensor) - set(allowed):
            listed = ", ".join(f"'{item}'" for item in allowed[:-1])
            raise ValueError(
                f"{kind} '{tensor['name']}' {where} contains property other than {listed} and '{allowed[-1]}'."
            )
        for needed in _TENSOR_PROPERTIES:
            if needed not in tensor:
                raise ValueError(f"{kind} '{tensor['name']}' {where} is missing '{needed}' property.")

    def _check_agreement(self, kind: str, entry: Mapping[str, Any], data_type: str, dims: list[int]) -> None:
        configured = entry.get("data_type", "TYPE_INVALID")
        if configured not in {"TYPE_INVALID", data_type}:
            raise ValueError(
                f"unable to load model '{self._name}', configuration expects datatype {configured} for {kind} "
                f"'{entry['name']}', model provides {data_type}"
            )
        configured_dims = [int(dim) for dim in entry.get("dims", ())]
        if configured_dims and configured_dims != dims:
            raise ValueError(
                f"model '{self._name}', tensor '{entry['name']}': the model expects dims {dims} but the model "
                f"configuration specifies dims {configured_dims}"
            )
