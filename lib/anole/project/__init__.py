"""What models.yaml means on this machine: files, runs, and what is left to do."""
