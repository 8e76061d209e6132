// kafkajs in a soak:
//
//   soak_client.js KAFKAJS produce|consume ADDRESS TOPIC CLIENT_ID STOP_FILE
//
// KAFKAJS is the folder of that package. Runs until the file exists. The records are those of records.py, and the lines
// on standard output those of workers.py.
const fs = require('fs')
const zlib = require('zlib')
const [kafkajs, role, address, topic, clientId, stop] = process.argv.slice(2)
const { Kafka, Partitioners, logLevel } = require(kafkajs)

const VALUE_BYTES = 1000
const BATCH = 8
const tally = { records: 0, bytes: 0, again: 0 }
const say = (fields) => console.log(JSON.stringify({ t: Date.now() / 1000, ...fields }))
const isOver = () => fs.existsSync(stop)
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

function value(number) {
  const bytes = Buffer.alloc(VALUE_BYTES)
  bytes.writeBigInt64BE(BigInt(number))
  for (let i = 8; i < VALUE_BYTES - 4; i++) bytes[i] = (number + i - 8) & 255
  bytes.writeUInt32BE(zlib.crc32(bytes.subarray(0, VALUE_BYTES - 4)), VALUE_BYTES - 4)
  return bytes
}

async function produce(kafka) {
  const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner, maxInFlightRequests: 1 })
  await producer.connect()
  const left = []
  let number = 0
  while (!isOver()) {
    const numbers = Array.from({ length: BATCH }, (_, n) => number + n)
    number += BATCH
    const messages = numbers.map((n) => ({ partition: 0, key: `${n}`, value: value(n) }))
    try {
      await producer.send({ topic, acks: -1, messages })
      tally.records += BATCH
      for (const { key } of messages) tally.bytes += key.length + VALUE_BYTES
    } catch (error) {
      left.push(...numbers)
      say({ error: `record ${numbers[0]}: ${error.name}` })
      await pause(1000)
    }
  }
  await producer.disconnect()
  say({ end: true, ...tally, sent: number, unacknowledged: left })
}

async function consume(kafka) {
  const consumer = kafka.consumer({
    groupId: clientId,
    sessionTimeout: 45_000, // as in Java
    retry: { restartOnFailure: async () => true },
  })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  let next = 0
  let last = -1
  let wasNew = true
  const take = ({ offset: text, key, value: bytes }) => {
    const offset = Number(text)
    tally.bytes += key.length + bytes.length
    if (offset < next) {
      tally.again += 1
      if (wasNew) say({ again_at: offset })
      wasNew = false
      return
    }
    if (offset > next) say({ fault: `offset ${offset} follows offset ${next - 1}` })
    wasNew = true
    next = offset + 1
    tally.records += 1
    const number = Number(bytes.readBigInt64BE())
    if (key.toString() !== `${number}` || !bytes.equals(value(number))) {
      say({ fault: `offset ${offset}: wrong bytes` })
      return
    }
    if (number !== last + 1) say({ jump: [offset, last, number] })
    last = number
  }
  await consumer.run({ eachBatch: async ({ batch }) => batch.messages.forEach(take) })
  while (!isOver()) await pause(200)
  await consumer.disconnect()
  say({ end: true, ...tally, next })
}

async function main() {
  const retry = { initialRetryTime: 100, maxRetryTime: 2000, retries: 1_000_000 }
  const kafka = new Kafka({ brokers: [address], clientId, logLevel: logLevel.NOTHING, retry })
  setInterval(() => say(tally), 1000).unref()
  await (role === 'produce' ? produce : consume)(kafka)
}

main().then(
  () => process.exit(0),
  (error) => {
    console.error(error)
    process.exit(1)
  },
)
