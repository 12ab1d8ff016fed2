// Runs that the lab plays now: started from the page, and watched as they happen.

import { SANDBOX } from "./standing.mjs";
import { text } from "./words.mjs";

const TOKEN = "lab-token";
const ORIGINAL_OF = "original ";
/** The slowest actions take seconds. */
const TIMEOUT_MS = 60_000;

/** Starts runs and watches them. `shown` is called with each record that grows. */
export class Live {
  starting = false;
  run = undefined;
  record = undefined;

  constructor(find, address, scenarios, { shown, left, tell, claimed, setAddress }) {
    Object.assign(this, { find, address, shown, left, tell, setAddress });
    // The token leaves the address, so that nobody shares it by chance.
    if (address.has("token")) sessionStorage.setItem(TOKEN, address.get("token"));
    address.delete("token");
    history.replaceState(null, "", `#${address}`);
    find("live").hidden = false;
    const names = scenarios.map(({ name }) => name).filter((name) => name !== SANDBOX);
    for (const { group, name, title } of scenarios.filter(({ group }) => group)) {
      const last = find("scenario").lastElementChild;
      const own = last?.label === group ? last : Object.assign(document.createElement("optgroup"), { label: group });
      own.append(new Option(title, name));
      find("scenario").append(own);
    }
    const scenario = address.get("scenario") ?? names[0];
    if (names.includes(scenario)) find("scenario").value = scenario;
    claimed();
    find("scenario").addEventListener("change", claimed);
    find("start").addEventListener("click", () => {
      const chosen = find("scenario").value;
      this.begin("/runs", { scenario: chosen }, chosen);
    });
    if (address.has("run")) this.watch(address.get("run"), scenario);
  }

  /** Starts a run, which may be a fork of another. A second click while it starts does nothing. */
  async begin(path, body, scenario, original) {
    if (this.starting) return;
    this.starting = true;
    try {
      const answer = await request(path, "POST", body);
      const { id } = answer.ok ? await answer.json() : {};
      if (!answer.ok) this.tell(await rejection(answer));
      else if (id !== this.run) {
        this.leave();
        keep(id, original);
        this.watch(id, scenario);
      }
    } catch {
      this.tell(text("unreachable-lab"));
    }
    this.starting = false;
  }

  /** Watches a run. The browser connects again by itself, and goes on after the last event that it has. */
  watch(run, scenario) {
    const original = JSON.parse(sessionStorage.getItem(ORIGINAL_OF + run)) ?? { events: [] };
    this.setAddress("run", run);
    this.setAddress("scenario", scenario);
    const record = { scenario, holds: true, events: [...original.events], outcome: {}, original: original.world };
    const source = new EventSource(`/runs/${run}/events`);
    Object.assign(this, { source, run, record });
    this.tell(text("starting"), false);
    source.onopen = () => this.tell(record.events.length > original.events.length ? "" : text("starting"), false);
    source.addEventListener("age", ({ data }) => (this.lastAt = performance.now() - Number(data)));
    source.onerror = async () => {
      if (source.readyState !== EventSource.CLOSED) return this.tell(text("unreachable-lab"));
      // The lab was started again, or has forgotten the run. What was shown of it stays, as a record.
      this.run = undefined;
      draw();
      this.tell(text((await isRejected()) ? "no-token" : "gone"));
    };
    let drawing = 0;
    const draw = () => {
      cancelAnimationFrame(drawing);
      drawing = requestAnimationFrame(() => this.source === source && record.events.length && this.shown(record));
    };
    source.onmessage = (message) => {
      record.events.push(JSON.parse(message.data));
      this.tell("");
      draw();
    };
    source.addEventListener("end", (message) => {
      source.close();
      this.run = undefined;
      const { holds, outcome, error, left } = JSON.parse(message.data);
      Object.assign(record, { holds, outcome: outcome ?? {}, failed: error !== undefined });
      this.tell(error ? text("failed", { error }) : left ? text("left") : "");
      draw();
    });
  }

  /** How many milliseconds ago the last event of the run that is watched was. */
  age() {
    return performance.now() - this.lastAt;
  }

  /** Requests an action in the sandbox that is watched. Returns why it was not carried out, if so. */
  async act(action) {
    try {
      const answer = await request(`/runs/${this.run}/actions`, "POST", { action });
      return answer.ok ? "" : await rejection(answer);
    } catch ({ name }) {
      return text(name === "TimeoutError" ? "no-answer-yet" : "unreachable-lab");
    }
  }

  /** Leaves the run that is watched. If it still plays, its processes end. */
  leave() {
    this.source?.close();
    this.source = undefined;
    if (this.run) request(`/runs/${this.run}`, "DELETE").catch(() => {});
    this.run = this.record = undefined;
    this.left();
  }

  /** Whether a record still grows. */
  isLive(record) {
    return this.run !== undefined && this.record === record;
  }
}

/** Keeps what a run was forked from, so that it is there again after a reload. Others are no longer needed. */
function keep(run, original) {
  for (const name of Object.keys(sessionStorage)) if (name.startsWith(ORIGINAL_OF)) sessionStorage.removeItem(name);
  try {
    if (original) sessionStorage.setItem(ORIGINAL_OF + run, JSON.stringify(original));
  } catch {
    // It is too large. The fork is shown alone then.
  }
}

/** Sends a request with the token to the lab. */
function request(path, method = "GET", body = undefined) {
  const headers = { authorization: `Bearer ${sessionStorage.getItem(TOKEN)}`, "content-type": "application/json" };
  return fetch(path, { method, headers, body: body && JSON.stringify(body), signal: AbortSignal.timeout(TIMEOUT_MS) });
}

/** Whether the lab no longer knows the token. */
async function isRejected() {
  const answer = await request("/token").catch(() => ({}));
  return answer.status === 401;
}

/** Why the lab did not do what it was asked for, in the language of the page. One that was started again has
 * another token. */
async function rejection(answer) {
  if (answer.status === 401) return text("no-token");
  const { rejected = "not-now", detail } = await answer.json().catch(() => ({ detail: answer.statusText }));
  return text(rejected, { detail });
}
