"""The commands of the command line, each in a module of its own. Most of the logic is in the package ``pipeline``."""
