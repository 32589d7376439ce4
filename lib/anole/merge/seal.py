"""The seal: a file beside the database that tells, by hashes, what the last merge wrote, and from what."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from anole.documents.document import read_document, write_document
from anole.errors import DocumentError
from anole.files import read_bytes
from anole.merge.merged import Merged
from anole.merge.schema import views_sha256


@dataclass(frozen=True)
class Seal:
    """What the last merge wrote. A database with another hash was changed by someone else, or by a fault.

    Attributes:
        database_sha256: the hash of the database's file.
        schema_sha256: the hash of the definitions of its tables.
        sources_sha256: the hash of everything that was merged, and of the views.
        merged: the result, without what it replaced.
    """

    database_sha256: str
    schema_sha256: str
    sources_sha256: str
    merged: Merged


def seal_path(database: Path) -> Path:
    """Returns where the seal of a database is."""
    return database.with_name(f"{database.name}.seal")


def read_seal(database: Path) -> Seal | None:
    """Returns the seal of a database; None if it has none, or none that can be read."""
    try:
        return read_document(seal_path(database), Seal, "merge")
    except DocumentError:
        return None


def write_seal(database: Path, seal: Seal) -> None:
    """Writes the seal of a database."""
    write_document(seal_path(database), seal)


def sources_sha256(paths: Iterable[Path]) -> str:
    """Returns one hash over the names and contents of files, and over the views."""
    digest = hashlib.sha256(views_sha256().encode())
    for path in paths:
        content = hashlib.sha256(read_bytes(path)).hexdigest() if path.exists() else "missing"
        digest.update(f"{os.path.abspath(path)}\n{content}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()
