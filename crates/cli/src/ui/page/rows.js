// A table that draws only the rows in sight, whatever their number.
//
// A row that stays keeps its element, so that the focus in it stays too.

import { fill, make, say } from './text.js';

const HEIGHT = 36;
const BEYOND = 8;

export class Rows {
  // Columns: { head, cell(item, index), sort, look }; `look` is a class: wide, end, id or act. A cell is text, or elements that are made
  // again when `stamp(item)` differs.
  constructor({ label, columns, key, stamp, mark, onsort }) {
    Object.assign(this, { columns, key, stamp, mark });
    this.drawn = new Map();
    this.count = 0;
    this.item = () => undefined;
    this.above = make('tr', { 'aria-hidden': 'true', class: 'gap' });
    this.below = make('tr', { 'aria-hidden': 'true', class: 'gap' });
    this.body = make('tbody', {}, this.above, this.below);
    this.heads = columns.map((column) => this.headOf(column, onsort));
    this.table = make(
      'table',
      { 'aria-label': label },
      make('thead', {}, make('tr', { 'aria-rowindex': 1 }, this.heads)),
      this.body,
    );
    this.element = make(
      'div',
      { class: 'rows', tabindex: 0, role: 'region', 'aria-label': label, onscroll: () => this.draw() },
      this.table,
    );
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  headOf(column, onsort) {
    if (!column.sort) return make('th', { scope: 'col', class: column.look }, column.head);
    const button = make('button', { type: 'button', onclick: () => onsort(column) }, column.head);
    return make('th', { scope: 'col', class: column.look }, button);
  }

  // Says by which column the rows are sorted.
  sorted(column, isDown) {
    this.columns.forEach((other, at) => {
      if (other === column) this.heads[at].setAttribute('aria-sort', isDown ? 'descending' : 'ascending');
      else this.heads[at].removeAttribute('aria-sort');
    });
  }

  set(count, item) {
    this.count = count;
    this.item = item;
    this.table.setAttribute('aria-rowcount', count + 1);
    this.draw();
  }

  // The numbers of the rows in sight.
  sight() {
    const first = Math.max(0, Math.floor(this.element.scrollTop / HEIGHT) - BEYOND);
    const seen = Math.ceil((this.element.clientHeight || 600) / HEIGHT) + 2 * BEYOND;
    return [Math.min(first, Math.max(0, this.count - 1)), Math.min(this.count, first + seen)];
  }

  draw() {
    const [first, end] = this.sight();
    const kept = new Map();
    let before = this.above;
    for (let index = first; index < end; index += 1) {
      const item = this.item(index);
      const key = item === undefined ? `nothing ${index}` : this.key(item);
      let row = this.drawn.get(key);
      if (row === undefined || kept.has(key)) row = { element: make('tr', {}, this.columns.map(cellOf)) };
      this.fill(row, item, index);
      if (before.nextSibling !== row.element) before.after(row.element);
      kept.set(key, row);
      before = row.element;
    }
    for (const [key, row] of this.drawn) if (kept.get(key) !== row) row.element.remove();
    this.drawn = kept;
    this.above.style.height = `${first * HEIGHT}px`;
    this.below.style.height = `${Math.max(0, this.count - end) * HEIGHT}px`;
  }

  fill(row, item, index) {
    row.element.setAttribute('aria-rowindex', index + 2);
    row.element.className = item === undefined ? 'loading' : (this.mark?.(item) ?? '');
    const stamp = item === undefined ? undefined : this.stamp(item);
    const isNew = row.stamp === undefined || row.stamp !== stamp;
    row.stamp = stamp;
    this.columns.forEach((column, at) => {
      const cell = row.element.children[at];
      const content = item === undefined ? '' : column.cell(item, index);
      if (typeof content === 'string') say(cell, content);
      else if (isNew) fill(cell, [content]);
    });
  }

  // Moves the focus to the link or button in the next row, or the one before.
  step(by) {
    const rows = [...this.body.querySelectorAll('tr:not(.gap)')];
    const at = rows.findIndex((row) => row.contains(document.activeElement));
    const next = at < 0 ? rows[0] : rows[at + by];
    next?.querySelector('a, button')?.focus();
  }
}

function cellOf(column) {
  return make('td', { class: column.look });
}
