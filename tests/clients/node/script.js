'use strict';

// RocketMQ's Node client (ali-ons) as an application uses it: one JSON line a step, which the test compares.
//
// script.js NAME_SERVER PREFIX CHAIN...: a chain is names of steps with commas between; chains run side by side. PREFIX begins
// every topic and group, so that scripts can share a broker.

const { Consumer, Message, Producer } = require('ali-ons');
const httpclient = require('urllib');

const SECONDS = 60;
const MOMENT_MS = 400;
const [ nameSrv, prefix, ...chains ] = process.argv.slice(2);
const quiet = { debug() {}, info() {}, warn() {}, error() {} };
// Each producer and consumer is a client of its own, and asks for routes and members often.
let instances = 0;
const common = () => ({
  httpclient,
  nameSrv,
  logger: quiet,
  instanceName: `node-${process.pid}-${++instances}`,
  pollNameServerInteval: 500,
  rebalanceInterval: 500,
  heartbeatBrokerInterval: 1000,
});
const own = name => `${prefix}-${name}`;
const pause = ms => new Promise(resolve => setTimeout(resolve, ms));

async function until(holds) {
  const deadline = Date.now() + SECONDS * 1000;
  while (!holds() && Date.now() < deadline) await pause(20);
  return holds();
}

async function settled(seen, wanted) {
  await until(() => seen.length >= wanted);
  await pause(MOMENT_MS);
  return seen;
}

function message(topic, tag, body, key) {
  const one = new Message(own(topic), tag, body);
  if (key) one.keys = [ key ];
  return one;
}

async function send(topic, messages) {
  const producer = new Producer({ ...common(), producerGroup: own(`${topic}-producers`), sendMsgTimeout: 20000 });
  await producer.ready();
  const results = [];
  for (const one of messages) results.push(await producer.send(one));
  await producer.close();
  return results;
}

/** A started consumer; `take` is given each message and what it returns goes to the client. */
async function consume(group, topic, expression, take, options = {}) {
  const consumer = new Consumer({ ...common(), consumerGroup: own(group), ...options });
  consumer.subscribe(own(topic), expression, async one => take(one));
  consumer.on('error', problem => console.error(problem)); // The client goes on after one.
  await consumer.ready();
  return consumer;
}

async function consumed(group, topic, expression, wanted, options) {
  const seen = [];
  const consumer = await consume(group, topic, expression, one => { seen.push(one.body.toString()); }, options);
  await settled(seen, wanted);
  await consumer.close();
  return seen.sort();
}

const steps = {
  async produce() {
    const messages = [];
    for (let i = 0; i < 8; i++) messages.push(message('produced', [ 'even', 'odd' ][i % 2], `plain-${i}`, `key-${i}`));
    messages.push(message('produced', 'big', 'x'.repeat(20000))); // The client compresses it.
    const results = await send('produced', messages);
    return { statuses: results.map(one => `${one.sendStatus} ${one.msgId.length}`) };
  },

  async concurrent() {
    const seen = [];
    let properties = [];
    const consumer = await consume('concurrent', 'produced', '*', one => {
      if (one.body.toString() === 'plain-1') properties = Object.keys(one.properties).sort();
      seen.push(`${one.tags} ${one.body.length > 100 ? one.body.length : one.body}`);
    });
    await settled(seen, 9);
    await consumer.close();
    return { seen: seen.sort(), properties };
  },

  async tags() {
    return { bodies: await consumed('tagged', 'produced', 'odd || none', 4) };
  },

  async sendMore() {
    const results = await send('produced', [ 0, 1, 2 ].map(i => message('produced', 'more', `more-${i}`)));
    return { statuses: results.map(one => one.sendStatus) };
  },

  async resume() {
    return { bodies: await consumed('concurrent', 'produced', '*', 3) };
  },

  async broadcast() {
    await send('broadcast', [ 0, 1, 2, 3 ].map(i => message('broadcast', '', `to-all-${i}`)));
    const from = { isBroadcast: true, consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET' };
    const members = [ 0, 1 ].map(() => consumed('broadcast', 'broadcast', '*', 4, from));
    return { members: await Promise.all(members) };
  },

  /** Messages of one sharding key go to one queue and come in order. */
  async sharded() {
    const messages = [];
    for (let i = 0; i < 12; i++) {
      const one = message('sharded', '', `${i % 2}-${i}`);
      one.shardingKey = `shard-${i % 2}`;
      messages.push(one);
    }
    await send('sharded', messages);
    const seen = [];
    const consumer = await consume('sharded', 'sharded', '*', one => { seen.push(one.body.toString()); });
    await settled(seen, 12);
    await consumer.close();
    return { shards: [ 0, 1 ].map(shard => seen.filter(body => body.startsWith(`${shard}-`))) };
  },

  async delay() {
    const late = message('delayed', '', 'late');
    late.delayTimeLevel = 1;
    const began = Date.now();
    const seen = [];
    const results = await send('delayed', [ late ]);
    const consumer = await consume('delayed', 'delayed', '*', () => { seen.push(Date.now() - began); });
    await settled(seen, 1);
    await consumer.close();
    return { status: results[0].sendStatus, times: seen.length, afterItsTime: seen[0] >= 950 };
  },

  async retry() {
    await send('retried', [ message('retried', '', 'again') ]);
    const seen = [];
    const consumer = await consume('retried', 'retried', '*', one => {
      seen.push(`${one.body} ${one.reconsumeTimes}`);
      return one.reconsumeTimes === 0 ? Consumer.ACTION_RETRY : undefined; // The client heeds it only once.
    });
    await settled(seen, 2);
    await consumer.close();
    return { seen };
  },

  async rebalance() {
    await send('shared', [ message('shared', '', 'first') ]);
    const queues = consumer => Array.from(consumer.processQueueTable.values())
      .filter(item => item.messageQueue.topic === own('shared')).length;
    const one = await consume('shared', 'shared', '*', () => undefined);
    await until(() => queues(one) === 4);
    const alone = queues(one);
    const other = await consume('shared', 'shared', '*', () => undefined);
    await until(() => queues(one) === 2 && queues(other) === 2);
    const together = [ queues(one), queues(other) ];
    await other.close();
    await until(() => queues(one) === 4);
    const aloneAgain = queues(one);
    await one.close();
    return { alone, together, aloneAgain };
  },
};

async function play(chain) {
  for (const step of chain.split(',')) {
    const said = await steps[step]().catch(problem => ({ problem: `${problem.stack}` }));
    console.log(JSON.stringify({ step, ...said }));
  }
}

Promise.all(chains.map(play)).then(() => process.exit(0)); // Its timers would keep the process.
