"""The commands, one file per section of the help; they import the library only when they run."""
