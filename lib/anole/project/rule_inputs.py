"""Input functions, parameters and resources for the rules of the workflow, by a job's wildcards."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from shlex import quote
from typing import Any, NoReturn, Protocol

from anole.codec import encode
from anole.config.entries import BuildSpec
from anole.documents import layout
from anole.documents.document import as_argument
from anole.documents.manifest import network_path
from anole.errors import AnoleError
from anole.extract.stage import extract_versions
from anole.files import write_atomically
from anole.keys import canonical_json, content_key
from anole.project.hardware import hardware_request, is_detected_on_nodes
from anole.project.job_resources import JobResources, node_resources, resources_of
from anole.project.pipeline import Pipeline
from anole.project.quantized_models import model_for_target
from anole.search.settings import TunerSettings


class Wildcards(Protocol):
    """The wildcards of a job, which has only those in the file names of its rule.

    Attributes:
        task, run: content keys.
        key: the content key of a shared budget.
    """

    model: str
    target: str
    build: str
    accelerator: str
    task: str
    run: str
    key: str


class Workflow(Protocol):
    """Snakemake's workflow; the last two attributes state whether this process submits cluster jobs, or is one."""

    dryrun: bool
    cores: int | None
    non_local_exec: bool
    remote_exec: bool


def exit_with_error(error: object) -> NoReturn:
    """Exit Snakemake with a one-line message."""
    print(f"anole: {error}", file=sys.stderr)
    raise SystemExit(2)


class RuleInputs:
    """The methods that rules use; those that take wildcards return inputs, parameters or resources.

    Args:
        load: reads the project; it is called again after a node has described a target.
        wait_for_target: returns if the job that describes a target is done; otherwise it makes Snakemake retry later.
        wait_for_model: the same for the job that extracts a model for a target.
        overrides: the values of ``--config``, which override models.yaml.
    """

    def __init__(
        self,
        load: Callable[[], Pipeline],
        workflow: Workflow,
        wait_for_target: Callable[[str], object],
        wait_for_model: Callable[[str, str], object],
        overrides: Mapping[str, Any],
    ) -> None:
        self.pipeline = load()
        self._load, self._workflow, self._overrides = load, workflow, overrides
        self._wait_for_target, self._wait_for_model = wait_for_target, wait_for_model
        self._builds_of_runs: dict[str, BuildSpec] = {}
        self._receipts: dict[str, list[Path]] = {}

    def target_of(self, job: Wildcards) -> str:
        """Return the target of a job, or of the job's build or run."""
        if hasattr(job, "target"):
            return job.target
        return (self.build_of(job) if hasattr(job, "build") else self.build_of_run(job.task, job.run)).target

    def build_of(self, job: Wildcards) -> BuildSpec:
        """Return the build of a job."""
        return self.pipeline.spec.builds[job.build]

    def build_of_run(self, task_key: str, run_key: str) -> BuildSpec:
        """Return a build with a run's tuner and seed, and its task's target; raise KeyError if there is none."""
        if run_key not in self._builds_of_runs:
            # The first build with the run's tuner, but builds whose manifests list the task are before all others.
            for build in sorted(self.pipeline.spec.tuned, key=lambda each: not self._has_task(each, task_key)):
                self._builds_of_runs.setdefault(self.pipeline.run(build, task_key).key, build)
        return self._builds_of_runs[run_key]

    def _has_task(self, build: BuildSpec, task_key: str) -> bool:
        try:
            return task_key in self.pipeline.read_manifest(build.model, build.target).weights
        except AnoleError:
            return False

    def model_files(self, job: Wildcards) -> list[Path]:
        """Return the model's files; if one changes, the model is extracted again."""
        return self.pipeline.files(job.model, job.target)

    def own_files(self, job: Wildcards) -> list[Path]:
        """Return the files of the model itself, before it is quantized."""
        return self.pipeline.files(job.model)

    def digest(self, job: Wildcards) -> str:
        """Return the option for the digest of the model's own files; empty for a model without files."""
        digest = self.pipeline.digest(job.model)
        return "" if digest is None else f"--files {digest}"

    def own_entry(self, job: Wildcards) -> str:
        """Return the model's entry in models.yaml."""
        return self._argument(self.pipeline.spec.models[job.model].to_json())

    def description_file(self, job: Wildcards) -> str | list[str]:
        """Return the path of the target's description, if only a node can detect it."""
        target = self.pipeline.spec.targets[self._await_description(job.target)]
        return str(layout.described_path(target.name)) if is_detected_on_nodes(target) else []

    def requested_hardware(self, job: Wildcards) -> str:
        """Return the target's hardware as given in models.yaml."""
        return self._argument(hardware_request(self.pipeline.spec.targets[job.target]))

    def model_entry(self, job: Wildcards) -> str:
        """Return the entry of the model, or of its quantized file."""
        return self._argument(model_for_target(self.pipeline.spec, job.model, job.target).to_json())

    def target_description(self, job: Wildcards) -> str:
        """Return everything that identifies the target."""
        return self._argument(self.pipeline.description(self._await_description(job.target)))

    def versions(self, job: Wildcards) -> str:
        """Return the versions of the extraction and of the target's templates."""
        return canonical_json(extract_versions(self.pipeline.description(self._await_description(job.target))))

    def tuner_settings(self, job: Wildcards) -> str:
        """Return the tuner of a run or of a shared budget."""
        return self._argument(self.tuner_of(job)[0].to_json())

    def tuner_seed(self, job: Wildcards) -> int:
        """Return the seed of a run or of a shared budget."""
        return self.tuner_of(job)[1]

    def tuner_of(self, job: Wildcards) -> tuple[TunerSettings, int]:
        """Return the tuner's settings and seed, of a run or of a shared budget."""
        build = self._build_of_budget(job) if hasattr(job, "key") else self.build_of_run(job.task, job.run)
        return self.pipeline.tuners[build.name], build.seed

    def seconds(self, job: Wildcards) -> str:
        """Return the option for the time limit of a shared budget; empty without a limit."""
        seconds = self._build_of_budget(job).budget.seconds
        return "" if seconds is None else f"--seconds {seconds}"

    def build_files(self, job: Wildcards) -> list[Path]:
        """Return the files of a build's model."""
        build = self.build_of(job)
        return self.pipeline.files(build.model, build.target)

    def build_order(self, job: Wildcards) -> str:
        """Return the order of a build."""
        build = self.build_of(job)
        self._await_description(build.target)
        return self._argument(as_argument(self.pipeline.order(build)))

    def required_option(self, job: Wildcards) -> str:
        """Return ``--required`` for stages that measure a build, unless its target is known to be absent."""
        return "" if self.build_of(job).target in self.pipeline.absences else "--required"

    def manifest(self, job: Wildcards) -> Path:
        """Return the manifest of a build's model and target."""
        return self.pipeline.manifest(self.build_of(job))

    def network(self, job: Wildcards) -> Path:
        """Return the imported network of a build's model for its target."""
        return network_path(self.manifest(job))

    def spec_options(self, job: Wildcards) -> str:
        """Return the options for the models.yaml of a build's model, with the overrides that determine the model."""
        values = {name: self._overrides[name] for name in ("models", "targets") if name in self._overrides}
        overrides = f" --overrides {self._argument(values)}" if values else ""
        return f"--spec {quote(self.pipeline.spec.file)}{overrides}"

    def receipts(self, job: Wildcards) -> list[Path]:
        """Return the receipts of a build's tasks, except locked tasks."""
        return self._build_receipts(self.build_of(job))

    def ingredients(self, job: Wildcards) -> str | list[Path]:
        """Return the receipts to compile a build with: the refined receipts if the build is refined."""
        receipts = self.receipts(job)
        return str(layout.refined_path(job.build)) if self.candidates(job) else receipts

    def candidates(self, job: Wildcards) -> int:
        """Return the number of candidates per task to try within a build's network; 0 if the build is not refined."""
        return self.pipeline.candidates(self.build_of(job))

    def receipts_of(self, build: BuildSpec) -> Callable[[Wildcards], list[Path]]:
        """Return an input function for the receipts of one build, so a broken model blocks only its own builds."""
        return lambda _: self._build_receipts(build)

    def search_receipts(self, job: Wildcards) -> list[Path]:
        """Return the receipts of the exhaustive searches for an accelerator."""
        searches = self.pipeline.spec.accelerators[job.accelerator].searches
        return list(dict.fromkeys(receipt for search in searches for receipt in self._build_receipts(search)))

    def accelerator_order(self, job: Wildcards) -> str:
        """Return the order of an accelerator."""
        accelerator = self.pipeline.spec.accelerators[job.accelerator]
        return self._argument(encode(self.pipeline.accelerator_order(accelerator)))

    def needs(self, job: Wildcards) -> JobResources:
        """Return the resources of a job that measures."""
        return resources_of(self.pipeline, self.target_of(job), None if self._on_cluster else self._workflow.cores)

    def need(self, name: str) -> Callable[[Wildcards], int | str]:
        """Return the function for one field of `JobResources`."""
        return lambda job: getattr(self.needs(job), name)

    def tuning_group(self, job: Wildcards) -> str | None:
        """Return the group of jobs that a cluster may run in one submission (`--group-components`)."""
        return f"tune_{self.target_of(job)}" if self._on_cluster else None

    def node(self) -> Mapping[str, Callable[[Wildcards], str | int | None]]:
        """Return the functions for the resources that choose a node for a job's target."""
        names = {name for target in self.pipeline.spec.targets for name in node_resources(self.pipeline, target)}
        return {name: self._node_resource(name) for name in sorted(names)} | {"slurm_extra": self._slurm_extra}

    def _node_resource(self, name: str) -> Callable[[Wildcards], str | int | None]:
        return lambda job: node_resources(self.pipeline, self.target_of(job)).get(name)

    def _slurm_extra(self, job: Wildcards) -> str | None:
        """Return Slurm's options for a job; jobs that measure on the CPU get a node to themselves."""
        options = str(node_resources(self.pipeline, self.target_of(job)).get("slurm_extra", ""))
        is_exclusive = self._on_cluster and self.needs(job).device
        return f"{options} --exclusive".strip() if is_exclusive else options or None

    @property
    def _on_cluster(self) -> bool:
        return self._workflow.non_local_exec or self._workflow.remote_exec

    def _await_description(self, target: str) -> str:
        """Return a target's name after a node has described it, if only nodes can detect it."""
        if target in self.pipeline.undescribed:
            self._wait_for_target(target)
            self.pipeline = self._load()
        return target

    def _build_of_budget(self, job: Wildcards) -> BuildSpec:
        """Return a build with the shared budget of a job."""
        weights = self.pipeline.read_manifest(job.model, job.target).weights
        for build in self.pipeline.spec.builds.values():
            if build.budget.shared and (build.model, build.target) == (job.model, job.target):
                if self.pipeline.shared_key(build, weights) == job.key:
                    return build
        raise KeyError(job.key)

    def _build_receipts(self, build: BuildSpec) -> list[Path]:
        """Return a build's receipts, which are known once its model is extracted; until then Snakemake retries."""
        if build.name not in self._receipts:
            self._await_description(build.target)
            self._wait_for_model(build.model, build.target)
            try:
                self._receipts[build.name] = self.pipeline.receipts(build)
            except AnoleError as error:
                exit_with_error(error)
        return self._receipts[build.name]

    def _argument(self, plain: Mapping[str, Any]) -> str:
        """Write an argument, which may be too long for a command line, to a file, and return ``@path``.

        A dry run writes nothing. A different order of an object's keys gives a different file.
        """
        text = json.dumps(plain, ensure_ascii=False, allow_nan=False)
        path = layout.argument_path(content_key(text))
        if not self._workflow.dryrun:
            write_atomically(path, text)
        return f"@{path}"
