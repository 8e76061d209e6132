"""Tests faults of several listeners: names, addresses and ports that clash."""

from textwrap import dedent

from tests.config.test_load import faults, loaded, only_fault


def test_two_listeners_need_two_names_and_two_addresses() -> None:
    assert faults(
        """\
        listeners:
          - {name: a, bind: 127.0.0.1:9092, upstream: b:1}
          - {name: a, bind: 127.0.0.1:9093, upstream: b:1}
          - {name: b, bind: 0.0.0.0:9092, upstream: b:1}
        """
    ) == [
        "f.yaml:3: listeners[1].name: 'a' is also the name of the listener in line 2; give each its own",
        "f.yaml:4: listeners[2].bind: 0.0.0.0:9092 is already bound in line 2; "
        "give each listener its own address or port",
    ]


def test_listeners_may_share_port_0_and_a_port_of_two_hosts() -> None:
    found = loaded(
        """\
        listeners:
          - {name: a, bind: 127.0.0.1:0, upstream: b:1}
          - {name: b, bind: 127.0.0.1:0, upstream: b:1}
          - {name: c, bind: 127.0.0.1:9092, upstream: b:1}
          - {name: d, bind: 127.0.0.2:9092, upstream: b:1}
        """
    )

    assert len(found.config.listeners) == 4


def test_listeners_with_one_upstream_need_one_shaping() -> None:
    text = """\
        listeners:
          - {name: a, bind: a:1, upstream: broker:1}
          - {name: b, bind: a:2, upstream: broker:2, shaping: paced}
          - {name: c, bind: a:3, upstream: broker:1, shaping: paced}
        """

    assert only_fault(text) == (
        "f.yaml:4: listeners[2].shaping: the listener in line 2 has shaping sampled and the same upstream, "
        "whose buckets they share; give both the same"
    )
    assert len(loaded(f"{dedent(text)}shaping: paced\n").config.listeners) == 3


def test_ports_of_brokers_may_not_be_used_twice() -> None:
    text = """\
        listeners:
          - {name: one, bind: 127.0.0.1:9192, bootstrap_servers: a:1}
          - {name: two, bind: 127.0.0.1:9192, upstream: b:2}
          - {name: three, bind: 127.0.0.2:9192, bootstrap_servers: a:1}
          - {name: four, bind: 127.0.0.1:9000, bootstrap_servers: a:1, broker_ports: 9250-9400}
        admin: {bind: 0.0.0.0:9200}
        """

    assert faults(text) == [
        "f.yaml:2: listeners[0].broker_ports: 9200 is already bound in line 6; give each its own ports",
        "f.yaml:3: listeners[1].bind: 127.0.0.1:9192 is already bound in line 2; "
        "give each listener its own address or port",
        "f.yaml:4: listeners[2].broker_ports: 9200 is already bound in line 6; give each its own ports",
        "f.yaml:5: listeners[3].broker_ports: 9250-9292 is already bound in line 2; give each its own ports",
    ]


def test_listeners_of_one_cluster_have_one_shaping() -> None:
    fault = only_fault(
        """\
        listeners:
          - {name: one, bind: a:1000, bootstrap_servers: 'x:1,y:2'}
          - {name: two, bind: a:2000, bootstrap_servers: [y:2, x:1], shaping: paced}
        """
    )

    assert "f.yaml:3: listeners[1].shaping: the listener in line 2 has shaping sampled and the same upstream" in fault


# -- TLS --
