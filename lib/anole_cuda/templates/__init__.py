"""CUDA templates and their spaces."""
