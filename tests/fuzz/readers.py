"""The readers of untrusted files as functions of bytes, with seed inputs; they may raise only `AnoleError`.

Checksums would reject nearly every mutation. Therefore, the first byte of an input selects whether checksums are
recomputed after the mutation, or the bytes are read unchanged.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError

from anole.config.entries import ModelSpec
from anole.config.reading import load_spec
from anole.documents.document import serialize
from anole.documents.lockfile import LockedBuild, LockedTask, Lockfile, read_lockfile, text_of, write_lockfile
from anole.extract.onnx.dimensions import input_infos
from anole.extract.onnx.importer import read_onnx
from anole.merge.exchange.importing import import_records
from anole.record import Source, SpaceFacts
from anole.store.content import encode_shard, parse_shard
from anole.store.lines import Chain, complete_lines, strip_checksum
from anole.store.shard import Shard

from ..record_project import CONV, DENSE, READERS, RECEIPTS, SPEC, WIDE, Project, run_of

VERBATIM, RESEALED = b"\0", b"\1"
"""The first byte of an input: read the rest unchanged, or recompute its checksums."""

Reader = Callable[[bytes], object]
"""A function that reads an input, or raises an `AnoleError`."""


class Readers:
    """The readers and their seed inputs, in an empty folder for temporary files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project = Project(folder / "project")
        self.project.fill()
        with Shard.open(self.project.shards, run_of(CONV), CONV) as shard:
            self.shard = shard.path
        self.project.merge()
        (folder / "tiny.py").write_text("def residual(): ...\n")
        (folder / "words.onnx").touch()
        self._single = _single_run(folder / "single")
        self._loose = folder / "loose.sqlite"
        _copy_without_types(self._single, self._loose)
        self.by_name: Mapping[str, Reader] = {
            "shard": self.read_shard,
            "documents": self.read_document,
            "spec": self.read_spec,
            "lockfile": self.read_lockfile,
            "database": self.read_database,
            "onnx": self.read_onnx,
        }

    def seeds(self, name: str) -> list[bytes]:
        """Return inputs that a reader accepts."""
        if name == "shard":
            shards = [path.read_bytes() for path in sorted(self.project.shards.glob("*/*.jsonl"))]
            old = [b"".join(strip_checksum(line) + b"\n" for line in data.splitlines()) for data in shards]
            return [kind + data for kind, several in ((VERBATIM, shards), (RESEALED, old)) for data in several]
        if name == "documents":
            return [bytes([kind]) + each for kind in range(len(DOCUMENTS)) for each in self._documents(DOCUMENTS[kind])]
        if name == "spec":
            return [SPEC.encode(), (Path(__file__).parents[2] / "models.yaml").read_bytes()]
        if name == "lockfile":
            tasks = {
                task.key: LockedTask(task.label, {"tile_f": [1, 16]}, 2e-3, run_of(task).key) for task in (CONV, WIDE)
            }
            builds = {"net": LockedBuild(CONV.target, tasks), "other": LockedBuild({"kind": "vta"}, {})}
            return [text_of(Lockfile(self.folder, builds)).encode(), b'{"schema": 1, "builds": {}}']
        if name == "onnx":
            model = _small_model()
            return [VERBATIM + model.SerializeToString(), RESEALED + json.dumps(MessageToDict(model)).encode()]
        changes = ["", '[["trial", 0, "latency_s", 1e-3]]', '[["task", 0, "workload", "{}"], ["run", 0, "seed", 7]]']
        return [VERBATIM + self._single.read_bytes(), *(RESEALED + change.encode() for change in changes)]

    def read_shard(self, data: bytes) -> None:
        """Read a shard; accepted content must survive a round trip."""
        text = _seal(data[1:]) if data[:1] == RESEALED else data[1:]
        content = parse_shard(self.shard, complete_lines(text))
        if content is not None:
            again = parse_shard(self.shard, encode_shard(content, self.shard))
            assert again is not None and again.digest == content.digest, "the content changed in a round trip"

    def read_document(self, data: bytes) -> None:
        """Read a document; the first byte selects its kind."""
        name = DOCUMENTS[data[0] % len(DOCUMENTS)] if data else "task"
        path = self.folder / "documents" / (f"{CONV.key}.json" if name == "task" else "build.json")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data[1:])
        READERS[name](path)

    def read_spec(self, data: bytes) -> None:
        """Read a models.yaml."""
        path = self.folder / "models.yaml"
        path.write_bytes(data)
        load_spec(path)

    def read_lockfile(self, data: bytes) -> None:
        """Read a lock file; accepted content must survive a round trip."""
        path = self.folder / "anole.lock.json"
        path.write_bytes(data)
        lockfile = read_lockfile(path)
        write_lockfile(lockfile)
        assert read_lockfile(path) == lockfile, "the content changed in a round trip"

    def read_database(self, data: bytes) -> None:
        """Import a database: the bytes of a file, or a JSON list of changes to a valid one."""
        database, here = self.folder / "foreign.sqlite", self.folder / "here"
        shutil.rmtree(here, ignore_errors=True)
        if data[:1] == RESEALED:
            shutil.copy(self._loose, database)
            with suppress(ValueError, TypeError, RecursionError, sqlite3.Error, OverflowError):
                _change(database, json.loads(data[1:] or b"[]"))
        else:
            database.write_bytes(data[1:])
        import_records(database, here)

    def read_onnx(self, data: bytes) -> None:
        """Read a model, given as the bytes of a file or as JSON, without TVM's import."""
        path = self.folder / "fuzzed.onnx"
        model = data[1:]
        if data[:1] == RESEALED:
            try:
                model = ParseDict(json.loads(model), onnx.ModelProto()).SerializeToString()
            except (ValueError, TypeError, RecursionError, AttributeError, ParseError):
                return
        path.write_bytes(model)
        spec = ModelSpec("net", f"onnx:{path}", {}, None, {})
        input_infos(spec, read_onnx(spec))

    def _documents(self, name: str) -> list[bytes]:
        if name in RECEIPTS:
            return [_without_checksum(serialize(RECEIPTS[name]).encode())]
        patterns = {
            "task": f"work/tasks/{CONV.key}.json",
            "manifest": "work/models/*/*.json",
            "build": "builds/*/build.json",
            "evaluation": "work/evaluations/*.json",
        }
        paths = sorted(self.project.folder.glob(patterns[name]))
        return [_without_checksum(path.read_bytes()) for path in paths]


DOCUMENTS = ("task", "manifest", "build", "evaluation", "receipt", "refined")
"""The kinds of documents; an input's first byte is the index of its kind."""


def without_sync() -> None:
    """Disable fsync."""
    os.fsync = lambda descriptor: None


def folder_in_memory() -> tempfile.TemporaryDirectory[str]:
    """Create a temporary folder, in memory if possible."""
    memory = Path("/dev/shm")
    parent = str(memory) if memory.is_dir() and os.access(memory, os.W_OK) else None
    return tempfile.TemporaryDirectory(prefix="anole-fuzz-", dir=parent)


def _seal(data: bytes) -> bytes:
    """Recompute the checksums of a shard's lines, for the run in the first line."""
    lines = [strip_checksum(line) for line in data.split(b"\n")]
    key = ""
    with suppress(ValueError, RecursionError):
        head = json.loads(lines[0])
        key = head.get("key", "") if isinstance(head, dict) else ""
    chain = Chain.of(key if isinstance(key, str) else "")
    return b"".join(chain.seal(line) + b"\n" for line in lines if line)


def _without_checksum(data: bytes) -> bytes:
    """Return a document in the old format without a checksum, which would reject every change."""
    plain = json.loads(data)
    plain.pop("crc", None)
    return json.dumps(plain).encode()


def _small_model() -> onnx.ModelProto:
    """Return a model with weights, an attribute of each common type, and a computed shape."""
    make = onnx.helper
    nodes = [
        make.make_node("Conv", ["x", "w"], ["y"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        make.make_node("LeakyRelu", ["y"], ["z"], alpha=0.5),
        make.make_node("Reshape", ["z", "shape"], ["out"]),
    ]
    weights = [
        make.make_tensor("w", onnx.TensorProto.FLOAT, [2, 1, 3, 3], [0.5] * 18),
        make.make_tensor("shape", onnx.TensorProto.INT64, [2], [1, -1]),
    ]
    x = make.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 1, 4, 4])
    out = make.make_tensor_value_info("out", onnx.TensorProto.FLOAT, [1, 32])
    graph = make.make_graph(nodes, "small", [x], [out], weights)
    return make.make_model(graph, opset_imports=[make.make_opsetid("", 17)])


def _single_run(folder: Path) -> Path:
    """Create a database of one run, with rows in each table that an import reads."""
    project = Project(folder)
    run = run_of(CONV)
    with Shard.open(project.shards, run, CONV) as shard:
        shard.append_sources([Source(DENSE.key, run_of(DENSE).key, 2)])
        shard.append_space(SpaceFacts(50_000, 4096, {"too wide": 512}))
    project.tune(run, CONV, [4e-3, None], [3.9e-3])
    project.merge()
    return project.database


def _copy_without_types(database: Path, copy: Path) -> None:
    """Copy the tables of a database without types and constraints, to allow any values."""
    with closing(sqlite3.connect(copy)) as connection:
        connection.execute("attach database ? as whole", [str(database)])
        for (name,) in connection.execute("select name from whole.sqlite_master where type = 'table'").fetchall():
            if not name.startswith("sqlite_"):
                connection.execute(f'create table "{name}" as select * from whole."{name}"')
        connection.commit()


def _change(database: Path, changes: Any) -> None:
    """Update values in a database, each given by table, row index, column and value."""
    with closing(sqlite3.connect(database)) as connection:
        for table, row, column, value in changes if isinstance(changes, list) else []:
            names = [str(name).replace('"', "") for name in (table, column)]
            parameters = [json.dumps(value) if isinstance(value, (dict, list)) else value, int(row) + 1]
            connection.execute(f'update "{names[0]}" set "{names[1]}" = ? where rowid = ?', parameters)
        connection.commit()
