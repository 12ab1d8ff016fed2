// The controls of a sandbox: what it starts with, what can be done in it, and the tasks.

import { ORIGINAL } from "./fork.mjs";
import { DEEDS, FAULTS, SANDBOX, TASKS, isPossible, standing, tasksDone } from "./standing.mjs";
import { actor, text } from "./words.mjs";

const DONE = "lab-tasks";
/** What a client can seldom do. Such a control is there when it can be used. */
const RARE = ["start", "resume", "connect again"];
const WHO = ["client 1", "client 2", "client 3", "client 4", "lock service", "sandbox"];

/** Starts sandboxes, and requests actions of the one that is watched. */
export class Sandbox {
  /** Actions that are not answered yet, each with its run, and the last of them. */
  asked = new Set();
  latest = undefined;
  now = undefined;

  /** `follow` goes to the last event, so that what happens next is seen. */
  constructor(find, live, follow) {
    Object.assign(this, { find, live, follow, done: new Set(JSON.parse(sessionStorage.getItem(DONE) ?? "[]")) });
    for (const own of ["sandbox", "fork"]) find(own).hidden = false;
    // The second click of a double click does nothing.
    find("open-sandbox").addEventListener("click", (event) => event.detail < 2 && this.open());
    // Without a fence, a table has nothing to claim.
    const settle = () => (find("claims").disabled = find("store").value === "postgres-table" && !find("fence").checked);
    for (const name of ["store", "fence"]) find(name).addEventListener("change", settle);
    find("actors").append(...WHO.map(controls));
    this.buttons = [...find("actors").querySelectorAll("button")];
    find("actors").addEventListener("click", (event) => {
      const { action } = event.target.dataset;
      if (action && event.detail < 2) this.act(action);
    });
    // Nor does a key that is held.
    document.addEventListener("keydown", (event) => {
      if (event.repeat && ["Enter", " "].includes(event.key) && event.target.type === "button") event.preventDefault();
    });
    this.label();
  }

  open() {
    const onOff = (name) => (this.find(name).checked ? "on" : "off");
    const [locks, store, ttl] = ["locks", "store", "ttl"].map((name) => this.find(name).value);
    return this.begin({ settings: { fence: onOff("fence"), claims: onOff("claims"), locks, store, ttl_ms: Number(ttl) } });
  }

  /** Starts a sandbox. One that is a fork of a run first does the same. */
  begin(opening, forkedFrom) {
    this.latest = undefined;
    this.find("answered").textContent = "";
    return this.live.begin("/sandboxes", { start: crypto.randomUUID(), ...opening }, SANDBOX, forkedFrom);
  }

  /** Requests an action. The lab does it after those that are not answered yet, among which it is only once. */
  async act(action) {
    const request = `${this.live.run} ${action}`;
    if (this.asked.has(request)) return;
    this.asked.add(request);
    this.latest = request;
    this.follow();
    this.find("answered").textContent = text("asked", { action: actionName(action) });
    const rejected = await this.live.act(action);
    this.asked.delete(request);
    if (this.latest === request) this.find("answered").textContent = rejected;
  }

  /** A run is shown, which may be a sandbox that has gone on. */
  refresh({ record, worlds }) {
    const isSandbox = record.scenario === SANDBOX;
    const { events, checks, name } = worlds.at(-1);
    const drove = this.now;
    this.now = isSandbox && this.live.isLive(record) && name !== ORIGINAL ? standing(events) : undefined;
    this.find("to-do").hidden = !isSandbox;
    // The settings of the next sandbox are folded, so that this one has more space.
    if (!drove !== !this.now) this.find("preparation").open = !this.now;
    document.body.classList.toggle("driving", Boolean(this.now));
    if (isSandbox && record === this.live.record) for (const task of tasksDone(events, checks)) this.done.add(task);
    sessionStorage.setItem(DONE, JSON.stringify([...this.done]));
    this.label();
  }

  /** Names the controls, and disables those that can't do anything now. */
  label() {
    const focused = document.activeElement;
    this.find("actors").hidden = !this.now;
    for (const button of this.buttons) {
      const { action } = button.dataset;
      const [who, does] = action.split(": ");
      button.textContent = text(`do.${does}`);
      button.setAttribute("aria-label", actionName(action));
      button.disabled = !this.now || !isPossible(action, this.now);
      const hasStarted = this.now?.clients.has(who.replace(" ", ""));
      button.hidden = who.startsWith("client") && (RARE.includes(does) ? button.disabled : !hasStarted);
    }
    for (const legend of this.find("actors").querySelectorAll("legend")) legend.textContent = whoName(legend.dataset.who);
    // Who uses the keyboard stays where something can be done.
    if (focused?.disabled && this.buttons.includes(focused)) {
      const near = [...focused.closest("fieldset").elements, ...this.buttons, this.find("open-sandbox")];
      near.find((control) => !control.disabled).focus();
    }
    const next = TASKS.find((task) => !this.done.has(task));
    this.find("tasks").replaceChildren(...TASKS.map((task) => {
      const isDone = this.done.has(task);
      const words = text("task", { task: text(`task.${task}`), state: text(isDone ? "task.done" : "task.open") });
      const item = document.createElement("li");
      item.append(Object.assign(document.createElement("strong"), { textContent: words, className: isDone ? "good" : "" }));
      const hint = { textContent: ` ${text(`hint.${task}`)}`, className: "muted", hidden: task !== next };
      item.append(Object.assign(document.createElement("span"), hint));
      return item;
    }));
  }
}

/** An action in words: `client 1: acquire`. */
function actionName(action) {
  const [who, does] = action.split(": ");
  return text("sentence", { who: whoName(who), does: text(`do.${does}`) });
}

function whoName(who) {
  return actor(who.replace(" ", ""));
}

/** The controls of one who takes part. */
function controls(who) {
  const does = { "lock service": FAULTS, sandbox: ["end"] }[who] ?? DEEDS;
  const fieldset = document.createElement("fieldset");
  const legend = document.createElement("legend");
  legend.dataset.who = who;
  fieldset.append(legend, ...does.map((name) => {
    const button = Object.assign(document.createElement("button"), { type: "button" });
    button.dataset.action = `${who}: ${name}`;
    return button;
  }));
  return fieldset;
}
