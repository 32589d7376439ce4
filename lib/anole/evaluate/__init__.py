"""The evaluate stage: checks that builds are correct, and measures how fast they are."""
