// prozess, a client of Kafka 0.7, behind lines of JSON: see tests/conformance/programs.py.
//
//   {"do": "produce", "port": 9093, "topic": "t", "values": ["BASE64", ...]}      -> {"ok": null}
//   {"do": "read", "port": 9093, "topic": "t", "offset": 0, "count": 3}           -> {"ok": [["BASE64", ...], NEXT]}
//   {"do": "offsets", "port": 9093, "topic": "t"}                                 -> {"ok": [EARLIEST, LATEST]}
"use strict";
const Module = require("module");
const path = require("path");
const readline = require("readline");

// Its dependency bignum 0.6 is C++ for Node 0.8. What prozess uses of it is an int64.
const resolve = Module._resolveFilename;
Module._resolveFilename = function (name, ...rest) {
  return name === "bignum" ? path.join(__dirname, "int64.js") : resolve.call(this, name, ...rest);
};
const { Consumer, Producer } = require("prozess");

const consumers = new Map();

function consumer(ask) {
  const key = `${ask.port}/${ask.topic}`;
  if (consumers.has(key)) return Promise.resolve(consumers.get(key));
  const made = new Consumer({ host: "127.0.0.1", port: ask.port, topic: ask.topic, partition: 0, offset: 0 });
  return new Promise((done, failed) =>
    made.connect((error) => {
      if (error) return failed(error);
      consumers.set(key, made);
      done(made);
    }),
  );
}

function call(object, method) {
  return new Promise((done, failed) => object[method]((error, found) => (error ? failed(error) : done(found))));
}

const commands = {
  produce(ask) {
    const producer = new Producer(ask.topic, { host: "127.0.0.1", port: ask.port });
    return new Promise((done, failed) => {
      producer.on("error", failed);
      producer.on("connect", () =>
        producer.send(ask.values.map((value) => Buffer.from(value, "base64")), (error) =>
          error ? failed(error) : done(null),
        ),
      );
      producer.connect();
    });
  },
  async read(ask) {
    const reader = await consumer(ask);
    reader.setOffset(ask.offset);
    const found = [];
    while (found.length < ask.count) {
      const messages = await call(reader, "consume"); // adds up the sizes of what it got
      found.push(...messages.map((message) => Buffer.from(message.payload).toString("base64")));
      if (!messages.length) await new Promise((done) => setTimeout(done, 20));
    }
    return [found, Number(reader.offset.toString())];
  },
  async offsets(ask) {
    const reader = await consumer(ask);
    const earliest = await call(reader, "getEarliestOffset");
    const latest = await call(reader, "getLatestOffset");
    return [Number(earliest.toString()), Number(latest.toString())];
  },
};

let turn = Promise.resolve();
readline.createInterface({ input: process.stdin }).on("line", (line) => {
  turn = turn.then(async () => {
    try {
      const ask = JSON.parse(line);
      process.stdout.write(JSON.stringify({ ok: await commands[ask.do](ask) }) + "\n");
    } catch (error) {
      process.stdout.write(JSON.stringify({ error: String(error && error.message ? error.message : error), code: -1 }) + "\n");
    }
  });
});
