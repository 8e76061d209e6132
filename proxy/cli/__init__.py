"""The commands of the command line. Each command has a module or a package of its own."""
