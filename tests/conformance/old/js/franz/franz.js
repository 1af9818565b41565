// franz-kafka, a client of Kafka 0.7 that finds brokers in ZooKeeper, behind lines of JSON: see ../../franz_kafka.py.
//
//   {"do": "connect", "zookeeper": "127.0.0.1:2181", "group": "g"}    -> {"ok": null}
//   {"do": "partitions", "topic": "t"}                               -> {"ok": ["1-0", "1-1"]}
//   {"do": "produce", "topic": "t", "values": ["a", "b"]}            -> {"ok": null}
//   {"do": "consume", "topic": "t"}                                  -> {"ok": null}
//   {"do": "values"}     all that have arrived                       -> {"ok": ["a", "b"]}
"use strict";
const readline = require("readline");
const Kafka = require("franz-kafka");

const values = [];
let kafka = null;

const commands = {
  connect(ask) {
    const codec = { queueTime: 20, maxFetchDelay: 100, compression: ask.compression, groupId: ask.group };
    kafka = new Kafka({ zookeeper: [ask.zookeeper], ...codec });
    return new Promise((done) => kafka.connect(() => done(null)));
  },
  async partitions(ask) {
    return kafka.connector.zk.topics[ask.topic] || [];
  },
  async produce(ask) {
    const topic = kafka.topic(ask.topic);
    for (const value of ask.values) topic.write(value);
    return null;
  },
  async consume(ask) {
    const topic = kafka.topic(ask.topic);
    topic.setEncoding("utf8");
    topic.on("data", (value) => values.push(value));
    topic.resume();
    return null;
  },
  async values() {
    return values;
  },
};

let turn = Promise.resolve();
readline.createInterface({ input: process.stdin }).on("line", (line) => {
  turn = turn.then(async () => {
    try {
      const ask = JSON.parse(line);
      process.stdout.write(JSON.stringify({ ok: await commands[ask.do](ask) }) + "\n");
    } catch (error) {
      process.stdout.write(JSON.stringify({ error: String(error && error.message), code: -1 }) + "\n");
    }
  });
});
