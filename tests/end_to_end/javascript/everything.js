// What everything.py does, with kafkajs:
//
//   everything.js KAFKAJS BOOTSTRAP TOPIC SENT COMMITTED ABORTED
//
// KAFKAJS is the folder of that package. Ends with one JSON object on standard output, or with a stack trace.
const [kafkajs, address, topic, ...counts] = process.argv.slice(2)
const { Kafka, Partitioners, logLevel } = require(kafkajs)
const [sent, committed, aborted] = counts.map(Number)

const messages = (count, kind) =>
  Array.from({ length: count }, (_, n) => ({ partition: n % 3, value: `${kind} ${n}` }))

async function hasLeaders(admin) {
  try {
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
    return topics[0].partitions.length === 3 && topics[0].partitions.every(({ leader }) => leader >= 0)
  } catch (error) {
    if (error.type === 'UNKNOWN_TOPIC_OR_PARTITION' || error.type === 'LEADER_NOT_AVAILABLE') return false
    throw error
  }
}

async function consume(kafka, wanted) {
  const consumer = kafka.consumer({ groupId: topic })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  // Different records: where one broker of a new topic does not know yet that it leads, kafkajs sends to all of them
  // again, without waiting for what the others answer.
  const seen = new Set()
  await new Promise((resolve, reject) => {
    setTimeout(() => reject(new Error(`only ${seen.size} of ${wanted} records`)), 60_000).unref()
    consumer
      .run({
        eachMessage: async ({ message }) => {
          seen.add(message.value.toString())
          if (seen.size === wanted) setTimeout(resolve, 500)
        },
      })
      .catch(reject)
  })
  await consumer.disconnect()
  return seen.size
}

async function main() {
  const kafka = new Kafka({ brokers: address.split(','), clientId: topic, logLevel: logLevel.NOTHING })
  const admin = kafka.admin()
  await admin.connect()
  // Not waitForLeaders: it gives up where a broker has not heard of the topic yet.
  await admin.createTopics({ waitForLeaders: false, topics: [{ topic, numPartitions: 3, replicationFactor: 3 }] })
  while (!(await hasLeaders(admin))) await new Promise((resolve) => setTimeout(resolve, 100))

  const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner })
  await producer.connect()
  await producer.send({ topic, messages: messages(sent, 'sent') })
  await producer.disconnect()

  const settings = { transactionalId: topic, maxInFlightRequests: 1, idempotent: true }
  const transactional = kafka.producer({ ...settings, createPartitioner: Partitioners.DefaultPartitioner })
  await transactional.connect()
  for (const [count, end] of [[committed, 'commit'], [aborted, 'abort']]) {
    const transaction = await transactional.transaction()
    await transaction.send({ topic, messages: messages(count, end) })
    await transaction[end]()
  }
  await transactional.disconnect()

  const seen = await consume(kafka, sent + committed)
  const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
  const { brokers } = await admin.describeCluster()
  const { groups } = await admin.listGroups()
  await admin.deleteTopics({ topics: [topic] })
  await admin.disconnect()
  console.log(
    JSON.stringify({
      seen,
      partitions: topics[0].partitions.length,
      brokers: brokers.length,
      has_group: groups.some(({ groupId }) => groupId === topic),
      ports: brokers.map(({ port }) => port),
    }),
  )
}

main().catch((error) => {
  console.error(error)
  process.exit(1)
})
