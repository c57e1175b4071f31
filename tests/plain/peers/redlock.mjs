// A member of a crowd that locks with node-redlock.
//
// redlock.mjs SERVER,SERVER,SERVER NAME TTL_MS count FILE ROUNDS | hold
import { createRequire } from "node:module";
import { readFileSync, writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

// They lie below target, and not beside this file.
const require = createRequire(process.env.PEERS_NODE + "/");
const { default: Redis } = require("ioredis");
const { default: Redlock } = require("redlock");

const [servers, name, ttl, what, file, rounds] = process.argv.slice(2);
const clients = servers.split(",").map((server) => new Redis("redis://" + server));
const redlock = new Redlock(clients, { retryCount: -1, retryDelay: 20, retryJitter: 20 });
if (what === "hold") {
  const lock = await redlock.acquire([name], Number(ttl));
  console.log("holding");
  for await (const _ of process.stdin);
  await lock.release();
} else {
  for (let round = 0; round < Number(rounds); round++) {
    const lock = await redlock.acquire([name], Number(ttl));
    const count = Number(readFileSync(file, "utf8"));
    await sleep(1);
    writeFileSync(file, String(count + 1));
    await lock.release();
  }
}
clients.forEach((client) => client.disconnect());
