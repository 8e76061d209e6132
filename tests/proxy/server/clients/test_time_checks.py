"""Tests the time limits on the login, idle time and age of a connection, over real sockets."""

from kafka_quota_proxy.proxy.server.clients.connection import ClientConnection
from kafka_quota_proxy.proxy.server.server import Server
from tests.proxy.server.clients.test_connection import (
    LIMITED,
    MIB,
    OVER_BYTES,
    answers,
    config_to,
    disconnects,
    ended,
    only_connection,
)
from tests.support.frames import (
    fetch_request,
    fetch_response,
    other_request,
    other_response,
    produce_request,
)
from tests.support.logins import (
    authenticate_request,
    authenticate_response,
    handshake_request,
    handshake_response,
    plain,
)
from tests.support.stub_broker import (
    client_of,
    eventually,
    on_uvloop,
    running,
    stub_broker,
)


def pass_time(server: Server, connection: ClientConnection, time_ms: int) -> None:
    """Check the time limits of a connection as if it had begun ``time_ms`` ago."""
    connection.time_checks.check(connection.time_checks.limits.started_ms + time_ms)


@on_uvloop
async def test_login_timeout_closes_a_client_without_a_request() -> None:
    async with stub_broker(answers) as broker, running(config_to(broker, login_timeout_ms=5_000)) as server:
        async with client_of(server) as silent, client_of(server) as slow, client_of(server) as client:
            await client.ask(other_request())
            await slow.send(other_request()[:9])
            await eventually(lambda: len(server.listeners[0].connections) == 3)
            for connection in tuple(server.listeners[0].connections):
                pass_time(server, connection, 4_999)
            assert disconnects(server) == {}
            for connection in tuple(server.listeners[0].connections):
                pass_time(server, connection, 5_000)

            assert await ended(silent)
            assert await ended(slow)
            assert await client.ask(other_request(2)) == other_response(2)

        await eventually(lambda: disconnects(server).get("login_timeout") == 2)


@on_uvloop
async def test_a_login_has_ended_when_the_broker_accepts_it() -> None:
    ((token, answer),) = plain("alice").tokens
    async with stub_broker() as broker, running(config_to(broker)) as server, client_of(server) as client:
        await client.send(handshake_request("PLAIN"))
        await eventually(lambda: broker.in_use and broker.in_use[0].requests)
        broker.in_use[0].transport.write(handshake_response())
        assert await client.answer() == handshake_response()
        await client.send(authenticate_request(token))
        await eventually(lambda: len(broker.in_use[0].requests) == 2)
        assert not only_connection(server).is_past_login

        broker.in_use[0].transport.write(authenticate_response(answer))

        assert await client.answer() == authenticate_response(answer)
        assert only_connection(server).is_past_login


@on_uvloop
async def test_login_timeout_counts_from_the_answer_of_a_slow_broker() -> None:
    async with (
        stub_broker() as broker,
        running(config_to(broker, login_timeout_ms=5_000)) as server,
        client_of(server) as client,
    ):
        await client.send(handshake_request("PLAIN"))
        await eventually(lambda: broker.in_use and broker.in_use[0].requests)
        connection = only_connection(server)
        pass_time(server, connection, 5_000)
        pass_time(server, connection, 9_000)
        broker.in_use[0].transport.write(handshake_response())
        assert await client.answer() == handshake_response()
        pass_time(server, connection, 10_000)
        pass_time(server, connection, 14_999)
        assert not connection.drain_cause

        pass_time(server, connection, 15_000)

        assert await client.answer() == b""


@on_uvloop
async def test_idle_timeout_closes_a_client_that_stalls_within_a_request() -> None:
    async with (
        stub_broker() as broker,
        running(config_to(broker, idle_timeout_ms=60_000)) as server,
        client_of(server) as client,
    ):
        await client.send(produce_request(size_bytes=10_000)[:5_000])
        await eventually(lambda: broker.in_use and len(broker.in_use[0].received) == 5_000)
        connection = only_connection(server)
        pass_time(server, connection, 10_000)
        pass_time(server, connection, 70_000)

        assert await client.answer() == b""
        assert disconnects(server) == {"idle_timeout": 1}


@on_uvloop
async def test_idle_timeout_spares_a_client_that_reads_slowly_until_it_stops() -> None:
    async with (
        stub_broker(lambda _: fetch_response(size_bytes=64 * MIB)) as broker,
        running(config_to(broker, idle_timeout_ms=60_000)) as server,
        client_of(server) as client,
    ):
        await client.send(fetch_request())
        await eventually(lambda: server.listeners[0].connections)
        connection = only_connection(server)
        for part in range(10):
            await client.reader.readexactly(3 * MIB)
            await eventually(lambda: connection.state.is_client_full)
            pass_time(server, connection, part * 59_000)
            assert disconnects(server) == {}

        pass_time(server, connection, 9 * 59_000 + 60_000)

        assert disconnects(server) == {"idle_timeout": 1}


@on_uvloop
async def test_idle_timeout_spares_a_muted_client() -> None:
    async with (
        stub_broker(answers) as broker,
        running(config_to(broker, LIMITED, idle_timeout_ms=10_000)) as server,
        client_of(server) as client,
    ):
        await client.ask(produce_request(size_bytes=60_000))  # the throttle time is 25 s or more
        connection = only_connection(server)
        muted_for_ms = connection.session.muted_until_ms - connection.time_checks.limits.started_ms
        pass_time(server, connection, 0)
        pass_time(server, connection, muted_for_ms - 1)
        pass_time(server, connection, muted_for_ms)
        pass_time(server, connection, muted_for_ms + 9_999)
        assert disconnects(server) == {}
        assert not connection.drain_cause

        pass_time(server, connection, muted_for_ms + 10_000)

        assert await ended(client)


@on_uvloop
async def test_max_connection_age_closes_between_two_requests() -> None:
    async with (
        stub_broker() as broker,
        running(config_to(broker, max_connection_age_ms=60_000)) as server,
        client_of(server) as client,
    ):
        await client.send(other_request(1))
        await eventually(lambda: broker.in_use and broker.in_use[0].requests)
        connection = only_connection(server)
        pass_time(server, connection, 53_999)
        assert not connection.drain_cause

        pass_time(server, connection, 60_000)
        assert connection.drain_cause
        broker.in_use[0].transport.write(other_response(1))

        assert await client.answer() == other_response(1)
        assert await ended(client)
        client.writer.close()
        await eventually(lambda: disconnects(server) == {"max_connection_age": 1})


@on_uvloop
async def test_max_connection_age_does_not_drop_throttled_requests() -> None:
    async with (
        stub_broker(answers) as broker,
        running(config_to(broker, LIMITED, max_connection_age_ms=60_000)) as server,
        client_of(server) as client,
    ):
        await client.ask(produce_request(1, size_bytes=OVER_BYTES))
        await client.send(other_request(2))
        connection = only_connection(server)
        await eventually(lambda: connection.session.state.blocked_by is not None)
        connection.time_checks.limits.started_ms -= 120_000

        connection.time_checks.check(connection.session.muted_until_ms)

        assert not connection.drain_cause
        assert await client.answer() == other_response(2)
