"""The tuned programs of the CPU and their spaces."""
