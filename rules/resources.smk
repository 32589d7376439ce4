"""The resources of jobs: what measures has its device for itself, and a cluster knows where a job can run."""

from anole.project.job_resources import limits_of

# Candidates must not be timed in parallel. These are defaults; a profile or the command line may raise them.
for resource, limit in limits_of(pipeline).items():
    workflow.global_resources.setdefault(resource, limit)


# Every machine has its own devices: on a cluster, each submitted job counts for itself.
resource_scopes:
    device="local",
    gpu="local",


# The resources of every job that needs a node which is its target.
NODE = answers.node()


def memory_mb(base_mb):
    """Returns a function for the memory of a job, which doubles when the job is tried again.

    The bases are a little more than what a network of 500 MB needs.
    """
    return lambda wildcards, attempt: base_mb * 2 ** (attempt - 1)
