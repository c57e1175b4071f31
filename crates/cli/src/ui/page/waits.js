// Who waits for whom, across locks and hosts. Circles of owners stand first.

import { age, badge, count, fill, get, lockLink, make, number, process, say } from './text.js';

const RING = 150;

export function show(main, app) {
  const circles = make('div', { class: 'circles' });
  const trees = make('div', { class: 'trees' });
  main.append(make('h1', {}, 'Who waits for whom'), circles, trees);
  let seen;
  let version;
  const update = async () => {
    for (const shown of trees.querySelectorAll('[data-since]')) {
      say(shown, age(Number(shown.dataset.since)));
    }
    if (version === app.version) return;
    version = app.version;
    const waits = await get('/api/waits');
    const picture = JSON.stringify([waits.deadlocks, waits.trees]);
    if (picture !== seen) {
      seen = picture;
      fill(circles, waits.deadlocks.map(circle));
      fill(trees, waits.trees.length === 0 ? [make('p', { class: 'nothing' }, 'Nobody waits.')] : waits.trees.map(tree));
      const more = waits.all - waits.trees.length;
      if (more > 0) trees.append(make('p', { class: 'nothing' }, `${number(more)} more`));
    }
  };
  return { update };
}

function circle(steps) {
  const said = steps.map((step) =>
    make('li', {}, make('b', {}, step.who), ' waits for ', lockLink(step.lock), ', which ', make('b', {}, step.on), ' has or gets first'),
  );
  return make(
    'section',
    { class: 'deadlock' },
    make('h2', {}, badge('bad', 'deadlock'), ` ${count(steps.length, 'owner', 'owners')} in a circle`),
    make('div', { class: 'ring' }, ring(steps), make('ol', {}, said)),
  );
}

// The owners on a ring, each with an arrow to the one that it waits for.
function ring(steps) {
  const many = steps.length;
  const at = (index, radius = RING - 60) => {
    const angle = (2 * Math.PI * index) / many - Math.PI / 2;
    return [RING + radius * Math.cos(angle), RING + radius * Math.sin(angle)];
  };
  const arrows = steps.map((_, index) => {
    const [x1, y1] = at(index + 0.18);
    const [x2, y2] = at(index + 0.82);
    const [cx, cy] = at(index + 0.5, RING - 40);
    const tip = Math.atan2(y2 - cy, x2 - cx);
    const wing = (turn) => `${x2 - 9 * Math.cos(tip + turn)} ${y2 - 9 * Math.sin(tip + turn)}`;
    return make('path', { class: 'arrow', d: `M${x1} ${y1}Q${cx} ${cy} ${x2} ${y2}M${wing(0.5)}L${x2} ${y2}L${wing(-0.5)}` });
  });
  const names = steps.map((step, index) => {
    const [x, y] = at(index);
    const short = [...step.who].length > 14 ? `${[...step.who].slice(0, 13).join('')}…` : step.who;
    return make('g', {}, make('circle', { class: 'dot', cx: x, cy: y, r: 7 }), make('text', { x, y: y > RING ? y + 25 : y - 13, 'text-anchor': 'middle' }, short));
  });
  const label = `${steps.map((step) => step.who).join(', then ')}, and back`;
  return make('svg', { class: 'circle', viewBox: `0 30 ${2 * RING} ${2 * RING - 55}`, role: 'img', 'aria-label': label }, arrows, names);
}

function tree(root) {
  return make('section', { class: 'tree' }, make('h2', {}, who(root), ` keeps ${number(root.blocked)} waiting`), locksOf(root));
}

function who(agent) {
  return [make('b', {}, agent.owner ?? agent.label ?? agent.node), ' ', make('span', { class: 'quiet' }, process(agent))];
}

function locksOf(agent) {
  const locks = agent.holds.map((held) => {
    const more = held.waiting - held.waiters.length;
    const waiters = held.waiters.map((waiter) =>
      make(
        'li',
        {},
        make('span', { class: 'place' }, number(waiter.position)),
        who(waiter),
        waiter.since_ms === null ? null : [' for ', make('span', { 'data-since': waiter.since_ms }, age(waiter.since_ms))],
        waiter.above ? [' ', badge('note', 'told above')] : null,
        waiter.holds?.length > 0 ? locksOf(waiter) : null,
      ),
    );
    if (more > 0) waiters.push(make('li', { class: 'quiet' }, `${number(more)} more`));
    return make('li', {}, 'holds ', lockLink(held.lock), make('ol', {}, waiters));
  });
  return make('ul', {}, locks);
}
