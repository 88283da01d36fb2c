"""The engine as a process: ``python -m tribar.engine.process --spec FILE --socket PATH``.

It binds the socket, loads the model, and serves until SIGTERM or SIGINT, which drain it (a second one aborts at once).
Clients may connect while it loads; their Hello is answered afterwards. It dies with its parent.

Exit codes: 0 drained; 78 (EX_CONFIG of sysexits.h) the model or the spec cannot be used, one line on stderr, a restart
would not help; 70 (EX_SOFTWARE) anything else, a restart may help.
"""

import argparse
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from tribar.core.errors import Conflict, Internal, InvalidRequest, TribarError
from tribar.core.parent import die_with_parent
from tribar.core.requests import ModelCard
from tribar.engine.grammar.compiler import GrammarCompiler
from tribar.engine.loop import EngineLoop
from tribar.engine.scheduler import Scheduler
from tribar.engine.spec import EngineSpec
from tribar.runtime.runners import create_runner
from tribar.wire.channel import EngineEndpoint
from tribar.wire.unix_socket import UnixSocketEndpoint

EX_SOFTWARE = 70
EX_CONFIG = 78

_log = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the engine process; returns its exit code."""
    options = _parse(arguments)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    if not die_with_parent(options.parent_pid):
        return _give_up("the parent process is gone", EX_SOFTWARE)
    try:
        endpoint = UnixSocketEndpoint(options.socket)
    except Conflict as error:  # an engine that is about to end may still hold it
        return _give_up(error.message, EX_SOFTWARE)
    except TribarError as error:
        return _give_up(error.message, EX_CONFIG)
    endpoint.wake_on_signals()
    return serve(endpoint, lambda: read_spec(options.spec))


def serve(
    endpoint: EngineEndpoint,
    read: Callable[[], EngineSpec],
    *,
    on_ready: Callable[[ModelCard], None] = lambda _card: None,
    on_stop: Callable[[], None] = lambda: None,
) -> int:
    """Load what ``read`` says and serve it on ``endpoint``, which this closes; the exit code.

    ``on_ready`` is told once the model is loaded, ``on_stop`` in the signal handler, before the drain.
    """
    try:
        spec = read()
        grammars = GrammarCompiler(spec.vocabulary, endpoint.wake)
        runner = create_runner(spec.runner, spec.runner_config)
        info = runner.load()
        scheduler = Scheduler(spec.scheduler, info)
    except TribarError as error:
        endpoint.close()
        return _give_up(error.message, EX_CONFIG)
    card = spec.card(info)
    loop = EngineLoop(endpoint, scheduler, runner, card, grammars, depth=info.depth)
    _stop_on_signals(loop, spec.grace_s, on_stop)
    on_ready(card)
    try:
        loop.run()
    except Internal:  # the loop has logged it
        return EX_SOFTWARE
    runner.close()
    return 0


def read_spec(path: Path) -> EngineSpec:
    """The spec in a file. Raises ``InvalidRequest`` naming the file."""
    try:
        document = path.read_bytes()
    except OSError as error:
        raise InvalidRequest(f"cannot read the engine spec {path}: {error.strerror}", param="spec") from error
    return EngineSpec.from_json(document)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tribar.engine.process", description="Run one tribar engine.")
    parser.add_argument("--spec", type=Path, required=True, help="JSON file written from an EngineSpec")
    parser.add_argument("--socket", type=Path, required=True, help="unix socket to serve on")
    parser.add_argument("--parent-pid", type=int, default=os.getppid(), help="exit at once unless this is the parent")
    return parser.parse_args(arguments)


def _stop_on_signals(loop: EngineLoop, grace_s: float, on_stop: Callable[[], None]) -> None:
    """SIGTERM and SIGINT: the first drains with the grace, the next one without."""
    graces_s = iter([grace_s])

    def stop(_signal: int, _frame: FrameType | None) -> None:
        on_stop()
        loop.stop(next(graces_s, 0.0))

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)


def _give_up(message: str, exit_code: int) -> int:
    sys.stderr.write(f"error: {message}\n")
    return exit_code


def _run() -> int:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until the loop runs there is nothing to drain
    try:
        return main()
    except Exception:
        _log.exception("the engine process failed")
        return EX_SOFTWARE


if __name__ == "__main__":
    sys.exit(_run())
