"""What the objects of ``triton_python_backend_utils`` share in one worker."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

from tribar.modelserver.backends.python.arena import Window
from tribar.modelserver.backends.python.messages import Answer, Open, Question
from tribar.modelserver.backends.python.worker.channel import Channel

N_CALL_THREADS = 64
"""How many ``async_exec`` wait at the same time; more queue up."""


class Session:
    """The connection to the front end, and what the model was opened with."""

    def __init__(self, channel: Channel, window: Window, opening: Open) -> None:
        self.channel = channel
        self.window = window
        self.model_name = opening.arguments["model_name"]
        self.model_version = int(opening.arguments["model_version"])
        self.instance_name = opening.arguments["model_instance_name"]
        self.model_directory = opening.path.rpartition("/")[0]
        self.output_names = frozenset(opening.outputs)
        self.is_decoupled = opening.is_decoupled
        self.has_metrics = opening.has_metrics
        self._calls = itertools.count(1)

    @cached_property
    def call_threads(self) -> ThreadPoolExecutor:
        """Wait for the answers to ``async_exec``."""
        return ThreadPoolExecutor(N_CALL_THREADS, "tribar-call")

    def new_call(self) -> int:
        """A number for a call; its answers are kept from now on until ``channel.close_call``."""
        call = next(self._calls)
        self.channel.open_call(call)
        return call

    def ask(self, question: Question) -> Answer:
        """The answer to a question; ``question.call`` is set here."""
        question.call = self.new_call()
        try:
            self.channel.send(question)
            return self.channel.next_answer(question.call)
        finally:
            self.channel.close_call(question.call)
