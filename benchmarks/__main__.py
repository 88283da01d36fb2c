"""All benchmarks: ``python -m benchmarks [NAME [OPTIONS]]``; without a name, every one with its defaults.

``python -m benchmarks NAME --help`` shows what a benchmark measures and its options.
"""

import runpy
import sys

NAMES = (
    "step_frame",
    "scheduler_step",
    "prefix_cache",
    "kv_memory",
    "batching",
    "fairness",
    "intruder",
    "http_latency",
    "serving",
    "pace",
    "grammar",
    "accuracy",
    "idle_streams",
    "active_streams",
    "far_reader",
    "gateway_overhead",
    "pool_overhead",
    "overload",
    "dynamic_batching",
    "identity",
    "onnx_backend",
    "redis_wire",
    "semantic_pairs",
    "semantic_bound",
    "semantic_cache",
    "sql_pool",
)


def main() -> None:
    """Run the named benchmark, or all one after the other, each in its own words."""
    names, options = sys.argv[1:2], sys.argv[2:]
    if names and names[0] not in NAMES:
        raise SystemExit(f"{__doc__}\nNAME is one of {', '.join(NAMES)}.")
    for name in names or NAMES:
        print(f"\n## {name}", flush=True)
        sys.argv[1:] = options
        runpy.run_module(f"benchmarks.{name}", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
