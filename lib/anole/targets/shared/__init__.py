"""Code shared by the templates of several targets."""
