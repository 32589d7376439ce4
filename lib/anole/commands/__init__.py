"""The commands, a file for each section of the help: they read arguments, and import the library only when they run."""
