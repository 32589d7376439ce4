"""The evaluation of builds: whether they are right, and how fast they are."""
