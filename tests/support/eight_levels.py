"""A configuration file for the tests of ``explain``.

It has rules at some of Kafka's eight levels of quotas, two listeners, and names that are folded into one principal.
"""

CONFIG = """\
listeners:
  - {name: clients, bind: 127.0.0.1:9092, upstream: 127.0.0.1:19092}
  - {name: shadow, bind: 127.0.0.1:9093, upstream: 127.0.0.1:19093, enforcement: observe, shaping: paced}
max_throttle_time: 5s
burst: 2s
kafka: {quota.consumer.default: 2MB}
quotas:
  - {user: alice, client-id: etl, producer_byte_rate: 10MiB, consumer_byte_rate: 20MiB}
  - {user: alice, client-id: <default>, producer_byte_rate: 5MiB}
  - {user: <default>, producer_byte_rate: 1MiB, enforcement: delay}
  - {client-id: etl, producer_byte_rate: 3MiB}
principals: {fold: [{match: 'alice-[0-9]+', to: alice}], exempt: [admin]}
"""
