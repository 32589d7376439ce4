from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from anole.documents import layout
from anole.project.content import content_digest

LARGE = 1 << 20


@pytest.mark.parametrize("size", [5, LARGE])
def test_a_digest_depends_on_the_content_and_not_the_times(tmp_path: Path, size: int) -> None:
    file = tmp_path / "model.onnx"
    file.write_bytes(b"a" * size)
    first = content_digest([Path("model.onnx")], tmp_path)
    os.utime(file, (1, 1))
    assert content_digest([Path("model.onnx")], tmp_path) == first
    times = file.stat().st_mtime_ns
    other = tmp_path / "other.onnx"
    other.write_bytes(b"b" * size)
    os.utime(other, ns=(times, times))
    other.replace(file)
    second = content_digest([Path("model.onnx")], tmp_path)
    assert second not in (first, None)
    file.write_bytes(b"a" * size)
    os.utime(file, ns=(times, times))
    assert content_digest([Path("model.onnx")], tmp_path) == first
    assert (tmp_path / layout.DIGESTS).exists() is (size == LARGE)


def test_a_large_file_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"a" * LARGE)
    content_digest([Path("model.onnx")], tmp_path)
    cache = tmp_path / layout.DIGESTS
    kept = json.loads(cache.read_text())
    (entry,) = kept.values()
    cache.write_text(json.dumps({name: [*entry[:-1], "kept"] for name in kept}))
    named = content_digest([Path("model.onnx")], tmp_path)
    cache.write_text("damaged")
    assert content_digest([Path("model.onnx")], tmp_path) not in (named, None)


def test_a_model_without_files_has_no_digest(tmp_path: Path) -> None:
    assert content_digest([], tmp_path) is None
    assert content_digest([Path("missing")], tmp_path) != content_digest([Path("also_missing")], tmp_path)
