"""The commands, one file each: they read arguments and call the library, which they import only when they run."""
