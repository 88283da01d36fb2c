"""What one step's message costs: a StepOutput of 64 outputs as a msgpack frame and as the standard library's JSON.

    python -m benchmarks step_frame

Prints bytes and microseconds (best of several rounds) per message.
"""

import argparse
import json
import timeit

import msgspec

from tribar.core.ids import Uid
from tribar.core.requests import FinishReason, Timing
from tribar.core.sampling.params import TokenLogprobs
from tribar.wire.codec import FrameEncoder, to_client_decoder
from tribar.wire.messages import Finished, Output, StepOutput

N_OUTPUTS = 64
N_ROUNDS, N_REPEATS = 7, 200


def step_output(n_logprobs: int | None) -> StepOutput:
    outputs = []
    for i in range(N_OUTPUTS):
        logprobs = None
        if n_logprobs is not None:
            top_ids = tuple(range(1000 + i, 1000 + i + n_logprobs))
            logprobs = [TokenLogprobs(1000 + i, -0.125, top_ids, (-0.125,) * n_logprobs)]
        terminal = Finished(FinishReason.LENGTH, 128, 128, 112, Timing(0.001, 0.02, 1.5)) if i == 0 else None
        outputs.append(Output(Uid(2**62 + 1, 10_000 + i), [1000 + i], logprobs, None, terminal))
    return StepOutput(outputs)


def as_json(message: StepOutput) -> bytes:
    return json.dumps(msgspec.to_builtins(message)).encode()


def best_us(run: object) -> float:
    assert callable(run)
    return min(timeit.repeat(run, number=N_REPEATS, repeat=N_ROUNDS)) / N_REPEATS * 1e6


def report(title: str, message: StepOutput) -> None:
    encoder, decoder = FrameEncoder(), to_client_decoder()
    frame, document = encoder.encode(message), as_json(message)
    plain = msgspec.to_builtins(message)
    rows = [
        (
            "msgpack frame",
            len(frame),
            best_us(lambda: encoder.encode(message)),
            best_us(lambda: list(decoder.feed(frame))),
        ),
        ("json", len(document), best_us(lambda: json.dumps(plain)), best_us(lambda: json.loads(document))),
    ]
    for name, n_bytes, encode_us, decode_us in rows:
        print(f"{title:22} {name:14} {n_bytes:7} bytes   encode {encode_us:7.1f} us   decode {decode_us:7.1f} us")


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    report("64 tokens", step_output(None))
    report("64 tokens, 5 logprobs", step_output(5))


if __name__ == "__main__":
    main()
