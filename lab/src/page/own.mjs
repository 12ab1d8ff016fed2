// Your own services: the locks that are held, their fences, and the storage's decisions as they happen.

import { TOKEN, isRejected, request } from "./live.mjs";
import { seconds, text } from "./words.mjs";

/** How often the lab is asked for the locks. */
const ASK_EVERY_MS = 1000;
/** How long decisions are watched that nobody sees. */
const REST_AFTER_MS = 60_000;
/** How many decisions are shown, and how many fences are remembered. */
const MOST_DECISIONS = 200;
const MOST_FENCES = 5000;

/** Shows what the lab says of one's own services. */
export class Own {
  fences = new Map();
  decisions = [];
  rows = new Map();
  held = { locks: [] };
  told = "";
  state = "own.connecting";
  rejected = undefined;
  drawing = 0;

  constructor(find) {
    this.find = find;
    find("own-keep").addEventListener("click", () => find("own-break").close());
    find("own-confirm").addEventListener("click", () => this.break());
    if (sessionStorage.getItem(TOKEN)) this.begin();
  }

  /** Asks the lab which services it shows. There may be none. */
  async begin() {
    const answer = await request("/own").catch(() => undefined);
    if (!answer?.ok) return;
    this.own = await answer.json();
    const { locks, storage } = this.own;
    this.find("own").hidden = !locks && !storage;
    this.find("own-held").hidden = !locks;
    this.find("own-watched").hidden = !storage;
    this.draw();
    if (locks) this.ask();
    if (!storage) return;
    this.watch();
    document.addEventListener("visibilitychange", () => this.rest());
  }

  /** A browser has six connections to the lab, for all its tabs. One that nobody sees leaves them to others. */
  rest() {
    clearTimeout(this.resting);
    if (document.hidden) this.resting = setTimeout(() => this.source.close(), REST_AFTER_MS);
    else if (this.source.readyState === EventSource.CLOSED) this.watchAgain();
  }

  /** Asks for the locks again and again, whether there is an answer or not. */
  async ask() {
    try {
      const answer = await request("/own/locks");
      if (answer.status === 401) return this.end();
      const held = answer.ok ? await answer.json() : { error: await answer.text() };
      this.held = { locks: [], ...held };
      await Promise.all(this.held.locks.map(({ name }) => this.askForFence(name)));
    } catch {
      this.held = { locks: [], problem: "unreachable-lab" };
    }
    this.draw();
    setTimeout(() => this.ask(), ASK_EVERY_MS);
  }

  /** The lab was started again. It does not know the token of this page. */
  end() {
    Object.assign(this, { state: "no-token", held: { locks: [], problem: "no-token" } });
    this.draw();
  }

  /** Asks for the fence of a resource that has the name of a lock, once. Decisions tell of its changes. */
  async askForFence(name) {
    if (this.state !== "own.watched" || this.fences.has(name)) return;
    this.fences.set(name, undefined);
    const answer = await request(`/own/fences/${name.split("/").map(encodeURIComponent).join("/")}`);
    const fence = answer.ok ? await answer.json() : undefined;
    if (fence === undefined) this.fences.delete(name);
    else this.raise(name, fence?.token);
  }

  raise(name, token) {
    const known = this.fences.get(name) ?? 0;
    if (this.fences.size >= MOST_FENCES && !this.fences.has(name)) this.fences.clear();
    this.fences.set(name, Math.max(known, token ?? 0));
  }

  /** Watches the decisions. The browser connects again by itself, and goes on after the last one. */
  watch() {
    this.source?.close();
    const source = new EventSource(`/own/decisions?token=${sessionStorage.getItem(TOKEN)}`);
    this.source = source;
    const on = (name, act) => source.addEventListener(name, (event) => {
      act(JSON.parse(event.data));
      this.drawSoon();
    });
    const fail = (reason) => Object.assign(this, { state: "own.no-storage", reason });
    on("begin", () => Object.assign(this, { state: "own.watched" }));
    on("unreachable", ({ reason }) => fail(reason));
    on("end", ({ reason }) => fail(() => text(`own.${reason}`)));
    on("missed", ({ reason }) => {
      // What the fences have become meanwhile is not known.
      this.fences.clear();
      this.add({ missed: reason });
    });
    source.onmessage = (event) => {
      this.decide(JSON.parse(event.data));
      this.drawSoon();
    };
    source.onerror = async () => {
      // If the lab has said why, that is more than that it closed the connection.
      if (this.state !== "own.no-storage") this.state = "unreachable-lab";
      this.drawSoon();
      if (source.readyState !== EventSource.CLOSED) return;
      if (await isRejected()) this.end();
      else setTimeout(() => this.watchAgain(), ASK_EVERY_MS);
    };
  }

  /** Watches from now on: only the browser knew which decision was the last one. */
  watchAgain() {
    if (this.decisions.length && !this.decisions[0].missed) this.add({ missed: "too-old" });
    this.watch();
  }

  decide(decision) {
    this.add(decision);
    if (decision.fence != null) this.raise(decision.resource, decision.fence);
    if (decision.decision === "rejected") this.rejected = decision;
  }

  add(decision) {
    this.decisions.unshift(decision);
    this.decisions.length = Math.min(this.decisions.length, MOST_DECISIONS);
  }

  drawSoon() {
    cancelAnimationFrame(this.drawing);
    this.drawing = requestAnimationFrame(() => this.draw());
  }

  /** Shows all of it, in the language that is spoken now. */
  draw() {
    if (!this.own) return;
    this.drawLocks();
    const reason = typeof this.reason === "function" ? this.reason() : this.reason;
    this.say("own-storage-state", text(this.state, { address: this.own.storage, reason }));
    this.say("own-rejected", this.rejected ? text("own.last-rejected", { ...this.rejected, reason: text(`own.${this.rejected.reason}`) }) : "");
    this.find("own-decisions").replaceChildren(...this.decisions.map((decision) => this.decisionRow(decision)));
  }

  /** Changes a text only if it is another one. Otherwise it would be read aloud again. */
  say(id, words) {
    const said = this.find(id);
    if (said.textContent !== words) said.textContent = words;
  }

  drawLocks() {
    const { locks, error, problem, has_more: hasMore, unreadable } = this.held;
    const count = locks.length;
    let words = [text("own.held", { address: this.own.locks, count: hasMore ? `${count}+` : count })];
    if (hasMore) words.push(text("own.more", { count }));
    if (unreadable) words.push(text("own.unreadable", { count: unreadable }));
    if (error) words = [text("own.no-locks", { reason: error })];
    if (problem) words = [text(problem)];
    this.say("own-locks-state", [this.told, ...words].join(""));
    // Rows stay, so that the focus does.
    const names = new Set(locks.map(({ name }) => name));
    for (const [name, { row }] of this.rows) {
      if (names.has(name)) continue;
      row.remove();
      this.rows.delete(name);
    }
    locks.forEach((lock, place) => {
      if (!this.rows.has(lock.name)) this.rows.set(lock.name, this.lockRow(lock));
      const shown = this.rows.get(lock.name);
      shown.lock = lock;
      const remaining = lock.remaining_ms == null ? "" : `${seconds(lock.remaining_ms)} s`;
      const fence = this.fences.get(lock.name);
      const values = [lock.name, lock.holder, lock.label, remaining, lock.queued, lock.token, fence || ""];
      values.forEach((value, number) => {
        if (shown.cells[number].textContent !== String(value)) shown.cells[number].textContent = value;
      });
      shown.label();
      const { children } = this.find("own-locks");
      if (children[place] !== shown.row) this.find("own-locks").insertBefore(shown.row, children[place] ?? null);
    });
  }

  /** A row for a lock. Its values are set as text. */
  lockRow(lock) {
    const row = document.createElement("tr");
    const cells = Array.from({ length: 7 }, () => row.insertCell());
    const shown = { row, cells, lock, label: () => {} };
    if (this.own.breaks) {
      const button = Object.assign(document.createElement("button"), { type: "button" });
      shown.label = () => {
        button.textContent = text("own.break");
        button.setAttribute("aria-label", text("own.break-lock", lock));
      };
      button.addEventListener("click", () => this.confirm(shown.lock));
      row.insertCell().append(button);
    }
    return shown;
  }

  decisionRow({ time, resource, holder, action, decision, reason, overruled, token, missed }) {
    const row = document.createElement("tr");
    if (missed) {
      const cell = Object.assign(row.insertCell(), { colSpan: 4, className: "bad" });
      cell.textContent = text(`own.missed.${missed}`);
      return row;
    }
    const acts = text(`own.${action}`, { token: token ?? text("nothing") });
    const words = text(overruled ? "own.overruled" : `own.${decision}`, { action: acts, reason: text(`own.${reason ?? overruled}`) });
    for (const value of [time.slice(11, 23), resource, holder, words]) row.insertCell().textContent = value;
    if (reason || overruled) row.lastChild.className = "bad";
    return row;
  }

  /** Asks whether to break a lock. */
  confirm(lock) {
    this.breaking = lock;
    this.say("own-break-words", text("own.break-words", { ...lock, label: lock.label || lock.holder }));
    this.find("own-break").showModal();
  }

  async break() {
    const { name, token } = this.breaking;
    this.find("own-break").close();
    try {
      const answer = await request("/own/breaks", "POST", { name, token });
      const broken = answer.ok && (await answer.json()).broken;
      this.told = answer.ok ? text(broken ? "own.broken" : "own.not-broken", { name }) : await answer.text();
    } catch {
      this.told = text("unreachable-lab");
    }
    this.told += " ";
    this.draw();
    setTimeout(() => Object.assign(this, { told: "" }), 10 * ASK_EVERY_MS);
  }
}
