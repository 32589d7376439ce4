"""The resources of jobs, which reserve devices for measurements and choose a cluster's nodes."""

from anole.project.job_resources import resource_limits

# Candidates must not be timed in parallel. These are defaults; a profile or the command line may raise them.
for resource, limit in resource_limits(pipeline).items():
    workflow.global_resources.setdefault(resource, limit)


# Every machine has its own devices, so on a cluster the limits apply to each submitted job.
resource_scopes:
    device="local",
    gpu="local",


# The resources of jobs that require a node with their target.
NODE = rule_inputs.node()


def memory_mb(base_mb):
    """Return a function for the memory of a job, which doubles at each retry.

    The base values are slightly more than a network of 500 MB takes.
    """
    return lambda wildcards, attempt: base_mb * 2 ** (attempt - 1)
