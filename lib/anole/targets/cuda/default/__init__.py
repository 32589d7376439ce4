"""The schedule of everything on CUDA that is not tuned."""
