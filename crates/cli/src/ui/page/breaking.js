// Asks before a ticket is removed, and says what became of it.

import { bodyOf, count, make, number, process, title } from './text.js';

export function askToBreak(app, name, entry) {
  const asksHolder = entry.holder && entry.kind !== 'candidate';
  const grace = make('input', { id: 'grace', type: 'number', min: 0, max: 3600, step: 1, value: 5 });
  const told = make('ul', { class: 'told' });
  const cancel = make('button', { type: 'button', onclick: () => dialog.close(), autofocus: true }, 'Cancel');
  const remove = make('button', { type: 'button', class: 'danger' }, 'Remove the ticket');
  const tell = (...lines) => told.append(...lines.map((line) => make('li', {}, line)));
  remove.addEventListener('click', async () => {
    if (asksHolder && (grace.value === '' || !grace.reportValidity())) {
      tell('Give the seconds as a whole number from 0 to 3600. With 0 it is not asked.');
      grace.focus();
      return;
    }
    remove.disabled = true;
    const graceMs = asksHolder ? Math.round(Number(grace.value) * 1000) : 0;
    if (graceMs > 0) tell(`The holder is asked, and has ${count(graceMs / 1000, 'second', 'seconds')}.`);
    try {
      tell(...(await order(app, name, entry, graceMs)));
      remove.hidden = true;
    } catch (error) {
      tell(error.message);
      remove.disabled = false;
    }
    cancel.textContent = 'Close';
    cancel.focus();
  });
  const dialog = make(
    'dialog',
    { 'aria-labelledby': 'question', onclose: () => dialog.remove() },
    make('h2', { id: 'question' }, `Remove ${title(entry)} from the queue of ${name}?`),
    make(
      'dl',
      {},
      facts(entry).flatMap(([word, value]) => [make('dt', {}, word), make('dd', {}, value)]),
    ),
    asksHolder
      ? make('p', {}, 'The holder is asked first. If it does not release the lock in time, its ticket is removed, and it may still be working when the next one holds.')
      : make('p', {}, 'It is not asked. Its call fails.'),
    asksHolder ? make('p', {}, make('label', { for: 'grace' }, 'Seconds that it has: '), grace) : null,
    make('div', { role: 'status' }, told),
    make('div', { class: 'buttons' }, cancel, remove),
  );
  document.body.append(dialog);
  dialog.showModal();
}

function facts(entry) {
  const facts = [
    ['State', entry.holder ? 'holder' : `waiting, place ${number(entry.position)}`],
    ['Process', process(entry)],
    ['Owner', entry.owner],
    ['Node', entry.node],
    ['Token', String(entry.token)],
    ['Session', entry.session],
  ];
  return facts.filter(([, value]) => value);
}

async function order(app, name, entry, graceMs) {
  const answer = await fetch('/api/break', {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-lockkeeper-token': app.about.token },
    body: JSON.stringify({ name, node: entry.node, token: entry.token, grace_ms: graceMs }),
  });
  return (await bodyOf(answer)).steps;
}
