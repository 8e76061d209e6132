"""Does the simulation bite? Each break of the proxy must be found: ``python -m tests.simulation.bites``."""
