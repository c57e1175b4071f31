// Which view is open, and the stream of changes that keeps it up to date.
//
// A page that is hidden closes its stream, so that nobody reads for it.

import * as lists from './lists.js';
import * as lock from './lock.js';
import * as locks from './locks.js';
import * as waits from './waits.js';
import { age, get, say, setClock, span, visible } from './text.js';

const VIEWS = {
  locks: locks.show,
  lock: lock.show,
  waits: waits.show,
  sessions: lists.sessions,
  doctor: lists.doctor,
};

const main = document.getElementById('main');
const part = (id) => document.getElementById(id);
const app = { rows: new Map(), about: {}, isRead: false, fail };
let view;
let stream;
let last;
let heard;

function fail(error) {
  say(part('error'), error?.message ?? error);
  part('error').hidden = false;
}

function route() {
  const [, word, name] = location.hash.split('/');
  const kind = Object.hasOwn(VIEWS, word) ? word : 'locks';
  try {
    return { kind, name: decodeURIComponent(name ?? '') };
  } catch {
    return { kind: 'locks', name: '' };
  }
}

function open() {
  const { kind, name } = route();
  document.title = kind === 'lock' ? `${visible(name)}: lock` : 'Locks';
  for (const link of document.querySelectorAll('nav a')) {
    const isOpen = link.hash === `#/${kind}` || (kind === 'lock' && link.hash === '#/locks');
    if (isOpen) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  main.replaceChildren();
  main.className = kind;
  view = VIEWS[kind](main, app, name);
  listen();
}

function listen() {
  stream?.close();
  if (document.hidden) return;
  const { kind, name } = route();
  const looks = new URLSearchParams();
  if (kind === 'lock') looks.set('lock', name);
  if (kind === 'doctor') looks.set('doctor', 'true');
  if (last) looks.set('since', last);
  stream = new EventSource(`/api/events?${looks}`);
  const mine = view;
  stream.onmessage = (message) => {
    const boot = last && last.split('-')[0];
    last = message.lastEventId;
    app.version = last;
    take(JSON.parse(message.data), mine);
    // The word of a server that has started again is another one.
    if (boot && !last.startsWith(`${boot}-`)) again();
  };
  stream.onerror = () => {
    state('lost', 'no answer from lockkeeper ui');
    // A login that is over, a proxy without its server, or a server that has started again.
    if (stream.readyState === EventSource.CLOSED) setTimeout(again, 2000);
  };
}

// Asks the server about itself until it answers.
async function again() {
  try {
    app.about = await get('/api/about');
  } catch (error) {
    fail(error);
    setTimeout(again, 2000);
    return;
  }
  open();
}

async function take(event, mine) {
  setClock(event.ages.now_ms);
  heard = event;
  if (event.whole) app.rows.clear();
  for (const row of event.changed) app.rows.set(row.name, row);
  for (const name of event.gone) app.rows.delete(name);
  app.isRead = event.ages.read_ms !== null;
  part('error').hidden = event.ages.error === null;
  say(part('error'), event.ages.error ?? '');
  tell();
  try {
    if (mine === view) await mine.update(event);
  } catch (error) {
    fail(error);
  }
}

function state(kind, text) {
  part('state').className = `state ${kind}`;
  say(part('state'), text);
}

function tell() {
  if (!heard) return;
  const { ages, deadlocks, round_ms: round } = heard;
  if (ages.error) state('lost', `read ${age(ages.read_ms)} ago`);
  else if (deadlocks > 0) state('bad', deadlocks === 1 ? 'a deadlock' : `${deadlocks} deadlocks`);
  else state('live', 'live');
  const each = round === null ? '' : `, each queue within ${span(Math.max(round, 1000))}`;
  say(part('cost'), `At most ${app.about.requests} requests a second for all viewers${each}.`);
}

function press(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return;
  const isTyping = event.target.matches('input, select, textarea');
  if (event.key === '/' && !isTyping && view.search) {
    event.preventDefault();
    view.search.focus();
  } else if (event.key === 'Escape' && isTyping) {
    event.target.blur();
  } else if (event.key === 'Escape' && route().kind !== 'locks') {
    location.hash = '#/locks';
  } else if ((event.key === 'ArrowDown' || event.key === 'ArrowUp') && event.target.type !== 'number') {
    if (event.target.matches('select') || !view.rows) return;
    event.preventDefault();
    view.rows.step(event.key === 'ArrowDown' ? 1 : -1);
  }
}

window.addEventListener('hashchange', () => {
  open();
  main.focus({ preventScroll: true });
});
document.addEventListener('visibilitychange', listen);
document.addEventListener('keydown', press);
// Ages grow also while nothing is heard.
setInterval(() => view?.rows?.draw(), 1000);

try {
  app.about = await get('/api/about');
  say(part('place'), `${app.about.root} on ${app.about.servers}`);
  open();
} catch (error) {
  fail(error);
}
