"""Which output is believed, and that every request ends exactly once. Law 3."""

import random

from tribar.core.ids import Uid
from tribar.core.requests import FinishReason, Timing
from tribar.wire.messages import Failed, Finished, Output, Ready, Stats, StepOutput, Terminal
from tribar.wire.redis_stream.envelopes import Gone, Goodbye, Moved, Outward
from tribar.wire.redis_stream.switchboard import Line, Switchboard

FINISHED = Finished(FinishReason.LENGTH, 1, 1, 0, Timing())


class Board:
    """A switchboard, its lines and the aborts that it asked for."""

    def __init__(self) -> None:
        self.aborts: list[tuple[str, Uid]] = []
        self.board = Switchboard(lambda engine, uid: self.aborts.append((engine, uid)))
        self.sent: dict[tuple[str, int], int] = {}

    def line(self, engine: str, client: int) -> Line:
        line = Line(engine, client, lambda: None)
        self.board.join(line)
        return line

    def says(self, engine: str, client: int, message: StepOutput | Ready | Stats | Goodbye, lost: int = 0) -> None:
        sequence = self.sent.get((engine, client), 0) + lost
        self.sent[engine, client] = sequence + 1
        self.board.receive(Outward(engine, client, sequence, message), 0.0)

    def note(self, message: Moved | Gone, engine: str = "", client: int = -1, now_s: float = 0.0) -> None:
        self.board.receive(Outward(engine, client, -1, message), now_s)


def step(uid: Uid, ids: list[int], terminal: Terminal | None = None) -> StepOutput:
    return StepOutput([Output(uid, ids, terminal=terminal)])


def read(line: Line) -> tuple[list[int], list[Terminal]]:
    ids: list[int] = []
    terminals: list[Terminal] = []
    while (message := line.inbox.take()) is not None:
        if isinstance(message, StepOutput):
            for output in message.outputs:
                assert output.uid.attempt == 0
                ids += output.ids
                terminals += [] if output.terminal is None else [output.terminal]
    return ids, terminals


def test_an_entry_that_comes_twice_counts_once() -> None:
    rig = Board()
    line = rig.line("a", 1)
    rig.board.open(line, Uid(1, 0), 4)
    envelope = Outward("a", 1, 0, step(Uid(1, 0), [5]))
    rig.board.receive(envelope, 0.0)
    rig.board.receive(Outward("a", 1, 0, step(Uid(1, 0), [5])), 0.0)
    assert read(line) == ([5], [])


def test_a_gap_fails_what_is_open() -> None:
    rig = Board()
    line = rig.line("a", 1)
    rig.board.open(line, Uid(1, 0), 4)
    rig.says("a", 1, step(Uid(1, 0), [5]))
    rig.says("a", 1, step(Uid(1, 0), [7]), lost=1)
    ids, [terminal] = read(line)
    assert ids == [5]
    assert isinstance(terminal, Failed)
    assert line.end is not None


def test_after_a_move_only_the_new_attempt_is_believed() -> None:
    rig = Board()
    line = rig.line("a", 1)
    rig.board.open(line, Uid(1, 0), 4)
    rig.note(Gone(), "a")
    rig.note(Moved(Uid(1, 0, 1), "b"), client=1)
    rig.says("a", 1, step(Uid(1, 0), [6], FINISHED))
    rig.says("b", 1, step(Uid(1, 0, 1), [7], FINISHED))
    assert read(line) == ([7], [FINISHED])
    assert line.end is not None, "the engine is gone, and nothing is open"


def test_a_request_that_was_moved_after_it_had_begun_fails_and_is_aborted_there() -> None:
    rig = Board()
    line = rig.line("a", 1)
    rig.board.open(line, Uid(1, 0), 4)
    rig.says("a", 1, step(Uid(1, 0), [6]))
    rig.note(Moved(Uid(1, 0, 1), "b"), client=1)
    rig.note(Gone(), "a")
    rig.says("b", 1, step(Uid(1, 0, 1), [7], FINISHED))
    ids, [terminal] = read(line)
    assert (ids, type(terminal)) == ([6], Failed)
    assert rig.aborts == [("b", Uid(1, 0, 1))]


def test_a_request_that_nobody_takes_over_fails_after_a_while() -> None:
    rig = Board()
    line = rig.line("a", 1)
    rig.board.open(line, Uid(1, 0), 4)
    rig.note(Gone(), "a", now_s=10.0)
    rig.board.give_up(10.0)
    assert read(line) == ([], [])
    rig.board.give_up(10.1)
    assert isinstance(read(line)[1][0], Failed)
    assert line.end is not None


def test_what_was_moved_for_a_client_that_left_is_aborted() -> None:
    rig = Board()
    line = rig.line("a", 1)
    rig.board.cancel(rig.board.open(line, Uid(1, 0), 4))
    rig.note(Moved(Uid(1, 0, 1), "b"), client=1)
    rig.note(Moved(Uid(9, 0, 1), "b"), client=9)
    assert rig.aborts == [("b", Uid(1, 0, 1)), ("b", Uid(9, 0, 1))]


def test_the_bytes_that_may_lie_in_a_stream_are_those_of_unstarted_requests() -> None:
    rig = Board()
    line = rig.line("a", 1)
    for counter in range(3):
        rig.board.open(line, Uid(1, counter), 100)
    rig.says("a", 1, step(Uid(1, 0), [1]))
    rig.says("a", 1, step(Uid(1, 1), [], FINISHED))
    assert line.n_unstarted_bytes == 100
    rig.says("a", 1, step(Uid(1, 0), [], FINISHED))
    rig.board.fail_all("Redis is away")
    assert line.n_unstarted_bytes == 0


def test_every_request_ends_once_whatever_happens() -> None:
    """Engines that answer, die, are moved from and say stale things, at random: one terminal each, in every order."""
    for seed in range(200):
        rng = random.Random(seed)
        rig = Board()
        engines = {"a", "b", "c"}
        lines = {engine: rig.line(engine, number) for number, engine in enumerate(sorted(engines))}
        held: dict[tuple[str, Uid], int] = {}
        for counter in range(12):
            engine = rng.choice(sorted(lines))
            uid = Uid(lines[engine].client, counter)
            rig.board.open(lines[engine], uid, 1)
            held[engine, uid] = counter
        for _ in range(60):
            if not held:
                break
            engine, uid = rng.choice(sorted(held))
            match rng.randrange(4):
                case 0 | 1:
                    terminal = rng.choice([None, FINISHED])
                    rig.says(engine, uid.client, step(uid, [1], terminal))
                    if terminal is not None:
                        del held[engine, uid]
                case 2 if len(engines) > 1 and engine in engines:
                    engines.discard(engine)
                    target = rng.choice(sorted(engines))
                    for holder, moving in sorted(held):
                        if holder == engine and rng.random() < 0.7:
                            moved = moving._replace(attempt=moving.attempt + 1)
                            held[target, moved] = moved.counter
                            rig.note(Moved(moved, target), client=moved.client)
                    rig.note(Gone(), engine)
                case _:
                    pass
        for engine in sorted(engines):
            for holder, uid in sorted(held):
                if holder == engine:
                    rig.says(engine, uid.client, step(uid, [1], FINISHED))
        rig.board.give_up(1.0)
        ended: list[int] = []  # one that ends twice is there twice
        for line in lines.values():
            while (message := line.inbox.take()) is not None:
                assert isinstance(message, StepOutput)
                ended += [o.uid.counter for o in message.outputs if o.terminal is not None and o.uid.attempt == 0]
        assert sorted(ended) == list(range(12)), f"seed {seed}"
