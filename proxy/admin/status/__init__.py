"""The status page at ``/`` of the admin port, and the events at ``/clients/stream`` that keep it up to date.

page            serves the page's files, which are beside this module
event_streams   sends each event to all open pages, on the event loop
document        reads what the page shows, in a thread: once for all open pages
verdict         says in one sentence whether the proxy is well
sections        reads the page's sections about brokers, the configuration file, changes of quotas and queues
replication     reads the section about throttled replication
"""
