"""Counts the changes of quotas, limits their rate, and writes them to the audit log.

log         counts and limits the changes that administrators make at one proxy, and writes them to the audit log
record      formats a line of the audit log
file        writes the file of the audit log
rate_limit  limits how many entities may be changed in a second, and how many lines attempts may add
"""
