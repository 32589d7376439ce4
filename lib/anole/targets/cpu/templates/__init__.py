"""CPU templates and their spaces."""
