"""The commands of the command line, with a module for each. The modules hold little logic of their own."""
