// The sessions, and what the doctor finds.

import { Rows } from './rows.js';
import { badge, count, fill, get, lockLink, make, number, process, say, time } from './text.js';

function links(names, all) {
  const more = all - names.length;
  const parts = names.flatMap((name, at) => (at === 0 ? [lockLink(name)] : [', ', lockLink(name)]));
  return more > 0 ? [...parts, ` and ${number(more)} more`] : parts;
}

export function sessions(main, app) {
  const said = make('p', { class: 'said' });
  const rows = new Rows({
    label: 'Sessions',
    columns: [
      { head: 'Session', look: 'id', cell: (row) => row.session },
      { head: 'Process', look: 'wide', cell: process },
      { head: 'Label', cell: (row) => row.label ?? '–' },
      { head: 'Holds', look: 'wide', cell: (row) => links(row.holds, row.holding) },
      { head: 'Waits for', look: 'wide', cell: (row) => links(row.waits, row.waiting) },
    ],
    key: (row) => row.session,
    stamp: (row) => JSON.stringify(row),
  });
  main.append(make('h1', {}, 'Sessions'), said, rows.element);
  let version;
  const update = async () => {
    if (version === app.version) return;
    version = app.version;
    const { all, sessions: shown } = await get('/api/sessions');
    say(said, `${count(all, 'session holds', 'sessions hold')} or wait${all === 1 ? 's' : ''}.`);
    rows.element.hidden = all === 0;
    rows.set(shown.length, (index) => shown[index]);
  };
  return { update, rows };
}

export function doctor(main) {
  const said = make('p', { class: 'said', role: 'status' }, 'The doctor looks through all locks.');
  const list = make('ul', { class: 'findings' });
  main.append(make('h1', {}, 'Doctor'), said, list);
  let seen;
  const update = async (event) => {
    if (!event?.examined_ms || event.examined_ms === seen) return;
    seen = event.examined_ms;
    const { findings, unchecked, examined_ms: at } = await get('/api/doctor');
    const found = findings.length === 0 ? 'Nothing is wrong' : count(findings.length, 'finding', 'findings');
    say(said, `${found}, by a look at ${time(at)}.`);
    fill(list, [
      ...findings.map((finding) =>
        make('li', {}, make('p', {}, badge('bad', finding.finding), ' ', links(finding.locks, finding.locks.length)), make('p', {}, finding.why)),
      ),
      ...unchecked.map((why) => make('li', {}, make('p', {}, badge('note', 'not checked'), ' ', why))),
    ]);
  };
  return { update };
}
