"""Models from the Hugging Face Hub, through ``huggingface_hub`` and its own cache (optional extra ``[hf]``)."""

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path
from threading import Thread
from types import ModuleType

from tribar.core.errors import BadModelFile, Forbidden, InvalidRequest, NotFound, TribarError, Unavailable, Unsupported
from tribar.runtime.formats import locate_model, open_weights
from tribar.runtime.formats.gguf import SHARD_NAME
from tribar.runtime.sources.disk import FULL_DISK
from tribar.runtime.sources.progress import POLL_INTERVAL_S, Progress

_NAME = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,95}"
_SPEC = re.compile(rf"(?P<repository>{_NAME}/{_NAME})(?:/(?P<file>[\w./ -]{{1,400}}\.gguf))?")
_SAFETENSORS_PATTERNS = ("*.safetensors", "*.json", "*.jinja", "*.txt", "tokenizer.model")
_IGNORED_PATTERNS = ("*/*", "consolidated*")
"""Exports to other runtimes live in subdirectories; ``consolidated`` repeats the weights in another layout."""


def fetch_from_hub(spec: str, progress: Progress) -> Path:
    """The model of ``owner/name``, or one GGUF file of a repository that has several: ``owner/name/FILE.gguf``.

    Errors: see ``fetch_model``.
    """
    match = _SPEC.fullmatch(spec)
    if match is None or ".." in spec:
        raise InvalidRequest(f"'hf:{spec}' is malformed: write hf:owner/name or hf:owner/name/FILE.gguf", param="model")
    try:
        hub = import_module("huggingface_hub")
    except ModuleNotFoundError as error:
        raise Unsupported("hf: models need huggingface_hub: pip install 'tribar[hf]'") from error
    repository, file = match["repository"], match["file"]
    try:
        return _cached(hub, repository, file) or _fetch(hub, repository, file, progress)
    except TribarError:
        raise
    except Exception as error:
        # The library raises errors of its HTTP client, which changed twice, as well as its own.
        raise _failure(repository, error) from error


def _cached(hub: ModuleType, repository: str, file: str | None) -> Path | None:
    """The model in the library's cache, if all its weights are there."""
    choices = [(_shards_pattern(file),)] if file else [_SAFETENSORS_PATTERNS, ("*.gguf",)]
    for patterns in choices:
        try:
            snapshot = _snapshot(hub, repository, patterns, file, local_files_only=True)
            open_weights(snapshot).close()
        except (import_module("huggingface_hub.errors").LocalEntryNotFoundError, BadModelFile):
            continue
        return snapshot
    return None


def _fetch(hub: ModuleType, repository: str, file: str | None, progress: Progress) -> Path:
    sizes = {
        sibling.rfilename: sibling.size or 0
        for sibling in hub.HfApi().model_info(repository, files_metadata=True).siblings
    }
    patterns = _patterns(repository, file, list(sizes))
    total_bytes = sum(size for name, size in sizes.items() if _is_wanted(name, patterns, file))
    blobs = _blobs(hub, repository)
    before_bytes = _size(blobs)
    result: Future[Path] = Future()

    def run() -> None:
        try:
            result.set_result(_snapshot(hub, repository, patterns, file))
        except BaseException as error:
            result.set_exception(error)

    # A daemon, so that Ctrl-C ends the process; the library resumes what is left over.
    with _quiet(hub):
        Thread(target=run, name="tribar-hub", daemon=True).start()
        while not wait([result], POLL_INTERVAL_S).done:
            progress(min(_size(blobs) - before_bytes, total_bytes), total_bytes)
    path = result.result()
    progress(total_bytes, total_bytes)
    return path


@contextmanager
def _quiet(hub: ModuleType) -> Iterator[None]:
    """Without the library's own progress bars, which would write over the caller's."""
    if hub.utils.are_progress_bars_disabled():
        yield
        return
    hub.utils.disable_progress_bars()
    try:
        yield
    finally:
        hub.utils.enable_progress_bars()


def _snapshot(
    hub: ModuleType, repository: str, patterns: Sequence[str], file: str | None, *, local_files_only: bool = False
) -> Path:
    directory = Path(
        hub.snapshot_download(
            repository,
            allow_patterns=list(patterns),
            ignore_patterns=None if file else list(_IGNORED_PATTERNS),
            local_files_only=local_files_only,
        )
    )
    return locate_model(directory / file if file else directory)


def _patterns(repository: str, file: str | None, names: Sequence[str]) -> tuple[str, ...]:
    """What to download: the safetensors model with all that belongs to it, or one GGUF model."""
    top = [name for name in names if "/" not in name]
    if file is not None:
        if file not in names:
            raise NotFound(f"hf:{repository} has no file {file}: {_offer(repository, names)}", param="model")
        return (_shards_pattern(file),)
    if any(name.endswith(".safetensors") for name in top):
        return _SAFETENSORS_PATTERNS
    models = sorted({_shards_pattern(name) for name in top if name.endswith(".gguf")})
    if len(models) == 1:
        return (models[0],)
    trouble = "several GGUF models" if models else "no safetensors or GGUF model at its top"
    raise InvalidRequest(f"hf:{repository} has {trouble}: {_offer(repository, names)}", param="model")


def _offer(repository: str, names: Sequence[str]) -> str:
    ggufs = sorted(name for name in names if name.endswith(".gguf"))
    if not ggufs:
        return "choose another repository, or convert it to one of these formats"
    return f"write hf:{repository}/FILE with FILE one of {', '.join(ggufs[:8])}"


def _shards_pattern(file: str) -> str:
    return SHARD_NAME.sub(r"\g<stem>-*-of-\g<count>.gguf", file)


def _is_wanted(name: str, patterns: Sequence[str], file: str | None) -> bool:
    ignored = () if file else _IGNORED_PATTERNS
    return any(fnmatch(name, one) for one in patterns) and not any(fnmatch(name, one) for one in ignored)


def _blobs(hub: ModuleType, repository: str) -> Path:
    """Where the library puts the bytes that arrive."""
    return Path(hub.constants.HF_HUB_CACHE) / f"models--{repository.replace('/', '--')}" / "blobs"


def _size(directory: Path) -> int:
    n_bytes = 0
    for path in directory.glob("*"):
        try:
            n_bytes += path.stat().st_size
        except FileNotFoundError:
            # Complete files are renamed between listing and looking.
            continue
    return n_bytes


def _failure(repository: str, error: Exception) -> TribarError:
    errors = import_module("huggingface_hub.errors")
    if isinstance(error, errors.GatedRepoError):
        return Forbidden(f"hf:{repository} is gated: accept its terms on huggingface.co/{repository} and set HF_TOKEN")
    if isinstance(error, errors.RepositoryNotFoundError):
        return NotFound(
            f"there is no hf:{repository}, or it is private: check the name, or set HF_TOKEN", param="model"
        )
    if isinstance(error, OSError) and error.errno in FULL_DISK:
        return Unavailable("the disk of the Hugging Face cache is full: free some space, or set HF_HOME to another one")
    reason = (str(error).strip().splitlines() or [""])[0][:200]
    return Unavailable(
        f"hf:{repository} could not be fetched ({type(error).__name__}: {reason}): "
        "check the network and HF_ENDPOINT, or give a local path"
    )
