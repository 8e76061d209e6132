"""Which quota holds for a client, at which of the eight levels, and why not another. No I/O, no clock.

model       what there is to say, as values
resolution  what holds, found by the code that runs in the proxy
shown       what both forms show of a rule
json_form   for scripts
text        for people
hints       what was not asked, and who knows
"""
