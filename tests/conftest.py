"""What every test starts from."""

import gc
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # torch's threads spin while they wait for a core that another test has


def pytest_collection_finish() -> None:
    """Ten thousand tests and the libraries that they import stay: no collection need look at them again."""
    gc.collect()
    gc.freeze()
