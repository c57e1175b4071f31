// All locks: searched, filtered and sorted here, because the server sends only what has changed.

import { Rows } from './rows.js';
import { age, badge, count, lockLink, make, number, process, say, title } from './text.js';

const since = (row) => row.holder?.since_ms ?? Infinity;

const COLUMNS = [
  { head: 'Lock', look: 'wide', cell: (row) => nameOf(row), sort: (row) => row.name },
  { head: 'Kind', cell: (row) => row.kind ?? 'denied', sort: (row) => row.kind ?? '' },
  { head: 'Holder', look: 'wide', cell: (row) => holderOf(row), sort: (row) => (row.holder ? title(row.holder) : '') },
  { head: 'Process', look: 'wide', cell: (row) => (row.holder ? process(row.holder) : ''), sort: (row) => (row.holder ? process(row.holder) : '') },
  { head: 'Age', look: 'end', cell: (row) => age(row.holder?.since_ms), sort: since },
  { head: 'Waiting', look: 'end', cell: (row) => number(row.waiting), sort: (row) => -row.waiting },
];

const FILTERS = {
  all: () => true,
  held: (row) => row.holders > 0,
  'waited for': (row) => row.waiting > 0,
  deadlocked: (row) => row.deadlock,
};

function nameOf(row) {
  return [lockLink(row.name), row.deadlock ? badge('bad', 'deadlock') : null];
}

function holderOf(row) {
  if (row.denied) return 'may not be read';
  if (!row.holder) return 'nobody';
  const others = row.holders - 1;
  const owner = row.holder.owner ? ` (${row.holder.owner})` : '';
  return title(row.holder) + owner + (others > 0 ? ` and ${count(others, 'other', 'others')}` : '');
}

// What a search looks into.
function words(row) {
  const holder = row.holder ?? {};
  const texts = [row.name, row.kind, holder.label, holder.owner, holder.host, holder.pid, holder.value];
  return texts.filter(Boolean).join(' ').toLowerCase();
}

// What stays while other views are open.
const choice = { search: '', filter: 'all', column: COLUMNS[0], isDown: false };

export function show(main, app) {
  const search = make('input', {
    id: 'search',
    type: 'search',
    placeholder: 'name, holder, host',
    autocomplete: 'off',
    spellcheck: 'false',
  });
  search.value = choice.search;
  const filter = make(
    'select',
    { id: 'filter' },
    Object.keys(FILTERS).map((word) => make('option', { value: word }, word)),
  );
  filter.value = choice.filter;
  const total = make('p', { class: 'total', role: 'status' });
  const rows = new Rows({
    label: 'Locks',
    columns: COLUMNS,
    key: (row) => row.name,
    stamp: (row) => row,
    mark: (row) => (row.deadlock ? 'bad' : row.holders > 0 ? 'held' : ''),
    onsort: (column) => {
      choice.isDown = choice.column === column && !choice.isDown;
      choice.column = column;
      update();
    },
  });
  const update = () => {
    const wanted = choice.search.toLowerCase().split(/\s+/).filter(Boolean);
    const isWanted = (row) => {
      if (!FILTERS[choice.filter](row)) return false;
      const text = wanted.length > 0 ? words(row) : '';
      return wanted.every((word) => text.includes(word));
    };
    const shown = [...app.rows.values()].filter(isWanted);
    shown.sort((one, other) => {
      const [a, b] = [one, other].map(choice.column.sort);
      const order = a < b ? -1 : a > b ? 1 : one.name < other.name ? -1 : 1;
      return choice.isDown ? -order : order;
    });
    rows.sorted(choice.column, choice.isDown);
    rows.set(shown.length, (index) => shown[index]);
    const waiting = shown.reduce((sum, row) => sum + row.waiting, 0);
    say(total, `${count(shown.length, 'lock', 'locks')}, ${number(waiting)} waiting`);
    nothing.hidden = shown.length > 0 || !app.isRead;
    say(nothing, app.rows.size === 0 ? 'No lock is in use.' : 'No lock matches.');
  };
  const nothing = make('p', { class: 'nothing', hidden: true });
  search.addEventListener('input', () => {
    choice.search = search.value;
    update();
  });
  filter.addEventListener('change', () => {
    choice.filter = filter.value;
    update();
  });
  main.append(
    make('h1', { class: 'hidden' }, 'Locks'),
    make(
      'div',
      { class: 'tools' },
      make('label', { for: 'search', class: 'hidden' }, 'Search locks'),
      search,
      make('label', { for: 'filter' }, 'Show'),
      filter,
      total,
    ),
    rows.element,
    nothing,
  );
  update();
  return { update, rows, search };
}
