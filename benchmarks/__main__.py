"""All benchmarks: ``python -m benchmarks [NAME ...] [-- OPTIONS]``; without names, every one with its defaults."""

import sys
from importlib import import_module

NAMES = ("step_frame", "scheduler_step", "prefix_cache", "kv_memory", "batching", "http_latency")


def main() -> None:
    """Run the named benchmarks one after the other, each in its own words."""
    names = sys.argv[1:] or list(NAMES)
    for name in names:
        if name not in NAMES:
            raise SystemExit(f"error: no benchmark {name!r}; there are: {', '.join(NAMES)}")
    for name in names:
        print(f"\n## {name}", flush=True)
        import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main()
