"""What an API key is called where it must not be shown."""

import hashlib

KEY_ID_DIGITS = 16


def key_id(key: bytes) -> str:
    """How the SHA-256 of ``key`` begins, which is how its hash on file does."""
    return hashlib.sha256(key).hexdigest()[:KEY_ID_DIGITS]
