"""The command ``top``, which shows the clients of a running proxy: who is throttled now, by which rule, and since when.

command     reads the arguments, and prints the clients once, or shows them on a terminal until the user quits
poller      asks the proxy in a thread
view        decides what is shown: order, filter, selection
screen      describes the table, and the details of one client, as lines of text
terminal    draws the lines, and reads the keys that the user presses
"""
