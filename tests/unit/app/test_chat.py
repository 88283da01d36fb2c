"""The conversation itself, over a scripted model."""

from collections.abc import Generator, Sequence

from tribar.app.chat import HELP, Chat, Message
from tribar.core.errors import Unavailable


class Model:
    """Answers with the number of messages it saw, in two pieces."""

    def __init__(self) -> None:
        self.asked: list[list[Message]] = []
        self.closed = 0

    def stream_chat(self, messages: Sequence[Message]) -> Generator[str, None, None]:
        self.asked.append(list(messages))
        try:
            yield f"{len(messages)}"
            match messages[-1]["content"]:
                case "fail":
                    raise Unavailable("gone")
                case "interrupt":
                    raise KeyboardInterrupt
            yield " seen"
        finally:
            self.closed += 1


def talk(model: Model, lines: list[str], system: str | None = None) -> tuple[int, str, list[str]]:
    written: list[str] = []
    reported: list[str] = []
    feed = iter(lines)
    chat = Chat(model, lambda: next(feed, None), written.append, reported.append, system)
    return chat.run(), "".join(written), reported


def test_the_conversation_grows_and_is_cleared() -> None:
    model = Model()
    n_failed, written, _ = talk(model, ["one\n", " two ", "/clear", "three"])
    assert (n_failed, written) == (0, "1 seen\n3 seen\n1 seen\n")
    assert [[message["content"] for message in asked] for asked in model.asked] == [
        ["one"],
        ["one", "1 seen", "two"],
        ["three"],
    ]
    assert [message["role"] for message in model.asked[1]] == ["user", "assistant", "user"]


def test_instructions_outlive_clear() -> None:
    model = Model()
    talk(model, ["one", "/clear", "two"], system="be brief")
    assert [asked[0] for asked in model.asked] == [{"role": "system", "content": "be brief"}] * 2
    assert len(model.asked[1]) == 2


def test_a_failed_question_leaves_no_trace() -> None:
    model = Model()
    n_failed, _, reported = talk(model, ["fail", "one"])
    assert (n_failed, reported) == (1, ["gone"])
    assert [message["content"] for message in model.asked[1]] == ["one"]


def test_an_interrupted_answer_stays_in_the_conversation() -> None:
    model = Model()
    n_failed, written, _ = talk(model, ["interrupt", "one"])
    assert (n_failed, written) == (0, "1 [stopped]\n3 seen\n")
    assert model.asked[1][1] == {"role": "assistant", "content": "1"}
    assert model.closed == 2


def test_commands_and_empty_lines_ask_nothing() -> None:
    model = Model()
    assert talk(model, ["", "  ", "/help", "/unknown", "/quit", "never"]) == (0, f"{HELP}\n{HELP}\n", [])
    assert model.asked == []
