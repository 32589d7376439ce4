"""The project that a models.yaml describes on this machine: its files, runs and remaining jobs."""
