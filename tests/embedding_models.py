"""The default embedding model, loaded once a test process: that takes seconds."""

from functools import cache

from tribar.runtime.embed.use import UniversalSentenceEncoder


@cache
def universal_sentence_encoder() -> UniversalSentenceEncoder:
    """Its ``close`` frees nothing, so that several embedders may share it."""
    return UniversalSentenceEncoder()
