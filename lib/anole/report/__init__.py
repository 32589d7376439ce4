"""What people look at: profiles, this machine's state, outputs of a build."""
