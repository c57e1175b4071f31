// The processes that the page is about: a server, the page's own, holders, and nodes that are put there.

import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';

const children = [];

function start(command, words, environment = {}) {
  const child = spawn(command, words, { env: { ...process.env, ...environment }, stdio: ['pipe', 'pipe', 'inherit'] });
  child.lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  child.ended = new Promise((resolve) => child.on('exit', (code) => resolve(code)));
  child.stdin.on('error', () => {}); // It ended, which `ended` says.
  children.push(child);
  return child;
}

export async function line(child) {
  const { value, done } = await child.lines.next();
  if (done) throw new Error('a process has ended without a line');
  return value;
}

export function endAll() {
  for (const child of children.splice(0)) child.kill('SIGKILL');
}

export class World {
  static async start(tool) {
    const world = new World();
    world.tool = tool;
    const server = start(tool, ['--json', 'serve', '--listen', '127.0.0.1:0', '--max-client-connections', '0']);
    world.servers = JSON.parse(await line(server)).listen;
    return world;
  }

  lockkeeper(words) {
    return start(this.tool, words, { LOCKKEEPER_SERVERS: this.servers });
  }

  // Serves the page, and says where.
  async ui(...words) {
    const ui = this.lockkeeper(['--json', 'ui', '--listen', '127.0.0.1:0', ...words]);
    return `http://${JSON.parse(await line(ui)).listen}`;
  }

  // Runs a command under a lock that ends with its input; a TERM ends it with 3.
  run(name, ...words) {
    return this.lockkeeper(['run', ...words, name, '--', 'sh', '-c', "trap 'exit 3' TERM; echo ready; exec 3<&0; cat <&3 & wait"]);
  }

  async hold(name, ...words) {
    const holder = this.run(name, ...words);
    const said = await line(holder);
    if (said !== 'ready') throw new Error(`the holder of ${name} says ${said}`);
    return holder;
  }

  // Nodes of other clients.
  scene() {
    const scene = start('target/kazoo/bin/python', ['tests/ui/scene.py', this.servers]);
    return async (...order) => {
      scene.stdin.write(`${JSON.stringify(order)}\n`);
      return JSON.parse(await line(scene));
    };
  }
}

// The data of a ticket, as Lockkeeper's clients write it.
export function ticket(host, pid, label, age, more = {}) {
  return { host, pid, label, at: Date.now() - age, attempt: crypto.randomUUID(), ...more };
}
