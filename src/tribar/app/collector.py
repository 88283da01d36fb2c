"""Python's collector of reference cycles, in a process with a large heap that lasts and thousands of streams."""

import gc

YOUNG = 10_000
"""Containers made since the last collection before the next one: a burst of tokens should not be one itself."""


def settle_collector() -> None:
    """Leave everything that exists now out of later collections, and make those less frequent.

    To be called once, when all that lasts is there. Each full pass then walks over open requests only: modules and
    vocabularies would make it a pause of tens of milliseconds for every stream.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, 20, 20)
