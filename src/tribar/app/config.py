"""The settings of a server: one frozen dataclass per room, composed into ``ServeConfig``.

Every field is declared once, with its help, its kind and its default; the flags, the environment variables, the file
and ``tribar.LLM``'s keyword arguments are read from these declarations (``app/settings.py``). None as a default means
"decided from the machine and the model" (``app/resolve.py``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tribar.app.option import option
from tribar.app.option_kinds import Choice, Integer, Number, Origin, Size, Switch, Text, Texts
from tribar.app.pool_tables import PoolTables
from tribar.runtime.sources import DEFAULT_MODEL


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """What is served."""

    model: str | None = option(
        None,
        Text("MODEL"),
        "A directory, a .gguf file, hf:owner/name or wheel:package; by default "
        f"{DEFAULT_MODEL}, or none beside a --model-repository.",
    )
    served_model_name: str | None = option(
        None, Text("NAME"), "The name that requests use; by default the last part of MODEL."
    )
    max_model_len: int | None = option(
        None, Integer(2, 1 << 24), "Longest prompt plus answer in tokens; by default what the model and memory allow."
    )
    tool_call_parser: str = option(
        "auto",
        Choice(("auto", "none", "hermes", "llama3")),
        "How the model writes calls of tools; auto: as its chat template says.",
    )
    reasoning_parser: str = option(
        "auto", Choice(("auto", "none", "think")), "How it marks its thinking; auto: as its chat template says."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """How it is run."""

    runner: str = option("auto", Choice(("auto", "native", "torch", "fake")), "What computes the model.")
    device: str = option("cpu", Text("DEVICE"), "Where: cpu, cuda or cuda:N.")
    weights: str = option("auto", Choice(("auto", "int4", "int8", "bf16", "f32")), "Type of the weights in memory.")
    kv_cache_dtype: str = option("auto", Choice(("auto", "bf16", "f32", "int8")), "Type of the KV cache in memory.")
    kv_cache_memory_bytes: int | None = option(
        None,
        Size(),
        "Memory of the KV cache, e.g. 2GiB; by default from the memory that is free.",
        key="kv_cache_memory",
    )
    threads: int | None = option(None, Integer(1, 1024), "Kernel threads; by default every core this process may use.")
    max_num_seqs: int | None = option(None, Integer(1, 4096), "Most sequences that run at the same time.")
    max_num_batched_tokens: int | None = option(
        None, Integer(1, 1 << 20), "Most tokens of one step, prefill chunks and decodes together."
    )
    max_waiting: int = option(4096, Integer(1, 1 << 20), "Most requests in the queue; more are refused with 503.")
    max_waiting_tokens: int | None = option(
        None,
        Integer(1, 1 << 34),
        "Most prompt tokens in the queue; more are refused with 503. By default twice what can run, at least 1048576.",
    )
    max_ttft_s: float = option(
        30.0,
        Number(0, 86400),
        "Requests whose first token is expected later than so many seconds are refused with 503; 0 is no limit.",
        key="max_ttft",
    )
    tpot_target_ms: float = option(
        50.0, Number(0, 60000), "Milliseconds of a step beside running streams; prefill is cut to it. 0 is no target."
    )
    batching: str = option("continuous", Choice(("continuous", "dynamic", "static")), "When sequences join a batch.")
    allocator: str = option("paged", Choice(("paged", "contiguous")), "How KV memory is given to sequences.")
    enable_prefix_caching: bool = option(True, Switch(), "Reuse the KV of equal prefixes.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelServerConfig:
    """What the model server serves, under Triton's names where it has them."""

    model_repository: tuple[str, ...] = option(
        (), Texts("DIRS"), "Directories of models in Triton's layout, separated by commas."
    )
    model_control_mode: str = option(
        "none",
        Choice(("none", "explicit", "poll")),
        "none: every model, at start; explicit: what --load-model names and clients ask for; poll: as files change.",
    )
    load_model: tuple[str, ...] = option(
        (), Texts("NAMES"), "Models to load at start in explicit mode, separated by commas; * is all of them."
    )
    repository_poll_s: float = option(
        15.0, Number(0.1, 86400), "Seconds between two looks at the repository.", key="repository_poll_secs"
    )
    strict_readiness: bool = option(True, Switch(), "Not ready while a model that was asked for is not.")
    grpc_port: int = option(8001, Integer(0, 65535), "Port of gRPC; 0 picks a free one and prints it.")
    max_tensor_bytes: int = option(
        64 << 20,
        Size(1 << 10, 1 << 31),
        "Largest inference request over HTTP, e.g. 128MiB.",
        key="http_max_input_size",
    )
    response_cache_bytes: int = option(
        64 << 20, Size(0), "Memory for answers of models that ask for a response cache.", key="response_cache_size"
    )
    trace_file: str | None = option(
        None, Text("FILE"), "File for traces of requests, which /v2/trace/setting turns on; without it there are none."
    )
    allow_shared_memory: bool = option(False, Switch(), "Let clients on this machine pass tensors in shared memory.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolConfig:
    """How work is spread over several engines. The engines themselves are tables of the file."""

    routing: str = option(
        "prefix",
        Choice(("prefix", "least_tokens")),
        "prefix: prompts that begin alike meet at the same upstream; least_tokens: where the least work is.",
    )
    load_bound: float = option(
        1.25, Number(1, 100), "How far above its share of the work an upstream may be for the sake of its prefixes."
    )
    retry_percent: float = option(
        20.0, Number(0, 100), "Percent of the requests that may be tried again.", key="retry_budget"
    )
    max_attempts: int = option(3, Integer(1, 16), "Most attempts for one request.")
    wait_timeout_s: float = option(
        5.0, Number(0, 3600), "Seconds for which a request waits where every upstream is full.", key="pool_timeout"
    )
    check_interval_s: float = option(
        5.0, Number(0.05, 3600), "Seconds between two questions whether an upstream serves.", key="health_interval"
    )
    check_timeout_s: float = option(
        2.0, Number(0.01, 600), "Seconds for the answer to one of them.", key="health_timeout"
    )
    max_failures: int = option(
        5, Integer(1, 10000), "Failures in a row after which an upstream is left alone.", key="breaker_failures"
    )
    max_error_percent: float = option(
        50.0, Number(1, 100), "Percent of failures after which it is.", key="breaker_error_percent"
    )
    slow_ttft_s: float = option(
        30.0,
        Number(0, 86400),
        "Seconds after which a first token is late; mostly late ones count as failing. 0 is never.",
        key="breaker_slow_ttft",
    )
    first_pause_s: float = option(
        1.0, Number(0.01, 3600), "Seconds for which it is left alone at first, doubled each time.", key="breaker_pause"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """How it is reached."""

    host: str = option("127.0.0.1", Text("ADDRESS"), "Address to listen on; 0.0.0.0 is every network.")
    port: int = option(8000, Integer(0, 65535), "Port to listen on; 0 picks a free one and prints it.")
    api_keys_file: str | None = option(
        None, Text("FILE"), "TOML file with the hashes of the API keys; SIGHUP reads it again."
    )
    public_prefix: str | None = option(None, Text("FILE"), "Text file with a system prompt whose KV all tenants share.")
    cors_origins: tuple[str, ...] | None = option(
        None,
        Texts("ORIGINS", Origin()),
        "Web pages that may call the API, e.g. https://a.example,https://b.example; * is all.",
    )
    max_body_bytes: int = option(
        8 << 20, Size(1 << 10, 256 << 20), "Largest request body, e.g. 32MiB.", key="max_body_size"
    )
    ping_interval_s: float = option(
        15.0, Number(0.1, 3600), "Seconds of silence after which a stream sends a comment.", key="ping_interval"
    )
    stall_timeout_s: float = option(
        30.0, Number(0.1, 3600), "Seconds for which a reader may take nothing of its answer.", key="stall_timeout"
    )
    drain_delay_s: float = option(
        0.0, Number(0, 3600), "Seconds between turning unready on SIGTERM and draining.", key="drain_delay"
    )
    drain_timeout_s: float = option(
        30.0, Number(0, 86400), "Seconds that open answers get once draining.", key="drain_timeout"
    )
    log_format: str = option("human", Choice(("human", "json")), "Form of the log lines on stderr.")
    log_level: str = option("info", Choice(("debug", "info", "warning", "error")), "Least serious line to log.")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoresConfig:
    """The servers that several front ends share, and the files that take their place."""

    redis_url: str | None = option(
        None,
        Text("URL"),
        "Redis or Valkey for limits and engines of several servers: redis://HOST:PORT/0, rediss://... or unix:///PATH.",
    )
    redis_max_connections: int = option(64, Integer(1, 4096), "Most connections to Redis.")
    usage_database: str | None = option(
        None,
        Text("URL"),
        "Where each tenant's use is written down: a file (SQLite), or postgresql://USER:PASSWORD@HOST/NAME.",
    )
    sql_max_connections: int = option(20, Integer(1, 1000), "Most connections to the SQL database.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """How gateways and engines on several hosts find each other."""

    cluster: str = option("default", Text("NAME"), "Name of the cluster: engines and gateways meet under it on Redis.")
    role: str = option(
        "all",
        Choice(("all", "gateway")),
        "all: answer with an engine of this server; gateway: with those that joined the cluster on --redis-url.",
    )
    liveness_s: float = option(
        5.0,
        Number(1, 300),
        "Seconds without a sign of life after which an engine or a gateway counts as dead.",
        key="cluster_liveness",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitingConfig:
    """How the limits of ``[[limits]]`` and of the keys are applied."""

    estimated_output_tokens: int | None = option(
        None,
        Integer(1, 1 << 24),
        "Tokens to reserve for an answer without max_tokens; by default all that the context has room for.",
    )
    limits_fail_open: bool = option(
        False, Switch(), "Let requests pass without limits while Redis is away, instead of refusing them with 503."
    )
    quota_utc_offset_h: float = option(
        0.0, Number(-12, 14), "Hours by which the day of daily quotas begins before UTC's.", key="quota_utc_offset"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheConfig:
    """What is answered without generating it again."""

    semantic_cache: str = option(
        "off",
        Choice(("off", "exact", "on")),
        "Answer again what was answered before: to the same words (exact), or also in other words (on).",
    )
    cache_max_error_rate: float = option(
        0.01, Number(0.0001, 0.5), "Share of wrong answers that the cache may come to give to questions in other words."
    )
    cache_shadow_checks: bool = option(
        True, Switch(), "Compare a share of the answers to other words with fresh ones, and learn from them."
    )
    cache_cross_language: bool = option(False, Switch(), "Let Chinese and English questions share answers.")
    cache_ttl_s: float = option(86400.0, Number(1, 31_536_000), "Seconds for which an answer is kept.", key="cache_ttl")
    cache_size_bytes: int = option(
        256 << 20, Size(1 << 20), "Memory of the answers that are kept here, e.g. 1GiB.", key="cache_size"
    )
    cache_max_entries: int = option(100_000, Integer(1, 10_000_000), "Most questions that are kept.")
    cache_max_temperature: float = option(
        0.3, Number(0, 2), "Answers that are drawn at a higher temperature are not kept."
    )
    cache_unseeded: bool = option(False, Switch(), "Also keep answers that are drawn without a seed.")
    cache_store: str = option(
        "memory", Choice(("memory", "redis")), "Where answers are kept; redis is for several servers, by --redis-url."
    )
    embedder: str | None = option(
        None,
        Text("MODEL"),
        "Embedding model: use (extra [cache]), a folder with an ONNX model, or URL#MODEL; where needed, use.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeConfig:
    """Everything ``tribar serve`` can be told. The names of the fields are the tables of the file.

    ``lists`` holds the file's arrays of tables (``[[limits]]``) as they are: whoever uses one reads and checks it.
    ``pool_tables`` are those of the pool.
    """

    model: ModelConfig = field(default_factory=ModelConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    modelserver: ModelServerConfig = field(default_factory=ModelServerConfig)
    pool: PoolConfig = field(default_factory=PoolConfig)
    server: ServerConfig = field(default_factory=ServerConfig)
    stores: StoresConfig = field(default_factory=StoresConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    limiting: LimitingConfig = field(default_factory=LimitingConfig)
    cache: CacheConfig = field(default_factory=CacheConfig)
    lists: Mapping[str, Sequence[Mapping[str, object]]] = field(default_factory=dict)
    pool_tables: PoolTables = field(default_factory=PoolTables)
