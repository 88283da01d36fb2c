"""Whether a completed configuration can be served; Triton's rules, each named by its field."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from tritonclient.grpc.model_config_pb2 import ModelConfig

from tribar.modelserver.model_config.batching_rules import check_batch_sizes, check_queues
from tribar.modelserver.model_config.completion import SERVED_BACKENDS
from tribar.modelserver.model_config.instance_rules import check_instance_groups
from tribar.modelserver.model_config.paths import check_inside, inside
from tribar.modelserver.model_config.platforms import check_backend
from tribar.modelserver.model_config.refusal import not_offered, refusal
from tribar.modelserver.model_config.tensor_rules import check_tensors
from tribar.modelserver.model_config.warmup_rules import check_warmup

_NOT_OFFERED: Final = {
    "sequence_batching": "sequences are not served yet; keep the state in the client, or in a python model",
    "ensemble_scheduling": "ensembles are not served yet; call the steps from a model of backend 'python'",
    "runtime": "backends are not loaded from libraries; leave it out, and write the backend as a model of "
    "backend 'python'",
    "batch_input": "no tensors are made from the batch; compute them in a model of backend 'python'",
    "batch_output": "outputs are not scattered; set dims, or do it in a model of backend 'python'",
    "model_operations.op_library_filename": "libraries of operators are not loaded; use standard operators",
    "model_repository_agents.agents": "there are no repository agents; check the files before they are put here",
    "model_metrics.metric_control": "the buckets of metrics are fixed; leave it out",
}
"""What a configuration may name, but tribar does not do, and what to do instead."""


def validate(
    config: ModelConfig,
    *,
    name: str,
    directory: Path,
    backends: Collection[str] = SERVED_BACKENDS,
    gpus: Sequence[int] | None = (),
) -> None:
    """Check a configuration that ``complete`` and the backend have completed. ``directory`` is the model's.

    Raises ``InvalidRequest``, or ``Unsupported`` for what Triton does and tribar does not; the message names model and
    field, and ``param`` is the field's path (``input[0].dims[1]``), from which ``positioned`` tells line and column.
    ``gpus`` are the ids of the GPUs that the backend can use; None leaves unchecked whether they are there.
    """
    _check_name(config, name)
    check_backend(config, name=name, backends=backends)
    check_offered(config, name=name)
    check_batch_sizes(config)
    check_tensors(config)
    check_queues(config)
    check_instance_groups(config, gpus)
    if config.response_cache.enable and config.model_transaction_policy.decoupled:
        raise refusal(
            name, "response_cache.enable", "answers of a decoupled model are not cached; remove one of the two"
        )
    _check_files(config, directory)
    check_warmup(config, directory)


def check_offered(config: ModelConfig, *, name: str) -> None:
    """Raises ``Unsupported`` for what tribar does not do, before anything is completed as if it did."""
    for field, substitute in _NOT_OFFERED.items():
        if _is_set(config, field):
            raise not_offered(name, field, substitute)


def validate_written(config: ModelConfig, *, name: str) -> None:
    """Check what nothing that completes the configuration can put right. Raises as ``validate``.

    ``config`` is as it was written, but has a name.
    """
    _check_name(config, name)
    if config.max_batch_size != 0:  # which a backend might fill in
        check_batch_sizes(config)
    check_queues(config)


def _check_name(config: ModelConfig, name: str) -> None:
    if config.name != name:
        raise refusal(
            name, "name", f"'{config.name}' is not the directory's name; set name: \"{name}\" or leave it out"
        )


def _is_set(config: ModelConfig, field: str) -> bool:
    message, _, last = field.rpartition(".")
    holder = getattr(config, message) if message else config
    return last in {each.name for each, _ in holder.ListFields()}


def _check_files(config: ModelConfig, directory: Path) -> None:
    names = {"default_model_filename": config.default_model_filename}
    names |= {f"output[{index}].label_filename": output.label_filename for index, output in enumerate(config.output)}
    names |= {f"cc_model_filenames[{index}]": file for index, file in enumerate(config.cc_model_filenames.values())}
    for field, filename in names.items():
        check_inside(config.name, field, filename)
    for field, filename in names.items():
        if field.endswith("label_filename") and filename and not _is_file(directory, filename):
            raise refusal(config.name, field, f"no file '{filename}' beside config.pbtxt; it has one label a line")


def _is_file(directory: Path, filename: str) -> bool:
    path = inside(directory, filename)
    return path is not None and path.is_file()
