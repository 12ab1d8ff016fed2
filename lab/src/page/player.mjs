// Which event is chosen, and the ways to choose another: steps, keys, the wheel, playing.

import { text } from "./words.mjs";

/** How long an event is shown while the run is played, and how long a letter of its words takes. */
const SHOWN_MS = 700;
const LETTER_MS = 45;
/** What has the focus keeps its own keys. The others are the player's. */
const KEPT = [
  ["select, dialog, [type=file]", /./],
  ["[type=range], .wide, pre", /Arrow|Home|End/],
  ["button, summary, [type=checkbox], .wide, pre", / /],
];

/** Chooses events of a run. `show` is called with each choice. */
export class Player {
  chosen = 0;
  count = 0;
  timer = 0;

  /** `wordsShown` returns how many letters a reader has to read before the next event. */
  constructor(find, { show, wordsShown, decisive }) {
    Object.assign(this, { find, show, wordsShown });
    const press = (name, act) => find(name).addEventListener("click", act);
    press("previous", () => this.step(-1));
    press("next", () => this.step(1));
    press("play", () => this.toggle());
    press("decisive", decisive);
    find("time").addEventListener("input", () => this.choose(Number(find("time").value)));
    const wheel = (event) => {
      const moved = event.deltaX || event.deltaY;
      event.preventDefault();
      if (moved) this.step(Math.sign(moved));
    };
    find("time").addEventListener("wheel", wheel, { passive: false });
    find("worlds").addEventListener("wheel", (event) => event.deltaX && wheel(event), { passive: false });
    const keys = {
      ArrowLeft: () => this.step(-1),
      ArrowRight: () => this.step(1),
      Home: () => this.choose(0),
      End: () => this.choose(this.count - 1),
      " ": () => this.toggle(),
      d: decisive,
      D: decisive,
    };
    document.addEventListener("keydown", (event) => {
      const isOwn = KEPT.some(([kind, kept]) => event.target.closest?.(kind) && kept.test(event.key));
      const isOther = event.ctrlKey || event.metaKey || event.altKey || !this.count;
      if (isOther || isOwn || !keys[event.key]) return;
      event.preventDefault();
      keys[event.key]();
    });
  }

  /** A run with this many events: another, or the same that has grown. */
  open(count, chosen, isOther) {
    this.count = count;
    this.find("time").max = count - 1;
    this.choose(chosen, { stops: isOther });
  }

  step(by) {
    this.choose(this.chosen + by);
  }

  choose(number, { stops = true } = {}) {
    if (stops) this.stop();
    this.chosen = Math.min(this.count - 1, Math.max(0, Number.isInteger(number) ? number : 0));
    this.find("time").value = this.chosen;
    this.show(this.chosen);
  }

  toggle() {
    if (this.timer) return this.stop();
    if (this.chosen === this.count - 1) this.choose(0);
    this.wait();
  }

  wait() {
    const speed = Number(this.find("speed").value);
    this.timer = setTimeout(() => this.advance(), (SHOWN_MS + LETTER_MS * this.wordsShown()) / speed);
    this.label();
  }

  advance() {
    this.choose(this.chosen + 1, { stops: false });
    if (this.chosen === this.count - 1) this.stop();
    else this.wait();
  }

  stop() {
    clearTimeout(this.timer);
    this.timer = 0;
    this.label();
  }

  label() {
    const key = this.timer ? "stop" : "play";
    this.find("play").textContent = this.timer ? "❚❚" : "▶";
    this.find("play").setAttribute("aria-label", text(key));
    this.find("play").title = text(key);
  }
}
