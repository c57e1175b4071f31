// The journal of a lock as a picture: a bar for each hold, and a thin line for the wait before it.

import { make, now, span, time, title } from './text.js';

const WIDTH = 1000;
const LANE = 22;
const LANES = 6;
const MOST = 60;

export function timeline(entries) {
  const shown = entries.slice(-MOST);
  const end = now();
  const begins = shown.map((entry) => entry.since_ms - entry.waited_ms);
  const from = Math.min(...begins, end - 1000);
  const x = (ms) => ((Math.min(Math.max(ms, from), end) - from) / (end - from)) * WIDTH;
  const free = [];
  const bars = shown.map((entry) => {
    const until = entry.held_ms === null ? (entry.holds ? end : entry.since_ms) : entry.since_ms + entry.held_ms;
    // Holds of readers and of permits stand below each other.
    let lane = free.findIndex((at) => at <= entry.since_ms);
    if (lane < 0) lane = Math.min(free.length, LANES - 1);
    free[lane] = until;
    return bar(entry, lane, x, until);
  });
  const height = Math.max(1, free.length) * LANE + 24;
  const label = `${shown.length} holds from ${time(from)} until now`;
  return make(
    'svg',
    { class: 'timeline', viewBox: `0 0 ${WIDTH} ${height}`, role: 'img', 'aria-label': label },
    bars,
    make('line', { class: 'axis', x1: 0, x2: WIDTH, y1: height - 18, y2: height - 18 }),
    make('text', { x: 0, y: height - 4 }, time(from)),
    make('text', { x: WIDTH, y: height - 4, 'text-anchor': 'end' }, 'now'),
  );
}

function bar(entry, lane, x, until) {
  const y = lane * LANE + 4;
  const kind = entry.holds ? 'holds' : entry.ending === 'lost' ? 'lost' : entry.ending ? 'ended' : 'silent';
  const left = x(entry.since_ms);
  const about = `${title(entry)}: ${entry.holds ? 'holds' : (entry.ending ?? 'without a word')}, held ${span(until - entry.since_ms)}, waited ${span(entry.waited_ms)}`;
  return make(
    'g',
    {},
    make('title', {}, about),
    make('line', { class: 'wait', x1: x(entry.since_ms - entry.waited_ms), x2: left, y1: y + 7, y2: y + 7 }),
    make('rect', { class: kind, x: left, y, width: Math.max(2, x(until) - left), height: 14, rx: 2 }),
  );
}
