"""A server that runs jobs one after another, each in a fork in which a chosen system call can fail.

It imports the package only once, which takes far longer than a job. If there is a C compiler, `system_calls.c` is
preloaded. Each line of its input is a job as JSON, and each line of its output is the exit status of a job.
"""

from __future__ import annotations

import ctypes
import gc
import json
import logging
import os
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import click

from anole.__main__ import main
from anole.config import reading  # noqa: F401
from anole.merge import stage  # noqa: F401  (imported once, not in every fork)
from anole.merge.exchange import importing
from anole.store.shard import Shard

from ..record_project import CONV, Project, confirmation_of, run_of, trial_of

LATENCIES_S = (4e-3, None, 2e-3)
"""Latencies of the trials that `append` stores; the second one failed."""

CONFIRMED_S = (2.1e-3, 4.1e-3)
"""Latencies of the confirmations that `append` stores."""

PATIENCE_S = 60
"""Time limit of a job."""

_LOADED = ctypes.CDLL(None)


def acknowledge(what: str) -> None:
    """Report that something is durably stored."""
    os.write(1, f"{what}\n".encode())
    if hasattr(_LOADED, "shim_note"):
        _LOADED.shim_note(what.encode())


@click.command()
@click.argument("shards", type=click.Path(path_type=Path))
def append(shards: Path) -> None:
    """Append the missing trials and confirmations to a shard in SHARDS."""
    with Shard.open(shards, run_of(CONV), CONV) as shard:
        for latency_s in LATENCIES_S[len(shard.trials) :]:
            trial = trial_of(len(shard.trials), latency_s, CONV.workload.flop)
            shard.append_iteration(trial.number, {"steps": 500.0})
            shard.append_trial(trial)
            acknowledge(f"trial {trial.number}")
        for rank, latency_s in enumerate(CONFIRMED_S[len(shard.confirmations) :], start=len(shard.confirmations)):
            shard.append_confirmation(confirmation_of(shard.trials[2 * rank], latency_s, len(shard.trials), rank))
            acknowledge(f"confirmation {rank}")


def do(job: dict[str, Any]) -> None:
    """Run one job in this process, which ends with it.

    A job has the command line's `arguments`, the `folder` below which calls count, and files `output` and `error` for
    its output. To inject a fault, it has the call's `number`, the `fault`, its `errno` and whether it is `lasting`; all
    calls are recorded in the file `record` if given.
    """
    signal.alarm(PATIENCE_S)
    for descriptor, name in ((1, "output"), (2, "error")):
        file = os.open(job[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, descriptor)
    if hasattr(_LOADED, "shim_arm"):
        fault = (job.get("number", 0), job.get("fault", 0), job.get("errno", 0), job.get("lasting", 0))
        record = job.get("record")
        _LOADED.shim_arm(job["folder"].encode(), ctypes.c_long(fault[0]), *fault[1:], record and record.encode())
    main(job["arguments"], prog_name="anole")


def end_of(job: dict[str, Any]) -> int:
    """Run one job, and return its exit status without finalizing the interpreter, which would take longer."""
    try:
        do(job)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def warm_up() -> None:
    """Fill caches once that every fork would otherwise fill."""
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        project = Project(Path(folder))
        project.tune(run_of(CONV), CONV, [1e-3])
        project.merge()
        importing.import_records(project.database, Path(folder) / "here")
    logging.disable(logging.NOTSET)


def serve() -> None:
    """Run the jobs of standard input, each in a fork."""
    warm_up()
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            os._exit(end_of(json.loads(line)))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main.add_command(append)
    if len(sys.argv) > 1:
        do(json.loads(sys.argv[1]))
    serve()
