"""A conversation in the terminal: lines in, streamed answers out. Works the same with a pipe on standard input."""

from collections.abc import Callable, Generator, Sequence
from typing import Protocol

from tribar.core.errors import TribarError

Message = dict[str, str]

HELP = "/clear forgets the conversation, /quit (or Ctrl-D) leaves, Ctrl-C stops an answer."


class ChatModel(Protocol):
    """What answers: a model in this process, or a server."""

    def stream_chat(self, messages: Sequence[Message]) -> Generator[str, None, None]:
        """The answer to ``messages``, piece by piece. Raises ``TribarError``. Closing the generator stops it."""
        ...


class Chat:
    """One conversation. ``read_line()`` gives the next line, or None at the end; ``write(text)`` shows text at once.

    ``report(message)`` shows an error; a question that failed leaves no trace in the conversation. ``system``
    precedes everything and outlives /clear.
    """

    def __init__(
        self,
        model: ChatModel,
        read_line: Callable[[], str | None],
        write: Callable[[str], None],
        report: Callable[[str], None],
        system: str | None = None,
    ) -> None:
        self._model = model
        self._read_line = read_line
        self._write = write
        self._report = report
        self._instructions: list[Message] = [] if system is None else [{"role": "system", "content": system}]
        self._messages: list[Message] = []

    def run(self) -> int:
        """Talk until /quit or the end of the input. Returns how many questions failed."""
        n_failed = 0
        while (line := self._read_line()) is not None:
            text = line.strip()
            if text == "/quit":
                break
            if text == "/clear":
                self._messages.clear()
            elif text.startswith("/"):
                self._write(HELP + "\n")
            elif text and not self._answer(text):
                n_failed += 1
        return n_failed

    def _answer(self, text: str) -> bool:
        question: Message = {"role": "user", "content": text}
        pieces: list[str] = []
        try:
            self._stream([*self._instructions, *self._messages, question], pieces)
        except TribarError as error:
            self._report(error.message)
            return False
        self._write("\n")
        self._messages += [question, {"role": "assistant", "content": "".join(pieces)}]
        return True

    def _stream(self, asked: Sequence[Message], pieces: list[str]) -> None:
        """Ctrl-C ends the answer, not the conversation: what was said until then stays in it."""
        answer = self._model.stream_chat(asked)
        try:
            for piece in answer:
                pieces.append(piece)
                self._write(piece)
        except KeyboardInterrupt:
            answer.close()
            self._write(" [stopped]")
