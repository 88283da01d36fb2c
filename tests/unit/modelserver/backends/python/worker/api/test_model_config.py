import json
from collections.abc import Callable

import pytest

from tribar.modelserver.backends.python.worker.api.model_config import ModelConfig

BASE = {
    "name": "m",
    "max_batch_size": 4,
    "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [2]}, {"name": "Z", "data_type": "TYPE_INVALID"}],
    "output": [],
}
NEW = {"name": "Y", "data_type": "TYPE_FP32", "dims": [1]}


def changed(change: Callable[[ModelConfig], object], **more: object) -> dict[str, object]:
    config = ModelConfig(json.dumps({**BASE, **more}))
    change(config)
    return config.as_dict()


def test_what_is_missing_is_added() -> None:
    config = changed(
        lambda c: c.add_output(NEW).set_max_batch_size(8).add_input({**NEW, "name": "Z", "optional": True})
    )
    assert config["output"] == [NEW]
    assert config["max_batch_size"] == 8
    assert config["input"] == [BASE["input"][0], {**NEW, "name": "Z", "optional": True}]  # type: ignore[index]


def test_what_agrees_stays() -> None:
    config = changed(
        lambda c: c.add_input(BASE["input"][0]).set_dynamic_batching(),  # type: ignore[index]
        dynamic_batching={"preferred_batch_size": [4]},
    )
    assert config == {**BASE, "dynamic_batching": {"preferred_batch_size": [4]}}


CONTRADICTIONS: dict[str, Callable[[ModelConfig], object]] = {
    "configuration specified max_batch_size 4, .* specified max_batch_size 2": lambda c: c.set_max_batch_size(2),
    "configuration expects datatype TYPE_FP32 for input 'X', model provides TYPE_INT8":
    lambda c: c.add_input({"name": "X", "data_type": "TYPE_INT8", "dims": [2]}),
    r"tensor 'X': the model expects dims \[3\] but the model configuration specifies dims \[2\]":
    lambda c: c.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [3]}),
    "input in auto-complete-config function for model 'm' is missing 'name' property": lambda c: c.add_input({}),
    "output 'Y' .* is missing 'data_type' property": lambda c: c.add_output({"name": "Y"}),
    "output 'Y' .* is missing 'dims' property": lambda c: c.add_output({"name": "Y", "data_type": "TYPE_FP32"}),
    "output 'Y' .* contains property other than 'name', 'data_type' and 'dims'":
    lambda c: c.add_output({**NEW, "optional": True}),
    "input 'Y' .* contains property other than 'name', 'data_type', 'dims' and 'optional'":
    lambda c: c.add_input({**NEW, "reshape": {}}),
    "contains property other than 'decoupled'": lambda c: c.set_model_transaction_policy({"x": 1}),
}  # fmt: skip


@pytest.mark.parametrize("text", CONTRADICTIONS)
def test_contradictions_are_named(text: str) -> None:
    with pytest.raises(ValueError, match=text):
        changed(CONTRADICTIONS[text])


def test_decoupled_is_not_changed_and_a_scheduler_not_replaced() -> None:
    with pytest.raises(ValueError, match="already set to 'False'"):
        changed(
            lambda c: c.set_model_transaction_policy({"decoupled": True}), model_transaction_policy={"decoupled": False}
        )
    with pytest.raises(ValueError, match="scheduling_choice as 'sequence_batching'"):
        changed(lambda c: c.set_dynamic_batching(), sequence_batching={})
