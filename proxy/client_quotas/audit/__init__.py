"""Counts the changes of quotas, limits their rate, and writes them to the audit log.

log         counts, limits and logs the changes at one proxy
record      formats a line of the audit log
summary     sums up attempts that changed nothing, so that they take one line a second
file        writes the file of the audit log
rate_limit  limits how many entities may be changed in a second
"""
