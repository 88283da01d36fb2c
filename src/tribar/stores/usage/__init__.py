"""Implementations of the port ``UsageLedger``: in memory, and in SQL."""
