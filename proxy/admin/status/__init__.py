"""The status page at ``/`` of the admin port, and the events at ``/clients/stream`` that keep it up to date.

event_streams   sends each event to all open pages, on the event loop
document        reads what the page shows, in a thread: once for all open pages; serves the page's files
sections        reads the page's sections about brokers, the file, changes of quotas, queues and replication
"""
