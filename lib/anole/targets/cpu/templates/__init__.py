"""The CPU's templates and their spaces."""
