// The events as a table, some hundred rows at a time.

import { actor, predicate, seconds, translated } from "./words.mjs";

const ROWS = 200;
/** How long a choice rests before the table goes there. While a reader scrubs, it stays as it is. */
const REST_MS = 300;

/** A table of the run's events; a click on a row chooses its event. */
export class Table {
  first = 0;
  filling = 0;

  constructor(find, choose) {
    this.find = find;
    find("rows").addEventListener("click", (event) => {
      const row = event.target.closest("tr");
      if (row) choose(Number(row.dataset.index));
    });
    find("table").addEventListener("toggle", () => this.show(this.run, this.chosen));
    find("earlier").addEventListener("click", () => this.fill(this.first - ROWS));
    find("later").addEventListener("click", () => this.fill(this.first + ROWS));
  }

  /** Shows the rows around the chosen event, if the table is open. */
  show(run, chosen) {
    Object.assign(this, { run, chosen });
    if (!this.find("table").open || !run) return;
    const isShown = this.filled === run && chosen >= this.first && chosen < this.first + ROWS;
    clearTimeout(this.filling);
    if (!isShown) this.filling = setTimeout(() => this.fill(Math.floor(chosen / ROWS) * ROWS), REST_MS);
    this.mark();
  }

  mark() {
    for (const row of this.find("rows").querySelectorAll("[aria-current]")) row.removeAttribute("aria-current");
    this.find("rows").querySelector(`[data-index="${this.chosen}"]`)?.setAttribute("aria-current", "true");
  }

  fill(first) {
    const { events } = (this.filled = this.run);
    this.first = Math.max(0, Math.min(first, Math.floor((events.length - 1) / ROWS) * ROWS));
    const rows = events.slice(this.first, this.first + ROWS).map(({ event, world }) => {
      const row = document.createElement("tr");
      row.dataset.index = event.index;
      const cells = [seconds(event.at, 3), translated(world.title).split(/[:：]/)[0], actor(event.actor), predicate(event, world.checks)];
      row.append(...cells.map((words) => Object.assign(document.createElement("td"), { textContent: words })));
      return row;
    });
    this.find("rows").replaceChildren(...rows);
    this.mark();
    this.find("earlier").disabled = this.first === 0;
    this.find("later").disabled = this.first + ROWS >= events.length;
  }
}
