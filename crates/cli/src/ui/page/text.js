// Text of other clients, made visible, and the elements that show it.
//
// Each string becomes a text node, never markup. What steers or hides is written out.

const UNSEEN =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]/gu;

export function visible(text) {
  return String(text).replace(UNSEEN, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
}

const SVG = 'http://www.w3.org/2000/svg';
const IN_SVG = new Set(['svg', 'g', 'rect', 'line', 'path', 'circle', 'text', 'title']);

// An element. Children are elements, or text; what is null is left out.
export function make(tag, properties = {}, ...children) {
  const element = IN_SVG.has(tag)
    ? document.createElementNS(SVG, tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? '' : visible(value));
  }
  fill(element, children);
  return element;
}

export function fill(element, children) {
  const nodes = children.flat().filter((child) => child !== null && child !== undefined);
  element.replaceChildren(
    ...nodes.map((child) => (child instanceof Node ? child : document.createTextNode(visible(child)))),
  );
}

// Changes a text only if it is another one.
export function say(element, text) {
  const seen = visible(text);
  if (element.textContent !== seen) element.textContent = seen;
}

const UNITS = [['d', 86400], ['h', 3600], ['m', 60], ['s', 1]];

// A time span for people, of its two largest units.
export function span(ms) {
  if (ms === null || ms === undefined) return '–';
  let left = Math.max(0, ms) / 1000;
  if (left < 1) return `${Math.round(left * 1000)}ms`;
  const parts = [];
  for (const [unit, seconds] of UNITS) {
    const count = Math.floor(left / seconds);
    if (count > 0 || (unit === 's' && parts.length === 0)) parts.push(`${count}${unit}`);
    left -= count * seconds;
    if (parts.length === 2) break;
  }
  return parts.join(' ');
}

// The clock of the server, which the times of this page are by.
let offset = 0;

export function setClock(ms) {
  offset = ms - Date.now();
}

export function now() {
  return Date.now() + offset;
}

export function age(sinceMs) {
  if (sinceMs === null || sinceMs === undefined) return '–';
  const ms = Math.max(0, now() - sinceMs);
  return span(ms - (ms % 1000)) === '0ms' ? '0s' : span(ms - (ms % 1000));
}

export function time(ms) {
  const at = new Date(ms);
  const two = (number) => String(number).padStart(2, '0');
  const clock = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  const today = new Date(now()).toDateString() === at.toDateString();
  return today ? clock : `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock}`;
}

export function number(count) {
  return count.toLocaleString('en').replaceAll(',', ' ');
}

export function count(many, one, several) {
  return `${number(many)} ${many === 1 ? one : several}`;
}

// What an entry is called: its label, the value of a candidate, or its node.
export function title(entry) {
  return entry.label || entry.value || entry.node || 'session ' + entry.session;
}

export function process(entry) {
  if (!entry.host) return 'another program';
  return `${entry.host}:${entry.pid}`;
}

export function lockLink(name) {
  return make('a', { href: `#/lock/${encodeURIComponent(name)}`, class: 'name' }, name);
}

export function badge(kind, text) {
  return make('span', { class: `badge ${kind}` }, text);
}

export async function get(path, parameters = {}) {
  const answer = await fetch(`${path}?${new URLSearchParams(parameters)}`);
  if (answer.status === 401) location.reload();
  return bodyOf(answer);
}

// What lockkeeper says, or what a proxy says in its place.
export async function bodyOf(answer) {
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(body.error ?? `${answer.status} ${answer.statusText}`);
  return body;
}
