"""An engine that says the time: at a fixed pace every open request gets one token that tells when it was sent.

It speaks the wire's protocol and computes nothing, so that what a benchmark sees is the front end and nothing else.
One token is ``TOKEN_CHARACTERS`` digits: the monotonic clock in units of ``UNIT_S``, modulo ``N_TICKS`` of them.

    python -m benchmarks.clock_engine --socket PATH [--tokens-per-s 20] [--core 1]
"""

import argparse
import os
import time
from pathlib import Path

from tribar.core.ids import Uid
from tribar.core.requests import FinishReason, ModelCard, Timing
from tribar.engine.model_text import ModelText
from tribar.runtime.fake.text import ByteTemplate, ByteText, ByteTokenizer
from tribar.wire.messages import Abort, Aborted, Finished, Hello, Output, Ready, StepOutput, Submit, ToEngine
from tribar.wire.unix_socket import UnixSocketEndpoint

UNIT_S = 50e-6
TOKEN_CHARACTERS = 6
N_TICKS = 500_000
"""25 s of them: no frame that this should measure is under way for longer."""

CARD = ModelCard(
    name="clock",
    architecture="clock",
    max_model_len=1 << 20,
    vocab_size=N_TICKS,
    max_num_seqs=1 << 16,
    has_chat_template=True,
)


def clock_text() -> ModelText:
    """Ids below 256 are their bytes for prompts only: answers use the digits of the same ids."""
    table = [b"%06d" % i for i in range(N_TICKS)]
    return ByteText(ByteTokenizer(table, frozenset()), ByteTemplate(), frozenset())


def ages_s(text: str, now_s: float) -> list[float]:
    """How old each token of a piece of an answer was when it arrived at ``now_s``."""
    now = now_s / UNIT_S
    ticks = [int(text[i : i + TOKEN_CHARACTERS]) for i in range(0, len(text), TOKEN_CHARACTERS)]
    return [(now - tick) % N_TICKS * UNIT_S for tick in ticks]


class ClockEngine:
    """Serves one front end on a unix socket until it is killed."""

    def __init__(self, path: Path, tokens_per_s: float) -> None:
        self._endpoint = UnixSocketEndpoint(path)
        self._period_s = 1 / tokens_per_s if tokens_per_s else None
        self._open: dict[Uid, list[int]] = {}
        self._key = 0

    def run(self) -> None:
        """One turn per message or tick."""
        next_s = time.monotonic()
        while True:
            timeout_s = None if self._period_s is None or not self._open else max(0.0, next_s - time.monotonic())
            for key, message in self._endpoint.poll(timeout_s):
                self._handle(key, message)
            now_s = time.monotonic()
            if self._period_s is not None and now_s >= next_s:
                next_s = max(next_s + self._period_s, now_s)
                self._tick()

    def _handle(self, key: int, message: ToEngine | None) -> None:
        match message:
            case Hello():
                self._key = key
                self._endpoint.send(key, Ready(CARD))
            case Submit():
                self._open[message.uid] = [len(message.ids) // 4, 0, message.max_tokens]
            case Abort():
                if self._open.pop(message.uid, None) is not None:
                    ended = Output(message.uid, [], terminal=Aborted(message.reason))
                    self._endpoint.send(self._key, StepOutput([ended]))
            case None:
                self._open.clear()

    def _tick(self) -> None:
        token = int(time.monotonic() / UNIT_S) % N_TICKS
        outputs = []
        for uid, counts in list(self._open.items()):
            counts[1] += 1
            output = Output(uid, [token])
            if counts[1] >= counts[2]:
                output.terminal = Finished(FinishReason.LENGTH, counts[0], counts[1], 0, Timing())
                del self._open[uid]
            outputs.append(output)
        if outputs:
            self._endpoint.send(self._key, StepOutput(outputs))


def main() -> None:
    """Serve."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--tokens-per-s", type=float, default=20.0, help="0: say nothing; inf: answer at once")
    parser.add_argument("--core", type=int)
    options = parser.parse_args()
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})
    ClockEngine(options.socket, options.tokens_per_s).run()


if __name__ == "__main__":
    main()
