"""What a configuration leaves open, filled in by Triton's rules."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelInstanceGroup

from tribar.modelserver.model_config.paths import check_inside
from tribar.modelserver.model_config.platforms import SERVED, backend_of, check_backend, instance_count
from tribar.modelserver.model_config.versions import version_directories

DEFAULT_MAX_BATCH_SIZE: Final = 4
"""For a model that can batch, but whose configuration tells neither batch size nor tensors (as Triton)."""

SERVED_BACKENDS: Final = frozenset(SERVED)


def complete(
    config: ModelConfig,
    *,
    name: str,
    directory: Path,
    gpus: Sequence[int] | None = (),
    backends: Collection[str] = SERVED_BACKENDS,
) -> ModelConfig:
    """A copy with everything filled in that needs no look into the model's own files.

    That is: name; backend, platform and file name (from each other, or from the names of the files in the version
    directories of ``directory``); version policy (latest 1); preferred batch size of a ``dynamic_batching`` that names
    none (the largest); pinned memory; instance groups with name, kind, count and GPUs. ``gpus`` are the ids of the
    GPUs that the backend can use, None where that is not known: then KIND_AUTO stays.

    Inputs, outputs, ``max_batch_size`` and whether ``dynamic_batching`` is turned on are the backend's part
    (``Backend.complete``, with ``complete_batching``). So this is called before it, to learn which backend that is, and
    again after it, for what has become known; it is idempotent. Never turns ``dynamic_batching`` on by itself: a
    configuration that names its tensors and no batcher stays without.

    Raises ``Unsupported`` naming the substitute, or ``InvalidRequest``, where no backend of ``backends`` is meant, and
    ``InvalidRequest`` for a file outside of ``directory``.
    """
    completed = ModelConfig()
    completed.CopyFrom(config)
    completed.name = config.name or name
    _complete_backend(completed, directory)
    check_backend(completed, name=name, backends=backends)
    # before anybody opens it: backends read, and even run, the file to complete the rest
    check_inside(name, "default_model_filename", completed.default_model_filename)
    if not completed.HasField("version_policy"):
        completed.version_policy.latest.num_versions = 1
    if completed.HasField("dynamic_batching") and completed.max_batch_size > 0:
        batching = completed.dynamic_batching
        if not batching.preferred_batch_size:
            batching.preferred_batch_size.append(completed.max_batch_size)
    _complete_pinned_memory(completed)
    _complete_instances(completed, gpus)
    return completed


def complete_batching(
    config: ModelConfig, *, can_batch: bool, default_max_batch_size: int = DEFAULT_MAX_BATCH_SIZE
) -> None:
    """Batch size and batcher of a model whose tensors are read from its file, in place; for backends.

    Where every input and output has a free first dimension (``can_batch``): an unset ``max_batch_size`` becomes
    ``default_max_batch_size``, and with more than 1 a model without scheduler gets ``dynamic_batching {}``. Triton does
    so only for models whose configuration leaves inputs or outputs out; do not call it for others.
    """
    if not can_batch:
        return
    if config.max_batch_size == 0:
        config.max_batch_size = max(0, default_max_batch_size)
    if config.max_batch_size > 1 and config.WhichOneof("scheduling_choice") is None:
        config.dynamic_batching.SetInParent()


def _complete_backend(config: ModelConfig, directory: Path) -> None:
    files = [
        entry.name
        for version in reversed(version_directories(directory))
        for entry in sorted((directory / str(version)).iterdir())
    ]
    config.backend = backend_of(config, files)
    known = SERVED.get(config.backend)
    if known is None:
        return
    if not config.platform and known.platforms:
        config.platform = known.platforms[0]
    if not config.default_model_filename:
        config.default_model_filename = next((file for file in known.files if file in files), known.files[0])


def _complete_pinned_memory(config: ModelConfig) -> None:
    for buffer in ("input_pinned_memory", "output_pinned_memory"):
        if not config.optimization.HasField(buffer):
            getattr(config.optimization, buffer).enable = True


def _complete_instances(config: ModelConfig, gpus: Sequence[int] | None) -> None:
    if not config.instance_group:
        config.instance_group.add(name=config.name)
    for index, group in enumerate(config.instance_group):
        group.name = group.name or f"{config.name}_{index}"
        if group.kind == ModelInstanceGroup.KIND_AUTO and gpus is not None:
            is_on_gpu = bool(gpus) and all(gpu in gpus for gpu in group.gpus)
            group.kind = ModelInstanceGroup.KIND_GPU if is_on_gpu else ModelInstanceGroup.KIND_CPU
        group.count = instance_count(group, config.backend)
        if group.kind == ModelInstanceGroup.KIND_GPU and not group.gpus:
            group.gpus.extend(gpus or ())
