// Drives node-redlock on one Redis for the runner: one order in JSON on each line of stdin, one answer on each line of stdout.
//
// redlock_driver.mjs MODULES SERVER ASIDE PAUSE_MS
//
// One connection. The definitions are those of src/drivers/contender.rs: the clock of a hand-over starts when all waiters have
// been refused once.
import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

const [modules, server, , pause] = process.argv.slice(2);
const require = createRequire(modules + "/");
const { default: Redis } = require("ioredis");
const { default: Redlock } = require("redlock");

const TTL_MS = 600_000;
const run = "/bench-" + randomUUID().slice(0, 8);
const client = new Redis("redis://" + server);
const settings = { retryCount: -1, retryDelay: Number(pause), retryJitter: 0 };
const now = () => Number(process.hrtime.bigint());

// A waiter has one of its own, which tells of each refusal.
const locks = (refused = () => {}) => {
  const redlock = new Redlock([client], settings);
  redlock.on("error", refused);
  return redlock;
};

const workloads = {
  async uncontended({ rounds }) {
    const redlock = locks();
    const times = [];
    for (let round = 0; round < rounds; round++) {
      const began = now();
      const lock = await redlock.acquire([run + "-alone"], TTL_MS);
      await lock.release();
      times.push(now() - began);
    }
    return figures(times);
  },

  async hand_over({ waiters, repeats }) {
    const [gaps, failures] = [[], []];
    let enqueue = 0;
    for (let repeat = 0; repeat < repeats; repeat++) {
      enqueue += await drain(waiters, gaps, failures);
    }
    const answer = { ...figures(gaps), enqueue_ms: enqueue / repeats, failed: failures.length };
    return failures.length ? { ...answer, error: failures[0] } : answer;
  },

  async independent({ locks: count, milliseconds }) {
    const redlock = locks();
    const began = now();
    const end = began + milliseconds * 1e6;
    let taken = 0;
    const work = async (name) => {
      while (now() < end) {
        const lock = await redlock.acquire([name], TTL_MS);
        await lock.release();
        taken++;
      }
    };
    await Promise.all(Array.from({ length: count }, (_, number) => work(`${run}-own-${number}`)));
    return { locks_per_s: (taken * 1e9) / (now() - began) };
  },
};

async function drain(waiters, gaps, failures) {
  const name = run + "-queue";
  const [grants, refused, failedBefore] = [[], new Set(), failures.length];
  const holder = await locks().acquire([name], TTL_MS);
  const wait = async (waiter) => {
    try {
      const lock = await locks(() => refused.add(waiter)).acquire([name], TTL_MS);
      grants.push(now());
      await lock.release();
    } catch (error) {
      failures.push(String(error));
    }
  };
  const began = now();
  const crowd = Array.from({ length: waiters }, (_, waiter) => wait(waiter));
  while (refused.size < waiters - (failures.length - failedBefore)) {
    await sleep(2);
  }
  const enqueue = (now() - began) / 1e6;

  let last = now();
  await holder.release();
  await Promise.all(crowd);
  for (const grant of grants.sort((one, other) => one - other)) {
    gaps.push(grant - last);
    last = grant;
  }
  return enqueue;
}

function figures(nanos) {
  nanos.sort((one, other) => one - other);
  const sum = nanos.reduce((sum, time) => sum + time, 0);
  const percentile = (part) =>
    nanos.length ? nanos[Math.max(Math.ceil(part * nanos.length), 1) - 1] / 1e3 : 0;
  return { mean_us: nanos.length ? sum / nanos.length / 1e3 : 0, p50_us: percentile(0.5), p99_us: percentile(0.99) };
}

const say = (line) => process.stdout.write(JSON.stringify(line) + "\n");

const version = JSON.parse(readFileSync(modules + "/node_modules/redlock/package.json")).version;
say({ version: `redlock ${version}, Node ${process.versions.node}` });
for await (const line of createInterface({ input: process.stdin })) {
  const { do: what, ...order } = JSON.parse(line);
  say(await workloads[what](order).catch((error) => ({ error: String(error) })));
}
client.disconnect();
