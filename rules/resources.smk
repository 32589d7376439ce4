"""The resources of jobs: what measures has its device for itself, and a cluster knows where a job can run."""

from anole.project.needs import limits_of, needs_of, node_resources

# Candidates must not be timed in parallel. These are defaults; a profile or the command line may raise them.
for resource, limit in limits_of(pipeline).items():
    workflow.global_resources.setdefault(resource, limit)


# Every machine has its own devices: on a cluster, each submitted job counts for itself.
resource_scopes:
    device="local",
    gpu="local",


def is_on_cluster():
    """Returns whether this process submits jobs to a cluster, or is one of these jobs."""
    return workflow.non_local_exec or workflow.remote_exec


def needs(wildcards):
    """What a job for a target, a build or a run takes while it measures."""
    cores = None if is_on_cluster() else workflow.cores
    return needs_of(pipeline, target_of(wildcards), cores)


def cores(wildcards):
    return needs(wildcards).threads


def device(wildcards):
    return needs(wildcards).device


def gpu(wildcards):
    return needs(wildcards).gpu


def measure(wildcards):
    return needs(wildcards).measure


def tuning_group(wildcards):
    """The jobs that a cluster may run one after another in one submission (`--group-components`)."""
    return f"tune_{target_of(wildcards)}" if is_on_cluster() else None


def on_node(name):
    """Returns an input function for a resource by which a cluster chooses the node of a target."""
    return lambda wildcards: node_resources(pipeline, target_of(wildcards)).get(name)


def slurm_extra(wildcards):
    """What measures on a processor has its node for itself."""
    given = node_resources(pipeline, target_of(wildcards)).get("slurm_extra", "")
    whole = is_on_cluster() and needs(wildcards).device
    return f"{given} --exclusive".strip() if whole else given or None


# The resources of every job that needs a node which is its target.
NODE = {
    name: on_node(name)
    for target in pipeline.spec.targets
    for name in node_resources(pipeline, target)
} | {"slurm_extra": slurm_extra}


def memory_mb(base_mb):
    """Returns a function for the memory of a job, which doubles when the job is tried again.

    The bases are a little more than what a network of 500 MB needs.
    """
    return lambda wildcards, attempt: base_mb * 2 ** (attempt - 1)
