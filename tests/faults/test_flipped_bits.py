"""Each flipped bit of a file is either rejected with one message or has no effect on the content.

The same holds for other damage: lines that are swapped, missing, duplicated or from another run, and inserted or
missing bytes. One kind of damage is undetectable: another valid value in a models.yaml, which users write, and which
has no checksum; there the tests accept a message or any valid content. `tests/store/test_shard.py` truncates shards,
and `tests/merge/test_damage.py` damages databases.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from anole.config.reading import load_spec
from anole.documents.receipt import write_receipt
from anole.errors import AnoleError
from anole.store.content import parse_shard
from anole.store.lines import complete_lines, strip_checksum
from anole.store.shard import read_shard

from ..record_project import CONV, DENSE, READERS, RECEIPTS, SPEC, Project, run_of
from .scenarios import fail_if

BITS = [200, pytest.param(None, marks=pytest.mark.slow, id="all")]
"""Number of bits of a document to flip by default; the slow tests flip all of them."""

Check = Callable[[bytes], str]
"""A function that reads damaged bytes; it returns ``refused``, ``harmless``, or a problem."""


def verdict(read: Callable[[], Any], allowed: Callable[[Any], bool]) -> str:
    """Return the result of reading damaged bytes."""
    try:
        found = read()
    except AnoleError as error:
        return "refused" if str(error) else "refused without a message"
    except Exception as error:
        return f"a traceback: {type(error).__name__}: {error}"
    return "harmless" if allowed(found) else "other content is accepted"


def verify(damaged: Iterable[tuple[str, bytes]], check: Check) -> None:
    """Assert that all damage is refused or harmless, and some of it refused."""
    n_refused = n_harmless = 0
    problems = []
    for what, data in damaged:
        result = check(data)
        n_refused, n_harmless = n_refused + (result == "refused"), n_harmless + (result == "harmless")
        if result not in ("refused", "harmless"):
            problems.append(f"{what}: {result}"[:400])
    print(f"{n_refused} refused, {n_harmless} harmless, {len(problems)} accepted or with a traceback")
    assert n_refused, "nothing was refused"
    fail_if(problems, n_refused + n_harmless + len(problems))


def flip(data: bytes, bits: Iterable[int]) -> Iterator[tuple[str, bytes]]:
    for bit in bits:
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        yield f"bit {bit % 8} of byte {bit // 8} of {len(data)}", bytes(damaged)


def bits_of(data: bytes, most: int | None) -> list[int]:
    """Return the indices of all bits, or a fixed random sample."""
    everything = range(8 * len(data))
    return list(everything if most is None or most >= len(everything) else random.Random(0).sample(everything, most))


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A small project with each kind of document and its database."""
    project = Project(tmp_path_factory.mktemp("filled"))
    project.tune(run_of(CONV), CONV, [4e-3, None], [3.9e-3])
    project.extract("net", [(CONV, 4), (DENSE, 1)])
    project.compile("net", [(CONV, 4, run_of(CONV)), (DENSE, 1, None)])
    project.evaluate("net-cpu")
    project.merge()
    return project


@pytest.fixture
def shard(filled: Project) -> Path:
    (path,) = filled.shards.glob("*/*.jsonl")
    return path


def shard_check(path: Path) -> Check:
    content = read_shard(path)
    return lambda data: verdict(lambda: parse_shard(path, complete_lines(data)), lambda found: found == content)


def test_every_flipped_bit_of_a_shard(shard: Path) -> None:
    data = shard.read_bytes()
    verify(flip(data, bits_of(data, None)), shard_check(shard))


def test_a_shard_with_missing_or_inserted_bytes(shard: Path) -> None:
    """Only the last newline may be missing: a line that is complete without it was acknowledged."""
    data = shard.read_bytes()
    verify(((f"without byte {at}", data[:at] + data[at + 1 :]) for at in range(len(data) - 1)), shard_check(shard))
    more = (b"\0", b" ", b"\n", b"0", b'"', b"}", b"\xff")
    draw = random.Random(0)
    inserted = (
        (f"{each!r} before byte {at}", data[:at] + each + data[at:])
        for at in draw.sample(range(len(data)), 300)
        for each in more
    )
    verify(inserted, shard_check(shard))


def test_misplaced_lines_of_a_shard(shard: Path, filled: Project, tmp_path: Path) -> None:
    lines = shard.read_bytes().splitlines(keepends=True)
    other = Project(tmp_path)
    foreign = other.tune(run_of(CONV, seed=1), CONV, [4e-3, None], [3.9e-3]).read_bytes().splitlines(keepends=True)
    assert len(lines) == len(foreign) >= 5
    numbers = range(len(lines))
    swapped = [
        (
            f"lines {one} and {two} swapped",
            [*lines[:one], lines[two], *lines[one + 1 : two], lines[one], *lines[two + 1 :]],
        )
        for two in numbers
        for one in range(two)
    ]
    dropped = [(f"without line {each}", lines[:each] + lines[each + 1 :]) for each in numbers[:-1]]
    doubled = [(f"line {each} twice", [*lines[: each + 1], *lines[each:]]) for each in numbers]
    taken = [(f"line {each} of another run", [*lines[:each], foreign[each], *lines[each + 1 :]]) for each in numbers]
    added = [(f"line {each} of another run at the end", [*lines, foreign[each]]) for each in numbers]
    plain = [strip_checksum(line[:-1]) + b"\n" for line in lines]
    bare = [(f"line {each} without checksum", [*lines[:each], plain[each], *lines[each + 1 :]]) for each in numbers]
    damaged = [*swapped, *dropped, *doubled, *taken, *added, *bare]
    verify(((what, b"".join(found)) for what, found in damaged), shard_check(shard))


PATHS = {
    "task": f"work/tasks/{CONV.key}.json",
    "manifest": "work/models/net/cpu.json",
    "build": "builds/net-cpu/build.json",
    "evaluation": "work/evaluations/net-cpu.json",
}


@pytest.mark.parametrize("most", BITS)
@pytest.mark.parametrize("name", READERS)
def test_flipped_bits_of_a_document(filled: Project, name: str, most: int | None) -> None:
    path, read = filled.folder / PATHS.get(name, f"work/tuned/{name}.json"), READERS[name]
    if name in RECEIPTS:
        write_receipt(path, RECEIPTS[name])
    data, content = path.read_bytes(), read(path)

    def check(damaged: bytes) -> str:
        path.write_bytes(damaged)
        return verdict(lambda: read(path), lambda found: found == content)

    try:
        verify(flip(data, bits_of(data, most)), check)
        cuts = [(f"its first {size} bytes", data[:size]) for size in range(0, len(data) - 2, 1 + len(data) // 200)]
        verify(cuts, check)
    finally:
        path.write_bytes(data)


@pytest.mark.parametrize("most", BITS)
def test_flipped_bits_of_models_yaml(tmp_path: Path, most: int | None) -> None:
    path, text = tmp_path / "models.yaml", SPEC.encode()
    (tmp_path / "tiny.py").write_text("def residual(): ...\n")
    (tmp_path / "words.onnx").touch()
    path.write_bytes(text)
    load_spec(path)

    def check(damaged: bytes) -> str:
        path.write_bytes(damaged)
        return verdict(lambda: load_spec(path), lambda found: True)

    verify(flip(text, bits_of(text, most)), check)
    verify(((f"its first {size} bytes", text[:size]) for size in range(0, len(text) - 1, 20)), check)
