"""A world in one process: the real proxy between simulated clients and brokers, with one random seed."""
