// What a person sees and does on the page of `lockkeeper ui`, in headless Chromium: node tests/ui/page.mjs TOOL [--pictures] [WORDS]
//
// Each claim is a function, and runs in a light and a dark browser where looks matter. It fails at the first claim that does not hold.
// WORDS choose the claims that have them in their names.

import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { World, endAll, ticket } from './world.mjs';

const modules = createRequire(new URL('../../target/page/package.json', import.meta.url));
const { chromium } = modules('playwright-core');
const axe = readFileSync(modules.resolve('axe-core/axe.min.js'), 'utf8');

const [tool, ...options] = process.argv.slice(2);
const draws = options.includes('--pictures');
const wanted = options.filter((word) => !word.startsWith('--')).join(' ');
const MINUTE = 60_000;
const SOON = 15_000;

const browser = await chromium.launch({
  executablePath: '/usr/bin/chromium',
  args: process.getuid() === 0 ? ['--no-sandbox'] : [],
});
const claims = [];
let passed = 0;

function claim(name, check) {
  if (name.includes(wanted)) claims.push([name, check]);
}

// A page of its own, which notes what must not be: errors, and requests to anywhere else.
async function open(url, colorScheme = 'light') {
  const context = await browser.newContext({ colorScheme, viewport: { width: 1180, height: 720 } });
  context.setDefaultTimeout(SOON);
  const page = await context.newPage();
  const faults = [];
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) faults.push(message.text());
  });
  page.on('pageerror', (error) => faults.push(String(error)));
  page.on('request', (request) => {
    if (new URL(request.url()).origin !== url) faults.push(`a request to ${request.url()}`);
  });
  await page.goto(url);
  return { page, close: async () => (assert.deepEqual(faults, []), context.close()) };
}

const rowOf = (page, name) => page.locator('tbody tr', { has: page.getByRole('link', { name, exact: true }) });

async function accessible(page, what) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run());
  const found = violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html).join(' | ')}`);
  assert.deepEqual(found, [], `axe on ${what}`);
}

async function withPage(url, check, scheme) {
  const { page, close } = await open(url, scheme);
  await check(page);
  await close();
}

claim('a lock appears, and its holder changes', async (world) => {
  await withPage(await world.ui(), async (page) => {
    await page.getByText('No lock is in use.').waitFor();
    const holder = await world.hold('orders/42', '--label', 'report');
    const row = rowOf(page, 'orders/42');
    await row.getByText('report').waitFor();
    const next = world.run('orders/42', '--label', 'refund');
    await row.getByRole('cell', { name: '1', exact: true }).waitFor();
    holder.stdin.end();
    await row.getByText('refund').waitFor();
    next.stdin.end();
    await page.getByText('No lock is in use.').waitFor();
  });
});

claim('a deadlock is marked in the list, in the lock and among the waits', async (world) => {
  await world.hold('a', '--owner', 'txn-1');
  await world.hold('b', '--owner', 'txn-2');
  world.run('b', '--owner', 'txn-1');
  world.run('a', '--owner', 'txn-2');
  await withPage(await world.ui(), async (page) => {
    await rowOf(page, 'a').getByText('deadlock').waitFor();
    await page.getByRole('status').filter({ hasText: 'a deadlock' }).waitFor();
    await page.getByRole('link', { name: 'Waits' }).click();
    await page.getByRole('img', { name: 'txn-1, then txn-2, and back' }).waitFor();
    await page.getByText('txn-1 waits for b, which txn-2 has or gets first').waitFor();
    await accessible(page, 'a deadlock');
    await page.getByRole('link', { name: 'Doctor' }).click();
    await page.locator('.findings').getByText('deadlock').waitFor();
  });
});

claim('a ticket is removed after a question, and the holder is asked first', async (world) => {
  const holder = await world.hold('stuck', '--label', 'report');
  await withPage(await world.ui('--allow-break'), async (page) => {
    await page.getByRole('link', { name: 'stuck' }).click();
    const remove = page.getByRole('button', { name: /^Remove report/ });
    await remove.click();
    const dialog = page.getByRole('dialog');
    await dialog.getByText('The holder is asked first.').waitFor();
    await accessible(page, 'the question');
    await dialog.getByRole('button', { name: 'Cancel' }).click();
    assert.equal(await dialog.count(), 0);
    assert.equal(holder.exitCode, null, 'a question removes nothing');
    await remove.click();
    await dialog.getByRole('button', { name: 'Remove the ticket' }).click();
    await dialog.getByText('is asked to release stuck, for 5s').waitFor();
    await dialog.getByText('has gone from the queue of stuck').waitFor();
    assert.equal(await holder.ended, 3, 'its command has ended in its own way');
    await page.keyboard.press('Escape');
    await page.getByText('Nobody holds it, nobody waits.').waitFor();
  });
});

claim('a page that only reads has no button to remove', async (world) => {
  await world.hold('kept');
  await withPage(await world.ui(), async (page) => {
    await page.getByRole('link', { name: 'kept' }).click();
    await page.locator('.queue li.held').waitFor();
    assert.equal(await page.getByRole('button', { name: /Remove/ }).count(), 0);
  });
});

claim('what others write is text, and what steers or hides is visible', async (world) => {
  const label = '<script>window.hit=1</script>\u001b[2J\u202e<img src=x onerror=window.hit=2>';
  const shown = '<script>window.hit=1</script>\\u{1b}[2J\\u{202e}<img src=x onerror=window.hit=2>';
  await world.hold('<b>name', '--label', label, '--owner', '\u200b<i>owner', '--journal', '5');
  world.run('<b>name', '--label', label);
  const url = await world.ui('--allow-break');
  await withPage(url, async (page) => {
    await rowOf(page, '<b>name').getByText(`${shown} (\\u{200b}<i>owner)`).waitFor();
    await page.getByRole('link', { name: '<b>name', exact: true }).click();
    await page.locator('.queue li.held b').filter({ hasText: shown }).waitFor();
    await page.locator('.timeline').waitFor();
    await page.getByRole('button', { name: /^Remove/ }).first().click();
    await page.getByRole('dialog').getByText('\\u{200b}<i>owner').waitFor();
    for (const view of ['waits', 'sessions']) {
      await page.goto(`${url}/#/${view}`);
      await page.locator('main').getByText('<b>name').first().waitFor();
    }
    assert.equal(await page.evaluate(() => window.hit), undefined);
    assert.equal(await page.locator('main script, main img, main b b, main i').count(), 0);
  });
});

claim('the rules of the page stop a script, a style and markup that stand in it', async (world) => {
  const { page } = await open(await world.ui());
  const stopped = await page.evaluate(async () => {
    const violations = [];
    document.addEventListener('securitypolicyviolation', (event) => violations.push(event.violatedDirective));
    for (const tag of ['script', 'style']) {
      const element = document.createElement(tag);
      try {
        element.textContent = tag === 'script' ? 'window.hit = 1' : 'main { display: none }';
      } catch {
        violations.push('trusted types');
      }
      document.body.append(element);
    }
    try {
      document.body.innerHTML += '<img src=x onerror="window.hit = 2">';
    } catch {
      violations.push('markup');
    }
    try {
      await fetch('http://127.0.0.1:9/');
    } catch {
      violations.push('fetch');
    }
    await new Promise((resolve) => setTimeout(resolve, 100));
    return { violations, hit: window.hit, isShown: getComputedStyle(document.querySelector('main')).display !== 'none' };
  });
  assert.equal(stopped.hit, undefined);
  assert.ok(stopped.isShown);
  for (const word of ['style-src-elem', 'connect-src', 'markup', 'fetch']) assert.ok(stopped.violations.includes(word), `${word}: ${stopped.violations}`);
  assert.ok(['script-src-elem', 'trusted types'].some((word) => stopped.violations.includes(word)), String(stopped.violations));
  await page.context().close();
});

claim('the keyboard is enough', async (world) => {
  for (const name of ['xyzzy', 'xyzzy/2', 'other']) await world.hold(name);
  await withPage(await world.ui(), async (page) => {
    await rowOf(page, 'other').waitFor();
    await page.keyboard.press('/');
    await page.keyboard.type('xyzzy');
    await rowOf(page, 'other').waitFor({ state: 'detached' });
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'xyzzy/2', exact: true }).waitFor();
    await page.keyboard.press('Escape');
    await rowOf(page, 'xyzzy/2').waitFor();
    const waiting = page.getByRole('button', { name: 'Waiting' });
    await waiting.focus();
    await page.keyboard.press('Enter');
    await page.locator('th[aria-sort]', { has: waiting }).waitFor();
  });
});

claim('a thousand locks with ten thousand waiters scroll', async (world) => {
  const scene = world.scene();
  const wanted = [];
  for (let lock = 0; lock < 1000; lock += 1) {
    const waiting = lock === 0 ? 1000 : 9;
    for (let place = 0; place <= waiting; place += 1) wanted.push([`load/${lock}`, ticket(`web-${place}`, 100 + lock, `job ${lock}`, 1000)]);
  }
  await scene('tickets', wanted);
  const url = await world.ui();
  await withPage(url, async (page) => {
    await page.getByText('1 000 locks, 9 991 waiting').waitFor({ timeout: MINUTE });
    const rows = page.getByRole('region', { name: 'Locks' });
    assert.ok((await rows.locator('tbody tr').count()) < 80, 'only what is in sight is drawn');
    const frames = await rows.evaluate(scroll);
    await rowOf(page, 'load/999').waitFor();
    console.log(`   frames while 1 000 locks scroll: median ${frames.median} ms, longest ${frames.longest} ms`);
    // A busy machine draws nothing faster.
    const plain = await plainFrames();
    console.log(`   frames of plain text: median ${plain.median} ms`);
    assert.ok(frames.median < Math.max(50, 3 * plain.median), JSON.stringify({ frames, plain }));
    await page.getByRole('searchbox').fill('load/0');
    await page.getByRole('link', { name: 'load/0', exact: true }).click();
    const queue = page.getByRole('region', { name: 'Entries of the queue' });
    await queue.getByText('web-0:100').waitFor();
    await queue.evaluate(scroll);
    await queue.getByText('web-1000:100').waitFor();
    assert.ok((await queue.locator('tbody tr').count()) < 80);
  });
});

// Scrolls to the end in a second, and says how long frames took.
// Of a list without a script, which is as long.
async function plainFrames() {
  const page = await browser.newPage({ viewport: { width: 1180, height: 720 } });
  await page.setContent(`<div style="height: 90vh; overflow: auto">${'<p>a lock'.repeat(1000)}</div>`);
  const frames = await page.locator('div').evaluate(scroll);
  await page.close();
  return frames;
}

async function scroll(element) {
  const times = [];
  let before = performance.now();
  for (let step = 1; step <= 60; step += 1) {
    element.scrollTop = (element.scrollHeight * step) / 60;
    await new Promise(requestAnimationFrame);
    times.push(performance.now() - before);
    before = performance.now();
  }
  times.sort((one, other) => one - other);
  return { median: Math.round(times[30]), longest: Math.round(times[59]) };
}

claim('a token is asked for once', async (world) => {
  const file = join(mkdtempSync(join(tmpdir(), 'ui-')), 'token');
  writeFileSync(file, 'a token of its own\n', { mode: 0o600 });
  await world.hold('secret');
  const url = await world.ui('--token-file', file);
  for (const scheme of ['light', 'dark']) {
    await withPage(url, async (page) => {
      const token = page.getByLabel('The token of --token-file');
      await accessible(page, `the login, ${scheme}`);
      await token.fill('a guess of a token');
      await page.getByRole('button', { name: 'Open' }).click();
      await page.getByText('That is not the token.').waitFor();
      await token.fill('a token of its own');
      await page.getByRole('button', { name: 'Open' }).click();
      await rowOf(page, 'secret').waitFor();
    }, scheme);
  }
});

claim('every view is accessible, and has its picture, in light and dark', async (world) => {
  const scene = world.scene();
  await scene('tickets', staged());
  await scene('page', 'nightly-report', journal());
  const url = await world.ui('--allow-break');
  const views = [
    ['locks', '', (page) => rowOf(page, 'accounts/4').getByText('deadlock').waitFor()],
    ['lock', 'lock/nightly-report', (page) => page.locator('.timeline .lost').waitFor()],
    ['waits', 'waits', (page) => page.locator('.ring').waitFor()],
    ['sessions', 'sessions', (page) => page.getByText(/sessions? hold/).waitFor()],
    ['doctor', 'doctor', (page) => page.locator('.findings li').first().waitFor()],
  ];
  for (const scheme of ['light', 'dark']) {
    await withPage(url, async (page) => {
      for (const [name, hash, is] of views) {
        await page.goto(`${url}/#/${hash}`);
        await is(page);
        await accessible(page, `${name}, ${scheme}`);
        if (draws && (scheme === 'light' || ['locks', 'waits'].includes(name))) await picture(page, `ui-${name}${scheme === 'dark' ? '-dark' : ''}`);
      }
      await page.setViewportSize({ width: 400, height: 800 });
      await page.goto(`${url}/#/lock/nightly-report`);
      await page.locator('.timeline .lost').waitFor();
      await accessible(page, `a narrow window, ${scheme}`);
      const isWider = await page.evaluate(() => document.documentElement.scrollWidth > window.innerWidth);
      assert.ok(!isWider, 'nothing stands out at the side of a narrow window');
    }, scheme);
  }
});

async function picture(page, name) {
  // Where and when it was drawn is nobody's business.
  await page.evaluate(() => (document.getElementById('place').textContent = '/locks on zk1:2181,zk2:2181,zk3:2181'));
  await page.screenshot({ path: `docs/pictures/${name}.png` });
}

const HOUR = 3_600_000;

// Locks of a small company.
function staged() {
  const waiters = [1, 2, 3, 4, 5, 6, 7, 8].map((number) => ['nightly-report', ticket(`batch-${number}`, 4000 + number, 'report.sh', 40_000 - number * 3000)]);
  const orders = Array.from({ length: 14 }, (_, number) => [`orders/${4210 + number}`, ticket(`web-${(number % 4) + 1}`, 811, 'refund', 900 + number * 700)]);
  return [
    ['nightly-report', ticket('db-7', 2211, 'report.sh', 0.1 * HOUR)],
    ...waiters,
    ...orders,
    ['scheduler', ticket('batch-1', 3120, null, 31 * HOUR, { value: 'batch-1:3120' })],
    ['scheduler', ticket('batch-2', 3077, null, 30 * HOUR, { value: 'batch-2:3077' })],
    ['accounts/4', ticket('web-1', 811, 'transfer', 52_000, { owner: 'txn-1807' })],
    ['accounts/17', ticket('web-3', 799, 'transfer', 51_500, { owner: 'txn-1808' })],
    ['accounts/17', ticket('web-1', 811, 'transfer', 51_000, { owner: 'txn-1807' })],
    ['accounts/4', ticket('web-3', 799, 'transfer', 50_800, { owner: 'txn-1808' })],
    ['accounts/4', ticket('web-2', 802, 'statement', 31_000, { owner: 'txn-1822' })],
    ['deploy', ticket('ci-2', 511, 'deploy.sh', 170_000)],
    ['deploy', ticket('ci-1', 498, 'deploy.sh', 64_000)],
    ['migrations', ticket('ci-1', 498, 'migrate', 66_000)],
    ['migrations', ticket('web-4', 790, 'boot', 12_000)],
  ];
}

function journal() {
  let at = Date.now() - 9 * 300_000;
  const lines = [];
  for (let number = 0; number < 8; number += 1) {
    const held = [150_000, 210_000, 90_000, 240_000, 160_000, 120_000, 200_000, 140_000][number];
    const ending = number === 4 ? { ending: 'lost', why: 'its session expired' } : { ending: 'released' };
    lines.push({
      id: crypto.randomUUID(), token: 10 + number, ticket: 10 + number, node: `lock-000000000${number}`, kind: 'lock', label: 'report.sh',
      host: `batch-${(number % 4) + 1}`, pid: 3900 + number, since_ms: Math.round(at), waited_ms: 20_000 + number * 9000, held_ms: held, ...ending,
    });
    at += held + 60_000;
  }
  return lines.map((line) => JSON.stringify(line)).join('\n');
}

process.on('exit', endAll);
if (claims.length === 0) throw new Error(`no claim has the words ${wanted}`);
try {
  for (const [name, check] of claims) {
    const begun = Date.now();
    await check(await World.start(tool));
    endAll();
    passed += 1;
    console.log(`ok  ${name} (${((Date.now() - begun) / 1000).toFixed(1)} s)`);
  }
} finally {
  endAll();
  await browser.close();
  console.log(`${passed} passed, ${claims.length - passed} failed`);
}
