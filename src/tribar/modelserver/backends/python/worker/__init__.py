"""The worker process of one instance: ``python -m tribar.modelserver.backends.python.worker``."""
