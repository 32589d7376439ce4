"""The tune stage: searches the best configs of tasks and records every trial."""
