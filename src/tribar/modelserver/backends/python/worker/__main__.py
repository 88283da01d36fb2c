"""``python -m tribar.modelserver.backends.python.worker``."""

import sys

from tribar.modelserver.backends.python.worker.main import main

if __name__ == "__main__":
    sys.exit(main())
