"""CUDA's templates and their spaces."""
