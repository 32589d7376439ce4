"""The lock file: it round-trips, and mistakes by people or git are reported with their path."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anole.codec import encode
from anole.documents.lockfile import LockedBuild, LockedTask, Lockfile, read_lockfile, text_of, write_lockfile
from anole.errors import SpecError

KEYS = st.text("0123456789abcdef", min_size=64, max_size=64)
VALUES = st.one_of(st.integers(-(2**40), 2**40), st.text(max_size=5), st.booleans(), st.lists(st.integers(0, 9)))
OBJECTS = st.dictionaries(st.text(max_size=5), VALUES, max_size=4)
TASKS = st.builds(
    LockedTask, st.text(min_size=1, max_size=9), OBJECTS, st.none() | st.floats(1e-9, 1.0), st.none() | KEYS
)
BUILDS = st.dictionaries(
    st.text(max_size=9), st.builds(LockedBuild, OBJECTS, st.dictionaries(KEYS, TASKS, max_size=3)), max_size=3
)
ENTRY = LockedBuild({"kind": "cpu", "threads": 2}, {"a" * 64: LockedTask("dense", {"tile": [1, 2]}, 1e-3, "b" * 64)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lock")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A lock file of one build with one task."""
    write_lockfile(Lockfile(tmp_path / "anole.lock.json", {"net": ENTRY}))
    return tmp_path / "anole.lock.json"


@given(BUILDS)
def test_a_lock_file_round_trips(folder: Path, builds: dict[str, LockedBuild]) -> None:
    lockfile = Lockfile(folder / "anole.lock.json", builds)
    write_lockfile(lockfile)
    read = read_lockfile(lockfile.path)
    assert read == lockfile and lockfile.path.exists() == bool(builds)
    assert {name: each.key for name, each in read.builds.items()} == {name: each.key for name, each in builds.items()}


@given(BUILDS)
def test_the_text_is_sorted_regardless_of_insertion_order(folder: Path, builds: dict[str, LockedBuild]) -> None:
    backwards = {
        name: LockedBuild(each.target, dict(reversed(each.tasks.items()))) for name, each in reversed(builds.items())
    }
    text = text_of(Lockfile(folder, builds))
    assert text == text_of(Lockfile(folder, backwards))
    plain = json.loads(text)
    assert list(plain["builds"]) == sorted(builds)
    assert encode(builds) == plain["builds"]


@given(BUILDS, st.data())
def test_damage_causes_at_most_one_message(folder: Path, builds: dict[str, LockedBuild], data: Any) -> None:
    """Replacing any value gives a valid lock file, or an error with the file's name."""
    plain = json.loads(text_of(Lockfile(folder, {"net": ENTRY, **builds})))
    node: Any = plain
    while True:
        name = data.draw(st.sampled_from(sorted(node)))
        if not isinstance(node[name], dict) or not node[name] or data.draw(st.booleans()):
            break
        node = node[name]
    node[name] = data.draw(st.none() | VALUES | OBJECTS)
    path = folder / "damaged.json"
    path.write_text(json.dumps(plain))
    try:
        read = read_lockfile(path)
    except SpecError as error:
        assert str(error).startswith(f"{path}: ")
    else:
        assert json.loads(text_of(read)) is not None


def test_a_config_has_one_line(path: Path) -> None:
    assert path.read_text() == (
        '{\n "builds": {\n  "net": {\n   "target": {\n    "kind": "cpu",\n    "threads": 2\n   },\n   "tasks": {\n'
        f'    "{"a" * 64}": {{\n     "config": {{"tile": [1, 2]}},\n     "label": "dense",\n     "latency_s": 0.001,\n'
        f'     "run_key": "{"b" * 64}"\n    }}\n   }}\n  }}\n }},\n "schema": 1\n}}\n'
    )


def test_without_a_file_nothing_is_locked(tmp_path: Path) -> None:
    assert read_lockfile(tmp_path / "anole.lock.json").builds == {}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"schema": 1', '"schema": 2', "schema: is 2, not 1"),
        ('"builds"', '"bulids"', "bulids: is unknown; did you mean 'builds'?"),
        (
            "{\n",
            "<<<<<<< HEAD\n{\n",
            "is not JSON: Expecting value: line 1 column 1 (char 0); fix it, or delete it and",
        ),
        (
            '"label": "dense"',
            '"label": "dense", "label": "x"',
            "is not JSON: it has the key 'label' twice in one object",
        ),
        ('"label": "dense",', "", f"builds.net.tasks.{'a' * 64}.label: is missing"),
        ("a" * 64, "a" * 63, f"builds.net.tasks.{'a' * 63}: is '{'a' * 63}', not of the form [0-9a-f]{{64}}"),
        ("b" * 64, "best", f"builds.net.tasks.{'a' * 64}.run_key: is 'best', not of the form [0-9a-f]"),
        ("0.001", "-1", f"builds.net.tasks.{'a' * 64}.latency_s: is -1, not a number from 1e-10 to 1000000"),
        ('{"tile": [1, 2]}', "[1, 2]", f"builds.net.tasks.{'a' * 64}.config: is [1, 2], not an object"),
        ("[1, 2]", "NaN", "is not JSON: NaN is not a JSON value"),
        ("[1, 2]", "[" * 70 + "]" * 70, "is not JSON: it has more than 64 levels"),
    ],
)
def test_mistakes_are_reported_with_their_path(path: Path, old: str, new: str, message: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(SpecError) as caught:
        read_lockfile(path)
    assert str(caught.value).startswith(f"{path}: {message}")


def test_a_folder_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot be read: Is a directory"):
        read_lockfile(tmp_path)


def test_an_entry_is_for_one_target(path: Path) -> None:
    lockfile = read_lockfile(path)
    lockfile.check_target("net", {"kind": "cpu", "threads": 2})
    lockfile.check_target("another build", {})
    with pytest.raises(SpecError) as caught:
        lockfile.check_target("net", {"kind": "cpu", "threads": 4, "exact": True})
    assert str(caught.value) == (
        f"{path}: builds.net.target: differs from the target in models.yaml: threads is 2, but 4 here; exact is None, "
        "but True here. Compile on the locked hardware, set these values for the target in models.yaml, or unlock the "
        "build (`anole lock --remove net`)"
    )
