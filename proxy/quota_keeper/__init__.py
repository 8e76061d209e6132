"""Where quotas that are administered here are kept: what a desk (``proxy.quota_desk``) has decided, it hands to one.

keeper       what a desk asks of it
directory    one on a disk of this proxy's own
"""
