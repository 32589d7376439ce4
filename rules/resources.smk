"""The resources of jobs, which reserve devices for measurements and choose a cluster's nodes."""

from anole.project.job_resources import resource_limits

# Candidates must not be timed in parallel. A profile or the command line may raise these default limits.
for resource, limit in resource_limits(pipeline).items():
    workflow.global_resources.setdefault(resource, limit)


# Every machine has its own devices, so on a cluster the limits apply to each submitted job.
resource_scopes:
    device="local",
    gpu="local",


# The resources of jobs that require a node with their target.
NODE = rule_inputs.node()


def memory_mb(base_mb):
    """Return a function that returns the memory of a job, which doubles at each retry.

    The base values suffice for a network of 500 MB.
    """
    return lambda wildcards, attempt: base_mb * 2 ** (attempt - 1)
