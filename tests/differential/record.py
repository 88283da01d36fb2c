"""Records a real Triton's answers: ``python -m tests.differential.record --start start.sh [SUBJECT...]``.

``--start`` names a script that starts a tritonserver on the addresses, given the repository and flags; without it, one
must be running there with the flags that ``flags()`` gives.
"""

import argparse
import http.client
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.differential import batching_script, fixtures
from tests.differential.cases import CASES_BY_SUBJECT
from tests.differential.play import Addresses, play
from tests.differential.repository_facts import REPOSITORY, working_models

START_TIMEOUT_S = 240.0


def flags() -> list[str]:
    """How the server must be started for the suite."""
    loads = [f"--load-model={name}" for name in working_models()]
    return ["--model-control-mode=explicit", "--cache-config=local,size=1048576", *loads]


@contextmanager
def started(script: Path, address: str) -> Iterator[Path]:
    """A server on a copy of the repository, ready; ended with all its processes."""
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory) / "repository"
        shutil.copytree(REPOSITORY, copy)
        with (Path(directory) / "log").open("w") as log:
            server = subprocess.Popen(
                [str(script), str(copy), *flags()], stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
            try:
                wait_until_ready(server, address)
                yield copy
            finally:
                os.killpg(server.pid, signal.SIGTERM)
                server.wait(60)


def wait_until_ready(server: subprocess.Popen[bytes], address: str) -> None:
    """Ask until it is ready; fails when it ends or takes too long."""
    end = time.monotonic() + START_TIMEOUT_S
    while not is_ready(address):
        assert server.poll() is None, "the server ended"
        assert time.monotonic() < end, "the server does not become ready"
        signal.sigtimedwait([], 0.5)


def is_ready(address: str) -> bool:
    """Whether it serves all that it was asked to load."""
    connection = http.client.HTTPConnection(address, timeout=5)
    try:
        connection.request("GET", "/v2/health/ready")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def record(addresses: Addresses, subjects: list[str]) -> None:
    """Play the cases and write the answers."""
    for subject in subjects:
        answers = {}
        for case in CASES_BY_SUBJECT[subject]:
            answers[case.name] = play(case, addresses)
        fixtures.write(subject, answers)
        sys.stderr.write(f"{subject}: {len(answers)} cases\n")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--http", default="127.0.0.1:18000")
    parser.add_argument("--grpc", default="127.0.0.1:18001")
    parser.add_argument("--start", type=Path)
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help=f"{', '.join(CASES_BY_SUBJECT)} or batching")
    options = parser.parse_args()
    addresses = Addresses(options.http, options.grpc)
    if options.start is None:
        run(addresses, options.subjects)
    else:
        with started(options.start, options.http):
            run(addresses, options.subjects)


def run(addresses: Addresses, subjects: list[str]) -> None:
    """Record these subjects, or all."""
    asked = subjects or [*CASES_BY_SUBJECT, "batching"]
    record(addresses, [subject for subject in asked if subject != "batching"])
    if "batching" in asked:
        fixtures.write("batching", batching_script.play_all(addresses))


if __name__ == "__main__":
    main()
