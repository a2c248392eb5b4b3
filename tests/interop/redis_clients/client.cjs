// ioredis, node-redis and redlock on a RESP port: counters, expiry, transactions, locks.
const assert = require("assert");
const Redis = require("ioredis");
const { createClient } = require("redis");
const { default: Redlock } = require("redlock");

const port = Number(process.argv[2]);

async function ioredis() {
  const one = new Redis(port), two = new Redis(port);
  const sums = await Promise.all(Array.from({ length: 200 }, (_, turn) => (turn % 2 ? one : two).incr("n")));
  assert.equal(new Set(sums).size, 200);
  assert.equal(await one.incrbyfloat("f", 0.1), "0.1");
  assert.equal(await one.set("a", "1", "EX", 100, "NX"), "OK");
  assert.equal(await one.expire("a", 50, "LT"), 1);
  assert.deepEqual(await one.multi().incr("n").append("a", "x").exec(), [[null, 201], [null, 2]]);
  await one.watch("a");
  await two.set("a", "other");
  assert.equal(await one.multi().set("a", "mine").exec(), null);
  const locks = new Redlock([one], { retryCount: 0 });
  const lock = await (await locks.acquire(["lock:1", "lock:2"], 5000)).extend(9000);
  await assert.rejects(new Redlock([two], { retryCount: 0 }).acquire(["lock:2"], 1000));
  assert.ok((await one.pttl("lock:2")) > 5000);
  await lock.release();
  assert.equal(await one.exists("lock:1", "lock:2"), 0);
  await assert.rejects(one.eval("return 1", 0), /no Lua/);
  one.disconnect();
  two.disconnect();
}

async function nodeRedis() {
  const client = await createClient({ url: `redis://127.0.0.1:${port}` }).connect();
  assert.equal(await client.getEx("n", { type: "PX", value: 5000 }), "201");
  assert.deepEqual(await client.multi().incr("n").ttl("n").exec(), [202, 5]);
  client.destroy();
}

ioredis().then(nodeRedis).then(() => console.log("done"));
