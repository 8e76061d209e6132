"""A prototype of several worker processes that share buckets: README.md."""
