"""The command line: thin commands over the same pure code that the processes run."""
