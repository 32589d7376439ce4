"""Exported libraries, compiled and run: the build's outputs, threads, memory, instructions and errors."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anole.export.levels import Level
from anole.host.processor import processor
from anole.ir.ranges import checked_sizes
from anole.targets.cpu.runtime import TILES_FUNCTION
from tests.export.conftest import Export, Exported, import_file, needs
from tests.tiny_builds import RANGED

HOME = Path(__file__).parents[2]
SANITIZER = "-fsanitize=thread"
TEXT: dict[str, Any] = {"capture_output": True, "text": True, "check": True}


def bits(arrays: Sequence[np.ndarray]) -> bytes:
    return b"".join(array.tobytes() for array in arrays)


def call(program: Path | Sequence[str], how: str, exported: Exported, code: int = 0) -> bytes:
    """Run a program, check its exit code, and return its output."""
    command = [str(program)] if isinstance(program, Path) else list(program)
    weights = str(exported.folder / "network.weights")
    run = subprocess.run([*command, how, weights], input=bits(exported.inputs), capture_output=True)
    assert run.returncode == code, run.stdout[-500:] + run.stderr[-3000:]
    return run.stdout


@pytest.mark.parametrize("name", ["listened", pytest.param("reduced", marks=pytest.mark.guard), "masked"])
def test_dynamic_sizes_match_the_build(name: str, export: Export, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        assert len(export(name, levels=("tuned",)).network.ranges) == 2
    compared = [message for message in caplog.messages if message.endswith("are bit-identical to the build's")]
    assert len(compared) == 1 + len(checked_sizes(RANGED[name].ranges))


def test_inputs_with_inconsistent_sizes_are_rejected(export: Export) -> None:
    python = export("masked", levels=("tuned",)).python()
    expected_error = r"input mask: found shape \(3, 9\); expected \('n', 'tokens'\) with {'n': 2, 'tokens': 9}"
    with python.Network() as network, pytest.raises(ValueError, match=expected_error):
        network(np.zeros((2, 9, 32), np.float32), np.zeros((3, 9), np.float32))


RESIZED = """
#include <stdio.h>
#include "network.h"
static unsigned char input[NETWORK_INPUT_0_BYTES], first[NETWORK_OUTPUT_0_BYTES], second[NETWORK_OUTPUT_1_BYTES];
int main(void) {
  network_instance* instance;
  if (network_create(&instance, NULL)) return 1;
  if (network_output_shape(NULL, 0) || network_output_shape(instance, -1)) return 1;
  if (network_output_shape(instance, NETWORK_OUTPUTS)) return 1;
  for (int64_t size = 0; size < 6; size += 3) {
    network_error error = network_resize(instance, &size);
    printf("%s: %d\\n", network_error_text(error), (int)network_output_shape(instance, 0)[0]);
  }
  network_input inputs[] = {{input, sizeof input / 4 * 3}};
  network_output outputs[] = {{first, sizeof first / 4 * 3}, {second, sizeof second / 4 * 3}};
  printf("%s, ", network_error_text(network_run(instance, inputs, outputs)));
  inputs[0].bytes = sizeof input;
  printf("%s", network_error_text(network_run(instance, inputs, outputs)));
  network_destroy(instance);
  return 0;
}
"""


@pytest.mark.parametrize(
    "name", ["file", "bytes", *(pytest.param(name, marks=pytest.mark.guard) for name in ("joined", "mixed", "twins"))]
)
def test_outputs_are_bit_identical_to_the_builds(name: str, export: Export) -> None:
    exported = export(name, levels=("tuned",))
    with exported.python().Network() as network:
        first, second = network(*exported.inputs), network(*exported.inputs)
    assert bits(first) == bits(second) == bits(exported.expected)
    has_tiles = TILES_FUNCTION.encode() in (exported.folder / "libnetwork.a").read_bytes()
    assert has_tiles == (name == "bytes")


def test_bf16_outputs_are_bit_identical_to_the_builds(export: Export) -> None:
    exported = export("residual", levels=("tuned",))
    assert "bfloat16" in {operand.dtype for step in exported.network.kernels.steps for operand in step.operands}
    with exported.python().Network() as network:
        assert bits(network(*exported.inputs)) == bits(exported.expected)


def test_one_library_serves_all_sizes_of_a_range(export: Export, tmp_path: Path) -> None:
    exported = export("ranged", levels=("tuned",))
    python, build = exported.python(), import_file(exported.build / "load.py").Model()
    with python.Network() as network:
        for size in (4, 1, 3):
            array = np.random.default_rng(size).random((size, 6, 11, 12), np.float32)
            assert bits(network(array)) == bits(build(array))
        with pytest.raises(ValueError, match="n: found 5; allowed: 1 to 4"):
            network(np.zeros((5, 6, 11, 12), np.float32))
        with pytest.raises(ValueError, match=r"input x: found shape \(2, 6, 11\); expected \('n', 6, 11, 12\)"):
            network(np.zeros((2, 6, 11), np.float32))
    (tmp_path / "program.c").write_text(RESIZED)
    made = exported.program(tmp_path / "program", source=tmp_path / "program.c")
    shown = subprocess.run([str(made)], **TEXT).stdout
    assert shown == "a size is outside of its range: 4\nno error: 3\nno error, an input or an output has the wrong size"


@pytest.mark.guard
def test_lower_levels_differ_only_by_rounding(varied: Exported) -> None:
    flags = processor().flags
    python, names = varied.python(), [level.name for level in varied.network.levels]
    assert names[-1] == "x86-64-v2" and len(set(names)) == len(names)
    for name in names:
        if name == "x86-64-v3" and "avx2" not in flags:
            continue
        with python.Network(level=name) as network:
            assert network.level == name
            for found, expected in zip(network(*varied.inputs), varied.expected, strict=True):
                np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_a_c_program_gets_the_builds_outputs(varied: Exported, program: Path) -> None:
    expected = bits(varied.expected)
    assert call(program, "outputs", varied) == expected
    assert call(program, "outputs-not-aligned", varied) == expected


def test_concurrent_threads_need_separate_instances(varied: Exported, program: Path) -> None:
    assert call(program, "threads", varied).split() == [b"0"]
    assert call(program, "one instance", varied) == b"1 0\n"


def test_nothing_is_allocated_after_an_instance_was_created(varied: Exported, tmp_path: Path) -> None:
    counting = varied.program(tmp_path / "counting", "-DCOUNT_ALLOCATIONS")
    assert call(counting, "allocations", varied) == b"1 0\n"


def test_wrong_calls_return_error_codes_and_messages(varied: Exported, program: Path) -> None:
    lines = call(program, "errors", varied).decode().splitlines()
    codes = [int(line.split(" ", 1)[0]) for line in lines]
    names = error_names(varied)
    assert [names.get(code, "?") for code in codes] == [
        "NULL", "NULL", "WEIGHTS_MISSING", "WEIGHTS_DAMAGED", "LEVEL", "ARENA_TOO_SMALL", "ARENA_NOT_ALIGNED", "OK",
        "NULL", "NULL", "NULL", "NULL", "SIZE", "SIZE", "OVERLAP", "OVERLAP", "OK", "?", "?",
    ]  # fmt: skip
    texts = dict(line.split(" ", 1) for line in lines)
    assert len(set(texts.values())) == len(texts) - 1, "two codes are unknown"


def error_names(exported: Exported) -> dict[int, str]:
    header = (exported.folder / "network.h").read_text()
    found = re.findall(r"^  NETWORK_(?:ERROR_)?(\w+?)(?: = 0)?,? ", header[header.index("typedef enum") :], re.M)
    return dict(enumerate(["OK", *found] if found[0] != "OK" else found))


def change_byte(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :]


@pytest.mark.parametrize(
    ("damage", "is_checked"),
    [
        pytest.param(lambda content: change_byte(content, len(content) // 2), True, id="a bit"),
        pytest.param(lambda content: change_byte(content, 30), False, id="the header"),
        pytest.param(lambda content: content[:-64], False, id="cut"),
        pytest.param(lambda content: content + bytes(64), False, id="longer"),
        pytest.param(lambda content: bytes(len(content)), False, id="zeros"),
    ],
)
def test_damaged_weights_are_rejected(
    damage: Callable[[bytes], bytes], is_checked: bool, varied: Exported, tmp_path: Path
) -> None:
    original, path, python = varied.folder / "network.weights", tmp_path / "weights", varied.python()
    python.Network(weights=original, check=True).close()
    path.write_bytes(damage(original.read_bytes()))
    with pytest.raises(python.NetworkError, match="damaged"):
        python.Network(weights=path, check=is_checked)


@pytest.mark.guard
def test_a_processor_without_the_instructions_is_rejected(export: Export, monkeypatch: pytest.MonkeyPatch) -> None:
    impossible = Level("strange", {"kind": "cpu", "mcpu": "x86-64-v2", "threads": 1}, frozenset({"fma4", "avx512fp16"}))
    monkeypatch.setattr("anole.export.stage.choose_levels", lambda *_: [impossible])
    python = export("joined").python()
    with pytest.raises(python.NetworkError, match="the CPU does not support the instructions"):
        python.Network()


@pytest.mark.guard
def test_kernels_allocate_only_from_the_arena(export: Export, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anole.export.kernels._allocated_bytes", lambda *_: 0)
    exported = export("varied", levels=("tuned",), check=False)
    python = exported.python()
    with python.Network() as network, pytest.raises(python.NetworkError, match="a kernel failed"):
        network(*exported.inputs)


@pytest.mark.guard
def test_exports_are_reproducible(export: Export, monkeypatch: pytest.MonkeyPatch) -> None:
    # As by default in Python; the library's wrapper is run during the export.
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    one, other = (export("joined", levels=("tuned",)).folder for _ in range(2))
    assert {path.name: path.read_bytes() for path in one.iterdir()} == {
        path.name: path.read_bytes() for path in other.iterdir()
    }


def test_the_header_is_valid_cpp(varied: Exported, tmp_path: Path) -> None:
    (tmp_path / "program.cc").write_text(
        "#include \"network.h\"\nint main() { return network_error_text(NETWORK_OK)[0] != 'n'; }\n"
    )
    command = [needs("g++"), "-std=c++11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{varied.folder}"]
    libraries = [str(varied.folder / "libnetwork.a"), "-lm", "-lpthread"]
    subprocess.run([*command, str(tmp_path / "program.cc"), "-o", str(tmp_path / "made"), *libraries], **TEXT)
    subprocess.run([str(tmp_path / "made")], check=True)


@pytest.mark.guard
def test_several_libraries_can_be_linked_into_one_program(varied: Exported, export: Export, tmp_path: Path) -> None:
    other = export("joined", levels=("tuned",), prefix="other_net")
    source = tmp_path / "both.c"
    source.write_text(
        '#include "network.h"\n#include "other_net.h"\n#include <stdio.h>\n'
        "int main(int argc, char** argv) {\n  (void)argc;\n"
        "  network_instance* one;\n  other_net_instance* other;\n"
        "  network_settings settings = {.weights = argv[2]};\n"
        "  int failed = network_create(&one, &settings) || other_net_create(&other, NULL);\n"
        '  printf("%s %d\\n", other_net_error_text(OTHER_NET_OK), failed);\n'
        "  network_destroy(one);\n  other_net_destroy(other);\n  return 0;\n}\n"
    )
    made = varied.program(tmp_path / "both", f"-I{other.folder}", str(other.folder / "libother_net.a"), source=source)
    assert call(made, "", varied) == b"no error 0\n"
    symbols = subprocess.run([needs("nm"), "-g", "--defined-only", str(other.folder / "libother_net.a")], **TEXT).stdout
    assert sorted(re.findall(r" [A-Z] (\w+)", symbols)) == [
        f"other_net_{name}" for name in ("create", "destroy", "error_text", "level", "output_shape", "run")
    ]


def test_the_library_depends_only_on_the_c_library(varied: Exported) -> None:
    shown = subprocess.run([needs("ldd"), str(varied.folder / "libnetwork.so")], **TEXT).stdout
    names = {line.split()[0].rsplit("/")[-1].split(".so")[0] for line in shown.splitlines()}
    assert names <= {"libc", "libm", "libpthread", "linux-vdso", "ld-linux-x86-64"}
    shown = subprocess.run([needs("readelf"), "-W", "-d", str(varied.folder / "libnetwork.so")], **TEXT).stdout
    assert "stack" not in shown


def test_the_example_and_the_cmake_file_work(varied: Exported, tmp_path: Path) -> None:
    cmake = needs("cmake")
    source = varied.folder / "example.c"
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.13)\nproject(example C)\n"
        f'include("{varied.folder}/network.cmake")\n'
        f'add_executable(static "{source}")\ntarget_link_libraries(static PRIVATE network_static)\n'
        f'add_executable(shared "{source}")\ntarget_link_libraries(shared PRIVATE network_shared)\n'
    )
    for command in ([cmake, "."], [cmake, "--build", "."]):
        subprocess.run(command, cwd=tmp_path, **TEXT)
    for name in ("static", "shared"):
        shown = subprocess.run([str(tmp_path / name), str(varied.folder / "network.weights")], **TEXT).stdout
        assert "created in" in shown


def test_the_example_of_the_docs_works(export: Export, tmp_path: Path) -> None:
    exported = export("nothing", levels=("tuned",))
    (example,) = re.findall(r"```c\n(.*?)```", (HOME / "docs/export.md").read_text(), re.DOTALL)
    (tmp_path / "program.c").write_text(example)
    made = exported.program(tmp_path / "program", source=tmp_path / "program.c")
    assert subprocess.run([str(made)], **TEXT).stdout == "no error, first output 0\n"


@pytest.mark.guard
def test_valgrind_finds_nothing(varied: Exported, program: Path) -> None:
    command = [needs("valgrind"), "-q", "--error-exitcode=9", "--leak-check=full", str(program)]
    assert call(command, "outputs", varied)
    assert call(command, "errors", varied)


@pytest.mark.guard
def test_the_thread_sanitizer_finds_nothing(varied: Exported, export: Export, tmp_path: Path) -> None:
    try:
        sanitized = export("varied", weights_inside=False, levels=("x86-64-v2",), options=(SANITIZER,), check=False)
        made = sanitized.program(tmp_path / "sanitized", SANITIZER)
    except Exception as error:
        pytest.skip(f"the compiler has no ThreadSanitizer: {error}")
    # The sanitizer does not support address randomization over a wide range: its programs would end immediately.
    command = [needs("setarch"), "-R", str(made)]
    if subprocess.run([*command], capture_output=True).returncode != 2:
        pytest.skip("programs with the ThreadSanitizer do not start here")
    assert call(command, "threads", sanitized).split() == [b"0"]
    assert call(command, "one instance", sanitized) == b"1 0\n"


@pytest.mark.guard
@pytest.mark.parametrize(("model", "level"), [("Haswell", "x86-64-v3"), ("Nehalem", "x86-64-v2"), ("core2duo", None)])
def test_older_processors_work_or_are_rejected(model: str, level: str | None, varied: Exported, program: Path) -> None:
    command = [needs("qemu-x86_64"), "-cpu", model, str(program)]
    if level is None:
        assert b"the CPU does not support the instructions" in call(command, "outputs", varied, code=3)
        return
    expected = np.concatenate([array.ravel() for array in varied.expected])
    found = np.frombuffer(call(command, "outputs", varied), np.float32)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
