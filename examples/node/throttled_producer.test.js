const assert = require('node:assert')
const { randomUUID } = require('node:crypto')
const test = require('node:test')
const { Kafka, Partitioners } = require('kafkajs')

const bootstrapServers = process.env.KAFKA_BOOTSTRAP_SERVERS ?? 'localhost:9092'
const admin = process.env.KAFKA_QUOTA_PROXY_ADMIN ?? 'localhost:9308'

async function call(method, path, body) {
  const headers = { 'Content-Type': 'application/json' }
  const response = await fetch(`http://${admin}/testing/${path}`, { method, headers, body: JSON.stringify(body) })
  if (!response.ok) throw new Error(await response.text())
  return response.json()
}

test.beforeEach(() => call('POST', 'reset'))

test('a producer waits and loses nothing', async () => {
  await call('POST', 'throttles', { api: 'Produce', throttle_time_ms: 300, count: 3, client_id: 'node-app' })
  const kafka = new Kafka({ brokers: bootstrapServers.split(','), clientId: 'node-app' })
  const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner })
  const topic = `orders-${randomUUID()}`
  await producer.connect()
  try {
    const began = performance.now()
    for (let number = 0; number < 5; number++) {
      const [written] = await producer.send({ topic, messages: [{ partition: 0, value: `order ${number}` }] })
      assert.equal(written.baseOffset, number)
    }
    assert.ok(performance.now() - began >= 900, 'the producer did not wait')
  } finally {
    await producer.disconnect()
  }
  const observed = await call('GET', 'observed?client_id=node-app')
  assert.deepEqual(observed.map((response) => response.throttle_time_ms), [300, 300, 300])
})
