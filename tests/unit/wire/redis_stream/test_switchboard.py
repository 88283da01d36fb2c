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


class Storm:
    """Engines that answer, die, are moved from and say stale things, at random."""

    def __init__(self, seed: int, n_requests: int) -> None:
        self.rng = random.Random(seed)
        self.rig = Board()
        self.engines = ["a", "b", "c"]
        self.lines = {engine: self.rig.line(engine, number) for number, engine in enumerate(self.engines)}
        self.held: set[tuple[str, Uid]] = set()
        for counter in range(n_requests):
            engine = self.rng.choice(self.engines)
            uid = Uid(self.lines[engine].client, counter)
            self.rig.board.open(self.lines[engine], uid, 1)
            self.held.add((engine, uid))

    def say(self, terminal: Terminal | None) -> None:
        engine, uid = self.rng.choice(sorted(self.held))
        self.rig.says(engine, uid.client, step(uid, [1], terminal))
        if terminal is not None:
            self.held.remove((engine, uid))

    def die(self) -> None:
        if len(self.engines) == 1:
            return
        engine = self.engines.pop(self.rng.randrange(len(self.engines)))
        target = self.rng.choice(self.engines)
        for holder, uid in sorted(self.held):
            if holder == engine and self.rng.random() < 0.7:
                moved = uid._replace(attempt=uid.attempt + 1)
                self.held.add((target, moved))
                self.rig.note(Moved(moved, target), client=moved.client)
        self.rig.note(Gone(), engine)

    def settle(self) -> list[int]:
        """The living engines end what they hold, then patience ends; every request's terminals."""
        for engine, uid in sorted(self.held):
            if engine in self.engines:
                self.rig.says(engine, uid.client, step(uid, [1], FINISHED))
        self.rig.board.give_up(1.0)
        ended: list[int] = []
        for line in self.lines.values():
            while (message := line.inbox.take()) is not None:
                assert isinstance(message, StepOutput)
                ended += [output.uid.counter for output in message.outputs if output.terminal is not None]
        return ended


def test_every_request_ends_exactly_once_whatever_happens() -> None:
    for seed in range(300):
        storm = Storm(seed, n_requests=12)
        for _ in range(40):
            if not storm.held:
                break
            if storm.rng.random() < 0.1:
                storm.die()
            else:
                storm.say(storm.rng.choice([None, None, FINISHED]))
        assert sorted(storm.settle()) == list(range(12)), f"seed {seed}"


def test_what_has_ended_does_not_fail_any_more() -> None:
    rig = Board()
    line = rig.line("a", 1)
    request = rig.board.open(line, Uid(1, 0), 4)
    rig.says("a", 1, step(Uid(1, 0), [5], FINISHED))
    rig.board.fail(request, "its connection broke")
    rig.board.cancel(request)
    assert read(line) == ([5], [FINISHED])
