"""Every flipped bit of a file is refused with one message, or what is read is what was written.

The same holds for other damage: lines that are swapped, missing, doubled or of another run, and bytes that are new or
gone. One thing cannot be told from a sound file: another value that is allowed in a models.yaml, since people write it
and it has no checksum; no more is asked there than a message or something valid. `tests/store/test_shard.py` cuts
shards short, and `tests/merge/test_damage.py` damages databases.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from anole.declared.reading import load_spec
from anole.documents.build import FILE, read_build
from anole.documents.evaluation import read_evaluation
from anole.documents.manifest import read_manifest, read_task, write_task
from anole.documents.receipt import (
    MeasuredConfig,
    Receipt,
    Refined,
    SharedReceipts,
    TriedConfig,
    TuningReceipt,
    read_receipts,
    read_refined,
    write_receipt,
)
from anole.errors import AnoleError
from anole.store.content import parse_shard
from anole.store.lines import whole_lines, without_checksum
from anole.store.shard import read_shard

from ..record_project import CONV, DENSE, Project, run_of
from .scenarios import fail_if

SAMPLE = 200
"""So many bits of a document are flipped by default."""

Check = Callable[[bytes], str]
"""Reads damaged bytes; returns ``refused``, ``harmless``, or what is wrong."""


def verdict(read: Callable[[], Any], allowed: Callable[[Any], bool]) -> str:
    """Returns how damaged bytes were taken."""
    try:
        found = read()
    except AnoleError as error:
        return "refused" if str(error) else "refused without a message"
    except Exception as error:
        return f"a traceback: {type(error).__name__}: {error}"
    return "harmless" if allowed(found) else "other content is accepted"


def survive(damaged: Iterable[tuple[str, bytes]], check: Check) -> None:
    """Asserts that all damage is refused or harmless, and that some of it is refused."""
    n_refused = n_harmless = 0
    problems = []
    for what, data in damaged:
        said = check(data)
        n_refused, n_harmless = n_refused + (said == "refused"), n_harmless + (said == "harmless")
        if said not in ("refused", "harmless"):
            problems.append(f"{what}: {said}"[:400])
    print(f"{n_refused} refused, {n_harmless} harmless, {len(problems)} accepted or with a traceback")
    assert n_refused, "nothing was refused"
    fail_if(problems, n_refused + n_harmless + len(problems))


def flipped(data: bytes, bits: Iterable[int]) -> Iterator[tuple[str, bytes]]:
    for bit in bits:
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        yield f"bit {bit % 8} of byte {bit // 8} of {len(data)}", bytes(damaged)


def bits_of(data: bytes, most: int | None) -> list[int]:
    """Returns the numbers of all bits, or of a sample that is the same in every run."""
    everything = range(8 * len(data))
    return list(everything if most is None or most >= len(everything) else random.Random(0).sample(everything, most))


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A small project with one of everything, and with its database."""
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
    """Returns the check of a shard's bytes."""
    content = read_shard(path)
    return lambda data: verdict(lambda: parse_shard(path, whole_lines(data)), lambda found: found == content)


def test_every_flipped_bit_of_a_shard(shard: Path) -> None:
    data = shard.read_bytes()
    survive(flipped(data, bits_of(data, None)), shard_check(shard))


def test_a_shard_without_or_with_more_bytes(shard: Path) -> None:
    """The last newline alone may be missing: a line that is complete without it was acknowledged."""
    data = shard.read_bytes()
    survive(((f"without byte {at}", data[:at] + data[at + 1 :]) for at in range(len(data) - 1)), shard_check(shard))
    more = (b"\0", b" ", b"\n", b"0", b'"', b"}", b"\xff")
    draw = random.Random(0)
    inserted = (
        (f"{each!r} before byte {at}", data[:at] + each + data[at:])
        for at in draw.sample(range(len(data)), 300)
        for each in more
    )
    survive(inserted, shard_check(shard))


def test_lines_of_a_shard_that_are_elsewhere(shard: Path, filled: Project, tmp_path: Path) -> None:
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
    plain = [without_checksum(line[:-1]) + b"\n" for line in lines]
    bare = [(f"line {each} without checksum", [*lines[:each], plain[each], *lines[each + 1 :]]) for each in numbers]
    damaged = [*swapped, *dropped, *doubled, *taken, *added, *bare]
    survive(((what, b"".join(found)) for what, found in damaged), shard_check(shard))


def tuning_receipt() -> TuningReceipt:
    config = {"tile_f": [1, 1, 1, 16], "unroll_explicit": 0}
    return TuningReceipt(
        CONV.key, run_of(CONV).key, 8, config, 2e-3, (), (MeasuredConfig(config, 2e-3),),
        label=CONV.label, preset="autotvm", seed=0, measured=8, status="tuned", confirmed=True, gflops=115.6,
        statuses={"ok": 7, "run_error": 1}, elapsed_s=12.5,
    )  # fmt: skip


def document(name: str, project: Project) -> tuple[Path, Callable[[Path], Any]]:
    """Returns a document's path in a project, and its reader."""
    folder = project.folder
    if name == "task":
        path = folder / f"work/tasks/{CONV.key}.json"
        path.unlink(missing_ok=True)
        write_task(path, CONV)
        return path, lambda place: read_task(place).to_json()
    if name == "manifest":
        return folder / "work/models/net/cpu.json", read_manifest
    if name == "build":
        return folder / "builds/net-cpu" / FILE, lambda place: read_build(place.parent)
    if name == "evaluation":
        return folder / "work/evaluations/net-cpu.json", read_evaluation
    path = folder / f"work/{'refined' if name == 'refined' else 'tuned'}/{name}.json"
    receipt = tuning_receipt()
    tried = (TriedConfig({"tile_f": [1, 1, 1, 16]}, 2.1e-3, 2e-3, True),)
    refined = Receipt(CONV.key, run_of(CONV).key, 8, receipt.config, 2e-3, refined=tried)
    written = {
        "receipt": receipt,
        "shared receipts": SharedReceipts(8, (receipt,)),
        "refined": Refined("net-cpu", "2026-11-21T11:00:00.000Z", 0.017, 0.018, 0.95, True, (refined,)),
    }
    write_receipt(path, written[name])
    return path, read_refined if name == "refined" else lambda place: read_receipts([place])


DOCUMENTS = ("task", "manifest", "build", "evaluation", "receipt", "shared receipts", "refined")


def survive_document(filled: Project, name: str, most: int | None) -> None:
    path, read = document(name, filled)
    data = path.read_bytes()
    content = read(path)

    def check(damaged: bytes) -> str:
        path.write_bytes(damaged)
        return verdict(lambda: read(path), lambda found: found == content)

    try:
        survive(flipped(data, bits_of(data, most)), check)
        cuts = [(f"its first {size} bytes", data[:size]) for size in range(0, len(data) - 2, 1 + len(data) // 200)]
        survive(cuts, check)
    finally:
        path.write_bytes(data)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_flipped_bits_of_a_document(filled: Project, name: str) -> None:
    survive_document(filled, name, SAMPLE)


@pytest.mark.slow
@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_flipped_bit_of_a_document(filled: Project, name: str) -> None:
    survive_document(filled, name, None)


SPEC = """\
models:
  net: {source: "torch:tiny:residual", inputs: {x: [1, 3, 16, 16]}}
  words: {source: "onnx:words.onnx"}
targets:
  here: {kind: cpu, threads: 2}
  board: {kind: cpu, mcpu: znver4, threads: 4, measure: {rpc: "10.0.0.2:9190", key: pi}, required: false}
tuning: {preset: autotvm, trials: 64, seed: 0}
builds:
- {model: net, target: here, refine: 2}
- {model: words, target: board, name: other, total_trials: 1e3}
"""


def survive_spec(tmp_path: Path, most: int | None) -> None:
    path = tmp_path / "models.yaml"
    shutil.copy(Path(__file__).parents[1] / "tiny_networks.py", tmp_path / "tiny.py")
    (tmp_path / "words.onnx").touch()
    text = SPEC.replace("1e3", "1000").encode()
    path.write_bytes(text)
    load_spec(path)

    def check(damaged: bytes) -> str:
        path.write_bytes(damaged)
        return verdict(lambda: load_spec(path), lambda found: True)

    survive(flipped(text, bits_of(text, most)), check)
    survive(((f"its first {size} bytes", text[:size]) for size in range(0, len(text) - 1, 20)), check)


def test_flipped_bits_of_models_yaml(tmp_path: Path) -> None:
    survive_spec(tmp_path, SAMPLE)


@pytest.mark.slow
def test_every_flipped_bit_of_models_yaml(tmp_path: Path) -> None:
    survive_spec(tmp_path, None)
