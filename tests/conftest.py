"""What every test starts from."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # torch's threads spin while they wait for a core that another test has
