"""Reports for people: profiles of builds, this machine's state, and outputs of a build."""
