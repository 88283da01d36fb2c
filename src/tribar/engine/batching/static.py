"""Static batching: what is there starts together and ends together, the short waiting for the long."""

from tribar.engine.batching.dynamic import Dynamic


class Static(Dynamic):
    """``BatchingPolicy``: a dynamic batch that never waits to start and never lets a row go early."""

    holds_finished = True

    def __init__(self) -> None:
        super().__init__(preferred_size=1, delay_s=0.0)
