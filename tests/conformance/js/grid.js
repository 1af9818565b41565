// kafkajs's part in the conformance grid: a JSON object a line, commands on stdin, answers on stdout.
//
// A command is {"do": NAME, ...}; its answer is {"ok": ...} or {"error": TEXT, "code": KAFKA'S ERROR CODE}. Bytes are
// base64. kafkajs reads in groups only, so whoever reads a partition is alone in a group of its own.
'use strict'
const fs = require('node:fs')
const readline = require('node:readline')
const { randomUUID } = require('node:crypto')
const { Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, logLevel } = require('kafkajs')

CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
const CODECS = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy }
const consumers = new Map()
const producers = new Map()

const kafka = (c) =>
  new Kafka({ brokers: [c.bootstrap], logLevel: logLevel.NOTHING, retry: { retries: 3, initialRetryTime: 50 }, ...secured(c.secure) })
const bytes = (text) => (text === null ? null : Buffer.from(text, 'base64'))
const text = (buffer) => (buffer === null || buffer === undefined ? null : Buffer.from(buffer).toString('base64'))
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

// The settings of a secured connection; none where the command names none.
function secured(how) {
  const settings = {}
  if (how?.ca) {
    const own = how.certificate ? fs.readFileSync(how.certificate) : undefined
    settings.ssl = { ca: [fs.readFileSync(how.ca)], cert: own, key: own }
  }
  if (how?.mechanism) {
    const mechanism = how.mechanism.toLowerCase()
    const provider = async () => ({ value: how.token })
    settings.sasl =
      mechanism === 'oauthbearer' ? { mechanism, oauthBearerProvider: provider } : { mechanism, username: how.user, password: how.password }
  }
  return settings
}

async function produce(c) {
  const producer = kafka(c).producer({ idempotent: c.idempotent, allowAutoTopicCreation: false })
  await producer.connect()
  try {
    const messages = c.records.map((each) => message(each, c.partition))
    await producer.send({ topic: c.topic, acks: c.acks, compression: CODECS[c.codec], messages })
  } finally {
    await producer.disconnect()
  }
}

function message(record, partition) {
  const headers = {}
  for (const { name, value } of record.headers) {
    headers[name] = name in headers ? [headers[name], bytes(value)].flat() : bytes(value)
  }
  const made = { key: bytes(record.key), value: bytes(record.value), headers }
  if (record.timestamp !== null) made.timestamp = String(record.timestamp)
  if (partition !== null) made.partition = partition
  return made
}

class Reader {
  constructor(c, groupId) {
    this.topic = c.topic
    this.records = []
    this.assigned = []
    this.next = new Map()
    const readUncommitted = c.isolation !== 'read_committed'
    const settings = { groupId, readUncommitted, heartbeatInterval: 300, maxWaitTimeInMs: 100, retry: { retries: 10, initialRetryTime: 50 } }
    this.consumer = kafka(c).consumer(settings)
    this.joined = new Promise((resolve) => {
      this.consumer.on(this.consumer.events.GROUP_JOIN, ({ payload }) => {
        this.assigned = payload.memberAssignment[c.topic] || []
        resolve()
      })
    })
  }

  // A seek is possible only when reading has begun: what nobody wanted is dropped.
  async start(wanted = () => true) {
    await this.consumer.connect()
    await this.consumer.subscribe({ topic: this.topic, fromBeginning: true })
    const eachMessage = async (read) => {
      if (wanted(read.partition, Number(read.message.offset))) this.records.push(read)
    }
    await this.consumer.run({ autoCommit: false, eachMessage }) // which returns early when it has to try again
    await this.joined
  }

  async poll(ms) {
    for (const end = Date.now() + ms; this.records.length === 0 && Date.now() < end; ) await sleep(5)
    const taken = this.records.splice(0)
    for (const { partition, message } of taken) this.next.set(partition, String(BigInt(message.offset) + 1n))
    return taken.map(({ partition, message }) => ({
      partition,
      offset: Number(message.offset),
      timestamp: Number(message.timestamp),
      key: text(message.key),
      value: text(message.value),
      headers: Object.entries(message.headers || {}).flatMap(([name, values]) =>
        [values].flat().map((value) => ({ name, value: text(value) }))),
    }))
  }

  async commit() {
    const held = [...this.next].filter(([partition]) => this.assigned.includes(partition))
    await this.consumer.commitOffsets(held.map(([partition, offset]) => ({ topic: this.topic, partition, offset })))
  }
}

async function open(c) {
  let offset = c.position
  if (c.how !== 'offset') offset = await administer({ ...c, do: 'list_offset', position: c.how === 'end' ? -1 : c.position })
  const reader = new Reader(c, `reader-${randomUUID()}`)
  consumers.set(c.consumer, reader)
  let next = offset
  await reader.start((partition, at) => partition === 0 && at >= next && (next = at + 1))
  reader.consumer.seek({ topic: c.topic, partition: 0, offset: String(offset) })
}

async function join(c) {
  const member = new Reader(c, c.group)
  consumers.set(c.consumer, member)
  await member.start()
}

class Transactions {
  constructor(c) {
    this.producer = kafka(c).producer({ transactionalId: c.name, idempotent: true, maxInFlightRequests: 1 })
  }

  async begin() {
    this.transaction = await this.producer.transaction()
  }

  async send(c) {
    await this.transaction.send({ topic: c.topic, acks: -1, messages: c.records.map((each) => message(each, c.partition)) })
  }

  async sendOffsets(c) {
    const partitions = [...consumers.get(c.consumer).next].map(([partition, offset]) => ({ partition, offset }))
    await this.transaction.sendOffsets({ consumerGroupId: c.group, topics: [{ topic: c.topic, partitions }] })
  }
}

async function transactional(c) {
  const made = new Transactions(c)
  await made.producer.connect()
  producers.set(c.producer, made)
}

async function administer(c) {
  const admin = kafka(c).admin()
  await admin.connect()
  try {
    return await ADMINISTRATION[c.do](admin, c)
  } finally {
    await admin.disconnect()
  }
}

async function listOffset(admin, c) {
  if (c.position >= 0) return Number((await admin.fetchTopicOffsetsByTimestamp(c.topic, c.position))[0].offset)
  const [ends] = (await admin.fetchTopicOffsets(c.topic)).filter((each) => each.partition === 0)
  return Number(c.position === -1 ? ends.high : ends.low)
}

async function deleteRecords(admin, c) {
  await admin.fetchTopicOffsets(c.topic) // without its metadata kafkajs does not know whom to ask
  await admin.deleteTopicRecords({ topic: c.topic, partitions: [{ partition: 0, offset: String(c.position) }] })
}

async function topicSettings(admin, c) {
  const { resources } = await admin.describeConfigs({ includeSynonyms: false, resources: [{ type: ConfigResourceTypes.TOPIC, name: c.topic }] })
  return Object.fromEntries(resources[0].configEntries.map((each) => [each.configName, each.configValue]))
}

async function groupState(admin, c) {
  const [group] = (await admin.describeGroups([c.group])).groups
  return { state: group.state, members: group.members.length }
}

const topicResource = (c) => ({ type: ConfigResourceTypes.TOPIC, name: c.topic, configEntries: [{ name: c.name, value: c.value }] })
const nothing = () => null
const ADMINISTRATION = {
  create_topic: (admin, c) => admin.createTopics({ topics: [{ topic: c.topic, numPartitions: c.partitions, replicationFactor: 1 }] }),
  delete_topic: (admin, c) => admin.deleteTopics({ topics: [c.topic] }),
  add_partitions: (admin, c) => admin.createPartitions({ topicPartitions: [{ topic: c.topic, count: c.partitions }] }),
  list_offset: listOffset,
  delete_records: deleteRecords,
  topic_settings: topicSettings,
  set_topic_setting: (admin, c) => admin.alterConfigs({ validateOnly: false, resources: [topicResource(c)] }).then(nothing),
  groups: async (admin) => (await admin.listGroups()).groups.map((each) => each.groupId),
  group_state: groupState,
  delete_group: (admin, c) => admin.deleteGroups([c.group]).then(nothing),
}

const COMMANDS = {
  produce,
  open,
  join,
  poll: (c) => consumers.get(c.consumer).poll(c.ms),
  assignment: async (c) => consumers.get(c.consumer).assigned,
  transactional,
  begin_transaction: (c) => producers.get(c.producer).begin(),
  send: (c) => producers.get(c.producer).send(c),
  send_offsets: (c) => producers.get(c.producer).sendOffsets(c),
  commit_transaction: (c) => producers.get(c.producer).transaction.commit(),
  abort_transaction: (c) => producers.get(c.producer).transaction.abort(),
  close_producer: async (c) => {
    await producers.get(c.producer).producer.disconnect()
    producers.delete(c.producer)
  },
  commit: (c) => consumers.get(c.consumer).commit(),
  close: async (c) => {
    await consumers.get(c.consumer).consumer.disconnect()
    consumers.delete(c.consumer)
  },
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin, crlfDelay: Infinity })) {
    const command = JSON.parse(line)
    let answer
    try {
      answer = { ok: (await (COMMANDS[command.do] || administer)(command)) ?? null }
    } catch (problem) {
      const codes = [problem, problem.cause, ...(problem.errors || []), ...(problem.groups || [])].map((each) => each && (each.code || each.errorCode))
      answer = { error: `${command.do}: ${problem.stack}`, code: codes.find((each) => each > 0) || 0 }
    }
    process.stdout.write(JSON.stringify(answer) + '\n')
  }
  process.exit(0)
}

main()
