from __future__ import annotations

from functools import partial

from anole.search.watch import NOBODY, Watch


def test_one_watch_is_told_before_the_other():
    told = []

    def noting(name):
        return Watch(*(partial(lambda what, *given: told.append((name, what, *given)), what) for what in "itc"))

    watch = noting("first").then(NOBODY).then(noting("second"))
    watch.iteration(3, {"steps": 2.0})
    watch.trial("a trial")
    watch.confirmation("a confirmation")
    assert told == [
        *((name, "i", 3, {"steps": 2.0}) for name in ("first", "second")),
        *((name, "t", "a trial") for name in ("first", "second")),
        *((name, "c", "a confirmation") for name in ("first", "second")),
    ]
