"""The scripted model: a runner that verifies its contract, as a class and as a ``*.fake.json`` file."""

from tribar.runtime.fake.model import FakeModel, is_fake_model, load_fake_model
from tribar.runtime.fake.runner import FakeRunner, Pace
from tribar.runtime.fake.script import Script, forcing_logits, hash_script, logits_script, pattern_logits, token_lists
from tribar.runtime.fake.text import ByteText, ByteTokenizer, byte_text, load_fake_text

__all__ = [
    "ByteText",
    "ByteTokenizer",
    "FakeModel",
    "FakeRunner",
    "Pace",
    "Script",
    "byte_text",
    "forcing_logits",
    "hash_script",
    "is_fake_model",
    "load_fake_model",
    "load_fake_text",
    "logits_script",
    "pattern_logits",
    "token_lists",
]
