"""Reading any YAML file gives plain values or one error, quickly."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anole.config.reading import load_spec
from anole.config.yaml_file import MAX_BYTES, MAX_CHARACTERS, MAX_DEPTH, MAX_NODES, read_yaml
from anole.errors import AnoleError, SpecError
from anole.search.presets import read_tuner

SPEC = b"""
models:
  net: {source: "torchvision:resnet18", inputs: {x: [1, 3, 8, 8], y: {shape: [2], dtype: int64}}}
targets: {cpu: &cpu {kind: cpu, threads: 1}, fast: {<<: *cpu, required: false, max_relative_error: 1e-3}}
tuning: {preset: autotvm, trials: 4, seed: 0, evaluator: {number: 1, repeats: 2}}
builds: [{model: net, target: cpu, trials: 8, name: small}]
"""


def nested_mapping(first: str, step: str) -> str:
    """Return a mapping in which each value contains the previous one nine times."""
    steps = [step.format(",".join([f"*a{i}"] * 9)) for i in range(8)]
    return f"a0: &a0 {first}\n" + "".join(f"a{i}: &a{i} {each}\n" for i, each in enumerate(steps, start=1))


def write(folder: Path, content: str | bytes) -> Path:
    path = folder / "models.yaml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (nested_mapping("[x]", "[{}]"), "line 6, column 10: has more than 20000 values"),
        (nested_mapping("{k: v}", "{{<<: [{}]}}"), ": has more than 20000 values"),
        ("[" + "a," * MAX_NODES + "]", "has more than 20000 values"),
        ("? [a, b]\n: 1\n", "line 1, column 3: found a list as a key; keys must be text"),
        ("{[1,2]: 3}", "line 1, column 2: found a list as a key; keys must be text"),
        ("? {a: 1}\n: 2", "line 1, column 3: found a mapping as a key; keys must be text"),
        ("a: !!int foo", "line 1, column 4: found 'foo', which is not !!int"),
        ("a: !!int ''", "line 1, column 4: found '', which is not !!int"),
        ("a: !!bool foo", "line 1, column 4: found 'foo', which is not !!bool"),
        ("a: !!map [1]", "line 1, column 4: found the tag '!!map' at a list or mapping"),
        ("a: !!str [1]", "line 1, column 4: found the tag '!!str' at a list or mapping"),
        ("a: !!timestamp foo", "line 1, column 4: found the tag '!!timestamp'; only plain values are allowed"),
        ("a: !!python/object/apply:os.abort []", "found the tag '!!python/object/apply:os.abort'"),
        ("a: " + "1" * 5000, "line 1, column 4: found 5000 characters; a text has at most 4096"),
        ("a: " + "1" * 4000, "line 1, column 4: found an integer of more than 64 bits"),
        ("a: " + ":".join(["59"] * 1000), "line 1, column 4: found an integer of more than 64 bits"),
        ("a: " + "x" * (MAX_CHARACTERS + 1), "line 1, column 4: found 4097 characters"),
        ("[" * 3000, "line 1, column 21: is nested deeper than 20 levels"),
        ("{a: " * 3000, "is nested deeper than 20 levels"),
        ("- " * 3000, "is nested deeper than 20 levels"),
        ("&a [*a]", "line 1, column 5: found the alias *a within its own anchor"),
        ("a: &a {b: *a}", "line 1, column 11: found the alias *a within its own anchor"),
        ("a: &a {<<: *a}", "line 1, column 12: found the alias *a within its own anchor"),
        ("a: {<<: 5}", "line 1, column 9: found no mapping to merge"),
        ('a: "\\ud800"', "line 1, column 4: found the character '\\ud800', which is not allowed"),
        ('a: "\\0"', "line 1, column 4: found the character '\\x00', which is not allowed"),
        ('a: "\\UFFFFFFFF"', "line 1, column 7: is not YAML"),
        ("b: 1\na: \x1b[2J", "line 2, column 4: is not YAML: found the character '\\x1b'"),
        (b"a: b\nc: \xff", "line 2, column 4: cannot be read: found the byte 0xff, which is not UTF-8"),
        (b"\xef\xbb\xbfa: b\nc: \xed\xa0\x80", "line 2, column 4: cannot be read: found the byte 0xed"),
        ("a: 1\n---\nb: 2", "line 2, column 1: "),
        (b" " * (MAX_BYTES + 1), f"is larger than {MAX_BYTES} bytes"),
    ],
    ids=lambda value: None if len(value) > 40 else repr(value),
)
def test_invalid_yaml_is_reported_with_its_position(tmp_path: Path, content: str | bytes, message: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(SpecError) as caught:
        read_yaml(path)
    assert str(caught.value).startswith(f"{path}: ") and message in str(caught.value)
    assert len(str(caught.value)) < 300 + len(str(path)) and "\n" not in str(caught.value)


def test_plain_values_within_limits_are_read(tmp_path: Path) -> None:
    deep = "[" * (MAX_DEPTH - 2) + "1" + "]" * (MAX_DEPTH - 2)
    text = f"a: 2026-13-45\n2026-01-01: =\nb: &b {{c: 1, d: !!str 2}}\ne: {{<<: *b, c: 0x10}}\nf: {deep}\ng: .inf\n"
    found = read_yaml(write(tmp_path, text))
    assert isinstance(found, dict)
    expected = {"a": "2026-13-45", "2026-01-01": "=", "b": {"c": 1, "d": "2"}, "e": {"c": 16, "d": "2"}}
    assert {key: found[key] for key in expected} == expected
    assert found["g"] == float("inf")


def test_merged_mappings_can_be_overridden(tmp_path: Path) -> None:
    text = "a: &a {k: 1}\nb: &b {<<: *a, k: 2}\nc: {<<: [*b, *a], k: 3}\nd: {<<: *b}\n"
    found = read_yaml(write(tmp_path, text))
    assert found == {"a": {"k": 1}, "b": {"k": 2}, "c": {"k": 3}, "d": {"k": 2}}


def test_irregular_files_are_rejected_without_blocking(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path, tmp_path / "fifo", Path("/dev/zero"), tmp_path / ("x" * 300)):
        with pytest.raises(SpecError, match=r"is not a regular file|cannot be read: "):
            read_yaml(path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"1e-3", b".nan", "targets.fast.max_relative_error: found nan"),
        (b"1e-3", b".inf", "targets.fast.max_relative_error: found inf"),
        (b"seed: 0", b"seed: .nan", "tuning.seed: found nan"),
        (b"[1, 3, 8, 8]", b"[1, 3, 65536, 65536]", "inputs.x: found [1, 3, 65536, 65536]; an input has at most"),
        (b"[1, 3, 8, 8]", b"[" + b"9223372036854775807," * 999 + b"1]", "an input has at most"),
        (b"net:", b"n" * 81 + b":", "models: found a name of 81 characters; at most 80 are allowed"),
        (b"small", b"s" * 201, "builds[0].name: found a name of 201 characters; at most 200 are allowed"),
        (b"torchvision:resnet18", b"onnx:" + b"x" * 300, "found no file 'xxx"),
        (b"torchvision:resnet18", b"torch:" + b"x" * 300 + b":f", "found no module 'xxx"),
    ],
)
def test_out_of_range_values_are_errors_of_their_entries(tmp_path: Path, old: bytes, new: bytes, message: str) -> None:
    assert load_spec(write(tmp_path, SPEC))
    with pytest.raises(SpecError) as caught:
        load_spec(write(tmp_path, SPEC.replace(old, new, 1)))
    assert message in str(caught.value)


@given(
    st.lists(
        st.sampled_from(
            ["a", "&a ", "*a", "{", "}", "[", "]", ": ", ", ", "- ", "\n", "  ", "<<: ", "!!int ", "1", ".nan"]
        )
        | st.sampled_from(
            ["? ", "| ", "> ", '"', "'", "#", "%", "---\n", "...", "!", "\t", "\\", "\r", "\u2028", "1:2"]
        ),
        max_size=30,
    ).map("".join)
    | st.binary(max_size=40)
)
def test_any_file_raises_only_spec_errors(tmp_path_factory: pytest.TempPathFactory, content: str | bytes) -> None:
    read_all(write(tmp_path_factory.getbasetemp(), content))


def read_all(path: Path) -> None:
    """Read a models.yaml as far as possible."""
    try:
        spec = load_spec(path)
        for each in (spec.tuning, *(build.tuning for build in spec.builds.values())):
            read_tuner(each, "tuning")
    except AnoleError as error:
        assert "\n" not in str(error)
