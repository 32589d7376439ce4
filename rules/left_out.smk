"""After failures: merges what exists, and lists in the last lines what was left out and why."""

import atexit
import os
from subprocess import CalledProcessError


def left_out(job):
    """One line on a failed job: the builds that wait for it, and the message of its log."""
    waiting = {
        each.wildcards.build
        for each in workflow.dag.bfs(workflow.dag.depending, job)
        if hasattr(each.wildcards, "build")
    }
    builds = ", ".join(name for name in pipeline.spec.builds if name in waiting)
    reason = f"{job.rule.name} failed: {_message(job.log)}"
    return f"anole: left out: {builds}: {reason}" if builds else f"anole: {reason}"


def _message(logs):
    """The last message of Anole in a job's log, or else the last line."""
    lines = [
        line
        for log in map(Path, logs)
        if log.exists()
        for line in log.read_text(errors="replace").splitlines()
    ]
    ours = [
        line.removeprefix("anole: ") for line in lines if line.startswith("anole: ")
    ]
    last = (
        ours or [line for line in lines if line.strip()] or ["there is no message"]
    )[-1]
    return f"{last} (see {', '.join(logs)})"


def failed_jobs():
    """The jobs that failed; of those that a cluster ran as a group, the ones without their output."""
    for job in workflow.scheduler.failed:
        of_group = getattr(job, "jobs", [job])
        yield from [
            each
            for each in of_group
            if each is job or not all(map(os.path.exists, each.output))
        ]


def merge_what_exists():
    """Merges the results of a run that has done all it could, although not all that it was asked for."""
    merges = [
        job
        for job in workflow.dag.needrun_jobs()
        if layout.MERGED in map(Path, job.output)
    ]
    scheduler = workflow.scheduler
    is_over = scheduler.keepgoing and not (scheduler.running or scheduler.open_jobs)
    if (
        not is_over
        or not layout.SHARDS.is_dir()
        or scheduler.failed.intersection(merges)
    ):
        return
    for job in merges:
        try:
            shell(
                "{job.params.anole} merge {job.params.builds} --shards db/shards --database db/tuning.sqlite 2> {job.log}"
            )
        except CalledProcessError:
            yield f"anole: merge failed: {_message(job.log)}"


onerror:
    failed = sorted(failed_jobs(), key=str)
    lines = [*merge_what_exists(), *map(left_out, failed)]
    # Snakemake has lines of its own to print after this handler.
    atexit.register(
        lambda: print(*lines, sep="\n", file=sys.stderr) if lines else None
    )
