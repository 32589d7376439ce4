from functools import partial

from anole.search.watch import NO_WATCH, Watch


def test_watches_are_called_in_order():
    calls = []

    def recording(name):
        return Watch(*(partial(lambda kind, *given: calls.append((name, kind, *given)), kind) for kind in "itc"))

    watch = recording("first").then(NO_WATCH).then(recording("second"))
    watch.iteration(3, {"steps": 2.0})
    watch.trial("a trial")
    watch.confirmation("a confirmation")
    assert calls == [
        *((name, "i", 3, {"steps": 2.0}) for name in ("first", "second")),
        *((name, "t", "a trial") for name in ("first", "second")),
        *((name, "c", "a confirmation") for name in ("first", "second")),
    ]
