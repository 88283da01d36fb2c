"""Implementations of the port ``Buckets``: in memory for one gateway, in Redis for several."""
