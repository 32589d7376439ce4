"""The file of a task, named by the task's key."""

from __future__ import annotations

from pathlib import Path

from anole.documents.document import checked_text, read_plain
from anole.errors import DocumentError
from anole.files import write_atomically
from anole.task import Task


def read_task(path: Path) -> Task:
    """Reads a task.

    Raises:
        DocumentError: the file is missing or broken, or holds another task than its name says.
    """
    plain = read_plain(path, "extract")
    try:
        task = Task.from_json(plain)
    except ValueError as error:
        raise DocumentError(path, f"is not a task: {error}", "extract") from error
    if path.stem != task.key:
        raise DocumentError(path, f"holds a task with the key {task.key}", "extract")
    return task


def write_task(path: Path, task: Task) -> None:
    """Writes a task, unless the file holds it already."""
    write_atomically(path, checked_text(task.to_json()))
