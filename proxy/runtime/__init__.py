"""Contains errors and leaves the event loop, for all rooms of the proxy.

isolation    logs and counts the unexpected error of a task or callback, so that the process can go on
in_thread    runs blocking calls in threads
disk_access  finds out why a path cannot be written, and locks files
processes    runs programs that end with this process, each under a guard; ports chooses ports for them
build        says which version this is, and whether it is compiled
"""
