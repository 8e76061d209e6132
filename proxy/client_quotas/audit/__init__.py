"""Changes of quotas are counted, limited in rate, and written to the audit log.

log         the counts, the limit and the audit log of one proxy
record      a line of the audit log; ``summary``: one line a second for attempts that changed nothing
file        the file of the audit log
rate_limit  how many entities may be changed in a second
"""
