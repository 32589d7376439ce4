from __future__ import annotations

import logging
from pathlib import Path

import pytest

from anole.documents.log import LogFormatter, explanations, failure_summary, is_warning, last_result, messages


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of a stage, with output of a library in between."""
    path = tmp_path / "stage.log"
    logger = logging.Logger("stage")
    handler = logging.FileHandler(path, delay=True)
    handler.setFormatter(LogFormatter())
    logger.addHandler(handler)
    path.write_text("a library says something\n")
    logger.info("conv2d 64->64: %d/%d", 1, 8)
    try:
        raise ValueError("no tree fits")
    except ValueError:
        logger.warning("the surrogate failed", exc_info=True)
    logger.info("conv2d 64->64: 90.0 GFLOP/s")
    logger.error("the device is gone")
    handler.close()
    return path


def test_messages_are_parsed_without_their_time(log: Path) -> None:
    first, failed, last, gone = messages([log])
    assert (first, last, gone) == ("conv2d 64->64: 1/8", "conv2d 64->64: 90.0 GFLOP/s", "warning: the device is gone")
    assert failed.startswith("warning: the surrogate failed\nTraceback ")
    assert failed.endswith("ValueError: no tree fits")
    assert [is_warning(message) for message in (first, failed, last, gone)] == [False, True, False, True]


def test_the_result_is_the_last_message_that_is_not_a_warning(log: Path, tmp_path: Path) -> None:
    assert last_result([log]) == "conv2d 64->64: 90.0 GFLOP/s"
    with log.open("a") as file:
        file.write("12:00:00 done\nand what a library says at exit\n")
    assert last_result([log]) == "done"
    assert last_result([]) is last_result([tmp_path / "none.log"]) is None


def test_only_an_error_of_anole_explains_a_failure(tmp_path: Path) -> None:
    full, fault, empty = (tmp_path / name for name in ("full.log", "fault.log", "empty.log"))
    full.write_text("12:00:00 conv2d: 1/8\nanole: the disk is full\nKilled\n")
    fault.write_text("12:00:00 says anole: nothing\nSegmentation fault\n\n")
    assert (explanations([full]), explanations([fault, empty])) == (["the disk is full"], [])
    assert failure_summary([full]) == f"the disk is full (see {full})"
    assert failure_summary([fault]) == f"Segmentation fault (see {fault})"
    assert failure_summary([empty]) == f"there is no message (see {empty})"
