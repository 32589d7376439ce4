"""After failures, merge the existing results and list the builds that were left out, with the reasons."""

import atexit
from subprocess import CalledProcessError

from anole.documents.log import explanations, failure_summary


def left_out(failed):
    """Yield a line on a failed job, or on each failed job of a group: the waiting builds, and the message in the log.

    Snakemake discards the outputs of a group's other jobs, too, so all builds that wait for the group are left out.
    """
    group = list(getattr(failed, "jobs", [failed]))
    waiting = {
        job.wildcards.build
        for job in workflow.dag.bfs(workflow.dag.depending, *group)
        if hasattr(job.wildcards, "build")
    }
    builds = ", ".join(name for name in pipeline.spec.builds if name in waiting)
    failures = [job for job in group if explanations(map(Path, job.log))] or group
    for job in sorted(failures, key=str):
        reason = f"{job.rule.name} failed: {failure_summary([*map(Path, job.log)])}"
        yield f"anole: left out: {builds}: {reason}" if builds else f"anole: {reason}"


def merge_what_exists():
    """Merge the results of a run that finished everything except failed jobs and their dependents."""
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
            yield f"anole: merge failed: {failure_summary([*map(Path, job.log)])}"


onerror:
    failed = sorted(workflow.scheduler.failed, key=str)
    lines = [
        *merge_what_exists(),
        *(line for job in failed for line in left_out(job)),
    ]
    # Snakemake prints further lines after this handler.
    atexit.register(
        lambda: print(*lines, sep="\n", file=sys.stderr) if lines else None
    )
