"""A section that lists the builds of models.yaml that are skipped, failed or not done, and why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from anole.config.entries import BuildSpec
from anole.documents import layout
from anole.documents.build import FILE
from anole.documents.evaluation import read_evaluation
from anole.documents.log import explanations
from anole.errors import AnoleError
from anole.project.pipeline import Pipeline
from anole.report.pages.figure import Figure, MissingData, ReportSource, Section, Shown, Table
from anole.text_format import pluralize

_QUESTION = "Which builds are skipped, failed or not done, and why?"


def _builds(source: ReportSource) -> Shown:
    if source.spec is None:
        return MissingData(
            _QUESTION, "there is no models.yaml in this folder; run the command in the project's folder."
        )
    try:
        pipeline = Pipeline.load(source.spec)
    except AnoleError as error:
        return MissingData(_QUESTION, f"the project cannot be loaded on this machine: {error}")
    merged_builds = {name for (name,) in source.database.query("select name from build").rows}
    rows = [(name, "skipped", reason) for name, reason in pipeline.skipped.items()]
    for build in pipeline.spec.builds.values():
        rows += _unfinished_stage(pipeline, build, merged_builds)
    if not rows:
        return MissingData(
            _QUESTION, f"none: all {pluralize(len(pipeline.spec.builds), 'build')} in models.yaml are done."
        )
    return Figure(
        _QUESTION,
        "",
        f"{pluralize(len(rows), 'build')} of {len(pipeline.spec.builds) + len(pipeline.skipped)} in models.yaml.",
        "from models.yaml, the files of this folder and the last message of each stage's log, as of this report. "
        "`anole plan` shows the remaining jobs.",
        (),
        Table.of(("build", "stage", "why"), rows),
        headline=f"{pluralize(len(rows), 'build')} of models.yaml not done: {', '.join(name for name, *_ in rows[:3])}"
        + (" and more." if len(rows) > 3 else "."),
    )


def _unfinished_stage(pipeline: Pipeline, build: BuildSpec, merged_builds: set[str]) -> Iterator[tuple[str, str, str]]:
    """Yield the first unfinished stage of a build, if any, and why."""
    folder, name = pipeline.project, build.name
    stages = {
        "extract": (pipeline.manifest(build), f"{build.model}-{build.target}"),
        **({"refine": (layout.refined_path(name), name)} if pipeline.candidates(build) else {}),
        "compile": (layout.build_path(name) / FILE, name),
        "evaluate": (layout.evaluation_path(name), name),
    }
    for stage, (output, log) in stages.items():
        if not (folder / output).exists():
            errors = explanations([folder / "logs" / stage / f"{log}.log"])
            yield name, stage, errors[-1] if errors else _waiting_reason(pipeline, build, stage)
            return
    try:
        absence = read_evaluation(folder / layout.evaluation_path(name)).absence
    except AnoleError as error:
        absence = str(error)
    if absence is not None:
        yield name, "evaluate", absence
    elif name not in merged_builds:
        yield name, "merge", "it is not in the database; `anole merge` adds it"


def _waiting_reason(pipeline: Pipeline, build: BuildSpec, stage: str) -> str:
    """Return why a stage without an error message has not run."""
    if stage == "extract":
        return "not done yet"
    try:
        receipts = [path for path in pipeline.receipts(build) if not (pipeline.project / path).exists()]
    except AnoleError as error:
        return str(error)
    if not receipts:
        return "not done yet"
    errors = (explanations([pipeline.project / _log_of(receipt)]) for receipt in receipts)
    cause = next((f": {messages[-1]}" for messages in errors if messages), "")
    return f"{pluralize(len(receipts), 'tuning job')} left{cause}"


def _log_of(receipt: Path) -> Path:
    """Return the log of the job that writes a receipt, as `rules/tune.smk` names it."""
    _, folder, *names = receipt.with_suffix(".log").parts
    return Path("logs/tune", *names) if folder == "tuned" else Path("logs/tune_together", "-".join(names))


SECTION = Section("held_back", _QUESTION, "deployment", lambda source: [_builds(source)])
