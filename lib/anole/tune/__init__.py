"""The tune stage: search for the best configs of tasks, and record every trial."""
