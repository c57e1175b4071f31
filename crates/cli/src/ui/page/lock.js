// One lock: its queue drawn as a queue, all its entries, and its journal.

import { askToBreak } from './breaking.js';
import { Rows } from './rows.js';
import { timeline } from './timeline.js';
import { age, badge, count, fill, get, make, number, process, say, time, title } from './text.js';

// So many entries are fetched at once, and so many are drawn as cards.
const PAGE = 200;
const CARDS = 7;

export function show(main, app, name) {
  const view = new Lock(main, app, name);
  return { update: (event) => view.update(event), rows: view.rows };
}

class Lock {
  constructor(main, app, name) {
    Object.assign(this, { app, name, pages: new Map(), total: 0, versions: {} });
    this.state = make('p', { class: 'said' });
    this.cards = make('ol', { class: 'queue', 'aria-label': 'The queue' });
    this.lane = make('div', { class: 'lane', tabindex: 0, role: 'region', 'aria-label': 'The queue, drawn' }, this.cards);
    this.journal = make('section', { 'aria-label': 'Journal' });
    this.rows = new Rows({
      label: 'Entries of the queue',
      columns: this.columns(),
      key: (entry) => `${entry.node} ${entry.token}`,
      stamp: (entry) => JSON.stringify(entry),
      mark: (entry) => (entry.holder ? 'held' : ''),
    });
    main.append(
      make('h1', {}, name),
      this.state,
      this.lane,
      make('h2', {}, 'Queue'),
      this.rows.element,
      make('h2', {}, 'Journal'),
      this.journal,
    );
  }

  columns() {
    const text = (field) => (entry) => String(entry[field] ?? '–');
    const columns = [
      { head: 'Place', look: 'end', cell: (entry) => (entry.holder ? 'holds' : number(entry.position)) },
      { head: 'Who', look: 'wide', cell: title },
      { head: 'Process', look: 'wide', cell: process },
      { head: 'Owner', cell: text('owner') },
      { head: 'Kind', cell: (entry) => (entry.permits ? `${entry.kind} (${entry.permits})` : entry.kind) },
      { head: 'Age', look: 'end', cell: (entry) => age(entry.since_ms) },
      { head: 'Token', look: 'end', cell: text('token') },
      { head: 'Session', look: 'id', cell: text('session') },
    ];
    if (this.app.about.allow_break) {
      columns.push({ head: 'Remove', look: 'act', cell: (entry) => this.breakButton(entry) });
    }
    return columns;
  }

  breakButton(entry) {
    const label = `Remove ${title(entry)}, ${entry.node}`;
    const ask = () => askToBreak(this.app, this.name, entry);
    return make('button', { type: 'button', class: 'quiet', 'aria-label': label, onclick: ask }, 'Remove…');
  }

  async update(event) {
    const lock = event?.lock ?? null;
    if (this.versions.lock !== lock || event === undefined) {
      this.versions.lock = lock;
      await this.read();
    }
    if (event?.journal && this.versions.journal !== event.journal) {
      this.versions.journal = event.journal;
      await this.readJournal();
    }
    this.draw();
  }

  // Reads the pages of the queue that are in sight, and the first, which is drawn.
  async read() {
    const [first, end] = this.rows.sight();
    const wanted = new Set([0]);
    for (let at = first; at < Math.max(end, 1); at += PAGE) wanted.add(Math.floor(at / PAGE));
    if (end > 0) wanted.add(Math.floor((end - 1) / PAGE));
    const answers = await Promise.all([...wanted].map((page) => this.readPage(page)));
    this.pages = new Map([...wanted].map((page, at) => [page, answers[at].entries]));
    this.take(answers[0]);
  }

  readPage(page) {
    return get('/api/queue', { name: this.name, from: page * PAGE, count: PAGE });
  }

  take(answer) {
    this.summary = answer;
    this.total = answer.holders + answer.waiting;
    this.rows.set(this.total, (index) => this.entry(index));
  }

  entry(index) {
    const page = Math.floor(index / PAGE);
    const entries = this.pages.get(page);
    if (entries === undefined) this.load(page);
    return entries?.[index % PAGE];
  }

  // A page that was scrolled to.
  async load(page) {
    this.loading ??= new Set();
    if (this.loading.has(page)) return;
    this.loading.add(page);
    try {
      const answer = await this.readPage(page);
      this.pages.set(page, answer.entries);
      this.rows.draw();
    } catch (error) {
      this.app.fail(error);
    } finally {
      this.loading.delete(page);
    }
  }

  draw() {
    if (this.summary === undefined) return;
    const { holders, waiting, deadlock, denied } = this.summary;
    const first = this.pages.get(0) ?? [];
    fill(this.state, [
      denied ? 'It may not be read. ' : null,
      holders === 0 ? 'Nobody holds it' : `Held by ${holders === 1 ? title(first[0] ?? {}) : number(holders)}`,
      waiting === 0 ? ', nobody waits.' : `, ${count(waiting, 'waits', 'wait')}.`,
      deadlock ? badge('bad', 'deadlock') : null,
    ]);
    const cards = first.slice(0, CARDS).map((entry) => card(entry));
    const more = this.total - cards.length;
    if (more > 0) cards.push(make('li', { class: 'more' }, `${number(more)} more`));
    const picture = JSON.stringify([first.slice(0, CARDS), more]);
    if (this.picture !== picture) {
      this.picture = picture;
      fill(this.cards, cards);
    }
    this.lane.hidden = this.total === 0;
    this.rows.element.hidden = this.total === 0;
    for (const shown of this.cards.querySelectorAll('[data-since]')) say(shown, age(Number(shown.dataset.since)));
    this.rows.draw();
  }

  async readJournal() {
    try {
      const { entries } = await get('/api/journal', { name: this.name });
      fill(this.journal, entries.length === 0 ? [nothing()] : [timeline(entries), history(entries)]);
    } catch (error) {
      fill(this.journal, [make('p', { class: 'nothing' }, error.message)]);
    }
  }
}

function card(entry) {
  const since = entry.since_ms === null ? null : make('span', { 'data-since': entry.since_ms }, age(entry.since_ms));
  return make(
    'li',
    { class: entry.holder ? 'held' : 'waits' },
    make('b', {}, title(entry)),
    make('span', {}, process(entry)),
    make('span', {}, entry.holder ? 'holds' : `place ${number(entry.position)}`, since ? [', ', since] : null),
  );
}

function nothing() {
  return make('p', { class: 'nothing' }, 'No hold is written: clients write them with --journal 100.');
}

const HEADS = ['Who', 'Process', 'Kind', 'Since', 'Waited', 'Held', 'Ended'];

// The last holds, the newest first.
function history(entries) {
  const rows = entries.slice(-100).reverse().map((entry) => [
    entry.label || entry.node,
    process(entry),
    entry.kind,
    time(entry.since_ms),
    `${number(entry.waited_ms)} ms`,
    entry.held_ms === null ? '–' : `${number(entry.held_ms)} ms`,
    entry.holds ? 'holds' : (entry.why ?? entry.ending ?? 'without a word'),
  ]);
  const row = (cells) => make('tr', {}, cells.map((cell) => make('td', {}, cell)));
  return make(
    'div',
    { class: 'plain', tabindex: 0, role: 'region', 'aria-label': 'Earlier holds' },
    make(
      'table',
      {},
      make('thead', {}, make('tr', {}, HEADS.map((head) => make('th', { scope: 'col' }, head)))),
      make('tbody', {}, rows.map(row)),
    ),
  );
}
