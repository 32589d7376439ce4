"""The commands, a file for each section of the help: they read arguments and call the library, imported only then."""
