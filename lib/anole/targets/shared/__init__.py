"""What the templates of several targets share."""
