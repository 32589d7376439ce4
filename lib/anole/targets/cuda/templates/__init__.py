"""The tuned programs of CUDA and their spaces."""
