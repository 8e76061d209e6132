"""The command line: one module a command, all of them thin."""
