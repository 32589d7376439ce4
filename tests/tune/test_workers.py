from __future__ import annotations

import pytest

from anole.tune.workers import Workers


class Measurer:
    """Writes down when it is entered and left."""

    def __init__(self, name, events):
        self.name, self.events = name, events

    def __enter__(self):
        self.events.append(f"+{self.name}")
        return self

    def __exit__(self, *_):
        self.events.append(f"-{self.name}")


@pytest.fixture
def events():
    return []


def use(workers, name, events):
    return workers.measurer(name, lambda: Measurer(name, events))


def test_a_measurer_is_started_once_and_ended_with_the_others(events):
    with Workers() as workers:
        first = use(workers, "a", events)
        assert use(workers, "a", events) is first and events == ["+a"]
        use(workers, "b", events)
    assert events == ["+a", "+b", "-a", "-b"]


def test_of_many_only_those_that_were_at_work_last_stay(events):
    with Workers() as workers:
        for name in "abcdefgh":
            use(workers, name, events)
        use(workers, "a", events)
        assert len(events) == 8
        use(workers, "i", events)
        assert events[8:] == ["-b", "+i"]
        use(workers, "b", events)
        assert events[10:] == ["-c", "+b"]
    assert sorted(events[12:]) == sorted(f"-{name}" for name in "adefghib")


def test_one_that_cannot_start_is_not_kept(events):
    def fail():
        raise OSError("no room")

    with Workers() as workers:
        with pytest.raises(OSError, match="no room"):
            workers.measurer("a", fail)
        use(workers, "a", events)
    assert events == ["+a", "-a"]
