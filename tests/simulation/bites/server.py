"""Breaks of the server: connections, listeners, dials, drains and reloads."""

# ruff: noqa: E501 - whole lines of the product are quoted

from typing import Final

from tests.simulation.bites.model import Break

_CONNECTION: Final = "proxy/server/connection.py"
_RELAY: Final = "proxy/server/relay.py"
_LIMITS: Final = "proxy/server/connection_limits.py"

SERVER: Final = (
    Break(
        "What a client sends before the broker is reached is lost",
        _CONNECTION,
        '        self.listener.broker_count += 1\n        self._run(self.session.connect_broker, "client")\n',
        '        self.listener.broker_count += 1\n        self.state.to_broker.clear()\n        self._run(self.session.connect_broker, "client")\n',
    ),
    Break(
        "A client is read on while the broker's buffer is full",
        _CONNECTION,
        "                reads_client=not (is_blocked or transports.is_broker_full or self._dial is not None),\n",
        "                reads_client=not (is_blocked or self._dial is not None),\n",
    ),
    Break(
        "A broker is read on while the client's buffer is full",
        _CONNECTION,
        "                reads_broker=not (transports.is_client_full or state.delayed_until_ms),\n",
        "                reads_broker=not state.delayed_until_ms,\n",
    ),
    Break(
        "A client is not read again after its buffer was full",
        _CONNECTION,
        "        self.session.resume_answers()\n        self.take_turn()\n",
        "        self.session.resume_answers()\n",
    ),
    Break(
        "The timer of a waiting request is not set",
        _CONNECTION,
        "                self._arm(wake_at_ms, now_ms)\n",
        "                pass\n",
    ),
    Break(
        "A connection that ends leaves its timer behind",
        _CONNECTION,
        "        self.time_checks.cancel()\n        if self._timer is not None:\n            self._timer.cancel()\n",
        "        self.time_checks.cancel()\n",
    ),
    Break(
        "A closed connection stays in its listener's set",
        _CONNECTION,
        "        self.listener.remove(self)\n",
        "",
    ),
    Break(
        "A client that has closed its side gets no more responses",
        _CONNECTION,
        "        self.end_paused_client()\n        return not self.is_closed\n",
        "        self.end_paused_client()\n        return False\n",
    ),
    Break(
        "A broker that is lost leaves the client waiting",
        _CONNECTION,
        '        self._forget_broker()\n        self.close(cause_of_loss("upstream", exc))\n',
        "        self._forget_broker()\n",
    ),
    Break(
        "A dial that fails leaves the client waiting",
        _CONNECTION,
        "        self._dial = None\n        self.close(cause)\n",
        "        self._dial = None\n",
    ),
    Break(
        "A client that leaves counts on as open",
        _CONNECTION,
        "        if self.counted is not None:\n            self.counted.leave()\n        if not self.is_closed:\n",
        "        if not self.is_closed:\n",
    ),
    Break(
        "A drain closes connections in the middle of a request",
        _CONNECTION,
        "        self.session.drain()\n        self.flush(now_ms)\n",
        "        self.close(cause)\n",
    ),
    Break(
        "A drain waits for ever for clients that are idle",
        _CONNECTION,
        "            elif (self._has_client_ended or self.drain_cause) and not state.to_broker and self._half_closed is None:\n",
        "            elif self._has_client_ended and not state.to_broker and self._half_closed is None:\n",
    ),
    Break(
        "A dial that ends does not start the next one",
        "proxy/server/broker_dialer.py",
        "        queue.running.pop(dial, None)\n        self._start_queued(queue)\n",
        "        queue.running.pop(dial, None)\n",
    ),
    Break(
        "A dial that gets no answer never ends",
        "proxy/server/broker_dialer.py",
        "_DIAL_TIMEOUT_S: Final = 10.0\n",
        "_DIAL_TIMEOUT_S: Final = 1e9\n",
    ),
    Break(
        "An address keeps its count of connections after they end",
        _LIMITS,
        "            count = self._by_host[host] - 1\n            if count:\n",
        "            count = self._by_host[host]\n            if count:\n",
    ),
    Break(
        "A listener accepts one connection above its limit",
        _LIMITS,
        "        if maximum is not None and self.total >= maximum:\n",
        "        if maximum is not None and self.total > maximum:\n",
    ),
    Break(
        "A connection that is idle is never closed",
        _LIMITS,
        "            return IDLE_TIMEOUT\n        return MAX_CONNECTION_AGE",
        "            return None\n        return MAX_CONNECTION_AGE",
    ),
    Break(
        "The timer wheel skips a second",
        _LIMITS,
        "        for slot in range(self._next, now + 1):\n",
        "        for slot in range(self._next + 1, now + 1):\n",
    ),
    Break(
        "A connection that is kept for its charge is never given back",
        "proxy/server/orphaned_connections.py",
        "        elif self._unanswered.is_done:\n            self.end(ANSWERED)\n",
        "",
    ),
    Break(
        "A client that is half-closed is never given up",
        "proxy/server/half_close.py",
        "        if waits == 0 or not self._client.get_write_buffer_size():\n",
        "        if False:\n",
        theme="drains",
    ),
    Break(
        "A reloaded file is in force for new listeners only",
        "proxy/server/server.py",
        "        self.brokers.update({listener.name: listener for listener in config.listeners}, file.changed, config)\n",
        "",
    ),
    Break(
        "A file with an error empties the rules",
        "proxy/server/config_reloader.py",
        '            message = f"{self._path} is not valid: the configuration stays unchanged"\n',
        "            raise\n",
    ),
    Break(
        "A paused client that has gone is never noticed",
        "proxy/server/sweeps.py",
        "        paused[descriptor].abort_client()\n",
        "        pass\n",
    ),
    Break(
        "Memory is not bounded",
        "proxy/server/sweeps.py",
        "        if resident_bytes() < maximum_bytes:\n",
        "        if maximum_bytes:\n",
    ),
    Break(
        "A listener that was paused stays paused",
        "proxy/server/acceptor.py",
        "        self._resume_timer = None\n        self._loop.add_reader(self._bound, self._take)\n",
        "        self._resume_timer = None\n",
    ),
    Break(
        "The connection that has paused a listener is forgotten",
        "proxy/server/acceptor.py",
        "            self._held = arrival\n",
        "",
    ),
    Break(
        "A broker that has moved is still dialled where it was",
        "proxy/server/cluster_listeners.py",
        "                self._registry.move(known, address)\n",
        "                pass\n",
    ),
    Break(
        "A broker that joins gets no port",
        "proxy/server/cluster_listeners.py",
        "        for node_id, address in changes.joined.items():\n            self._open(node_id, address)\n",
        "",
    ),
    Break(
        "Bytes that a full socket does not take of a spliced body are lost",
        _RELAY,
        "                peer.transport.write(sockets.take_spliced(count - sent))\n",
        "                sockets.take_spliced(count - sent)\n",
    ),
    Break(
        "A relay hands over a request that has to wait twice",
        _RELAY,
        "                connection.request_ns = monotonic_ns() - started_ns\n                return at + len(head)\n",
        "                connection.request_ns = monotonic_ns() - started_ns\n                return at\n",
    ),
    Break(
        "Bytes that a relay has read after a request that has to wait are lost",
        _RELAY,
        "            connection.data_received(self.sockets.part(at, count))\n",
        "            pass\n",
    ),
)
