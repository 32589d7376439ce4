"""The pool of measurers: which stay open, and that all are closed at the end."""

from unittest.mock import Mock

import pytest

from anole.tune.measurers import Measurers


class Measurer:
    """A measurer that logs when it is entered and left."""

    def __init__(self, name, events):
        self.name, self.events = name, events

    def __enter__(self):
        self.events.append(f"+{self.name}")
        return self

    def __exit__(self, *_):
        self.events.append(f"-{self.name}")
        if self.name == "stuck":
            raise OSError("gone")


@pytest.fixture
def events():
    return []


def use(measurers, name, events):
    return measurers.of(name, lambda: Measurer(name, events))


def test_a_measurer_is_started_once_and_ended_with_the_others(events):
    with Measurers() as measurers:
        first = use(measurers, "a", events)
        assert use(measurers, "a", events) is first and events == ["+a"]
        use(measurers, "b", events)
    assert events == ["+a", "+b", "-b", "-a"]


def test_all_are_closed_even_where_one_cannot_be(events):
    with pytest.raises(OSError, match="gone"), Measurers() as measurers:
        for name in ("a", "stuck", "b"):
            use(measurers, name, events)
    assert events[3:] == ["-b", "-stuck", "-a"]


def test_only_the_most_recently_used_measurers_stay_open(events):
    with Measurers() as measurers:
        for name in "abcdefgh":
            use(measurers, name, events)
        use(measurers, "a", events)
        assert len(events) == 8
        use(measurers, "i", events)
        assert events[8:] == ["-b", "+i"]
        use(measurers, "b", events)
        assert events[10:] == ["-c", "+b"]
    assert sorted(events[12:]) == sorted(f"-{name}" for name in "adefghib")


def test_a_measurer_that_cannot_start_is_not_kept(events):
    with Measurers() as measurers:
        with pytest.raises(OSError, match="no room"):
            measurers.of("a", Mock(side_effect=OSError("no room")))
        use(measurers, "a", events)
    assert events == ["+a", "-a"]
