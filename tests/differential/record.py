"""Records a real Triton's answers: ``python -m tests.differential.record --start start.sh [SUBJECT...]``.

``--start`` names a script that starts a tritonserver on the addresses, given the repository and flags; without it, one
must be running there with the flags that ``flags()`` gives. ``--cache-directory`` holds the server's cache libraries,
for the case of the response cache. With ``--check`` nothing is written, but told what is answered otherwise.
"""

import argparse
import contextlib
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
from tests.differential.compare import difference_lines
from tests.differential.observe import Answer
from tests.differential.play import Addresses, play
from tests.differential.repository_facts import REPOSITORY, working_models

START_TIMEOUT_S = 240.0


def flags(cache_directory: Path | None) -> list[str]:
    """How the server must be started for the suite. The response cache is a library, in a directory of its own."""
    loads = [f"--load-model={name}" for name in working_models()]
    caches = [f"--cache-directory={cache_directory}", "--cache-config=local,size=1048576"] if cache_directory else []
    return ["--model-control-mode=explicit", *caches, *loads]


@contextmanager
def started(script: Path, address: str, cache_directory: Path | None) -> Iterator[Path]:
    """A server on a copy of the repository, ready; ended with all its processes."""
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory) / "repository"
        shutil.copytree(REPOSITORY, copy)
        with (Path(directory) / "log").open("w+") as log:
            server = subprocess.Popen(
                [str(script), str(copy), *flags(cache_directory)],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                wait_until_ready(server, address)
                yield copy
            except BaseException:
                log.seek(0)
                sys.stderr.writelines(log.readlines()[-20:])
                raise
            finally:
                if server.poll() is None:
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


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--http", default="127.0.0.1:18000")
    parser.add_argument("--grpc", default="127.0.0.1:18001")
    parser.add_argument("--start", type=Path)
    parser.add_argument("--cache-directory", type=Path)
    parser.add_argument("--check", action="store_true", help="compare with what is recorded instead of recording")
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help=f"{', '.join(CASES_BY_SUBJECT)} or batching")
    options = parser.parse_args()
    addresses = Addresses(options.http, options.grpc)
    subjects = options.subjects or [*CASES_BY_SUBJECT, "batching"]
    with contextlib.ExitStack() as stack:
        repository = REPOSITORY
        if options.start is not None:
            repository = stack.enter_context(started(options.start, options.http, options.cache_directory))
        if options.check:
            sys.exit(sum([check(addresses, subject) for subject in subjects]) > 0)
        for subject in subjects:
            answers = played(addresses, subject)
            fixtures.write(subject, answers, str(repository))
            sys.stderr.write(f"{subject}: {len(answers)} cases\n")


def played(addresses: Addresses, subject: str) -> dict[str, list[Answer]]:
    """The answers to a subject's cases."""
    if subject == "batching":
        return batching_script.play_all(addresses)
    return {case.name: play(case, addresses) for case in CASES_BY_SUBJECT[subject]}


def check(addresses: Addresses, subject: str) -> int:
    """How many cases are answered otherwise than they are recorded; each is printed."""
    recorded = fixtures.read(subject)
    found = {name: difference_lines(recorded[name], answers) for name, answers in played(addresses, subject).items()}
    differing = {name: lines for name, lines in found.items() if lines}
    for name, lines in differing.items():
        sys.stdout.write(f"{subject} {name}\n{lines}\n")
    return len(differing)


if __name__ == "__main__":
    main()
