"""A project on this machine: the files, runs and remaining jobs that follow from its models.yaml."""
