// How things stand in a sandbox after some of its events: who can do what, and what the storage would answer.

/** The name of a sandbox's record, in the place of a scenario's. */
export const SANDBOX = "sandbox";
export const DEEDS = [
  "start", "acquire", "read", "check the lease", "write", "release", "pause", "resume", "kill", "cut off", "connect again",
];
export const FAULTS = [
  "stop", "restart", "restart empty", "jump the clock", "cut off the replica", "promote the replica",
];
export const TASKS = ["lose", "reject", "holders", "legal"];

/** How things stand after these events of a world. */
export function standing(events) {
  const now = { clients: new Map(), service: "redis", isUp: true, replica: "none", fence: undefined, grants: 0 };
  for (const event of events) {
    const { actor } = event;
    if (/^client/.test(actor) && !now.clients.has(actor)) now.clients.set(actor, { actor });
    CHANGES[event.event]?.(now, event, now.clients.get(actor));
  }
  return now;
}

const endLease = (now, event, client) => (client.hasLease = false);
const raise = (now, { token }) => {
  if (token != null && !(now.fence?.token >= token)) now.fence = { token, grant: now.asking.grant };
};
const ask = (now, event, client) => client && (now.asking = client);
const clientOf = (now, title) => now.clients.get(String(title).replace(" ", ""));

/** What each event changes. The client, if it is one's, is the third argument. */
const CHANGES = {
  started: (now, { actor }, client) => client || actor === "storage" || (now.service = actor),
  killed: (now, event, client) => (client ? (client.isKilled = true) : (now.isUp = false)),
  restarted: (now) => (now.isUp = true),
  "in-step": (now) => (now.replica = "in step"),
  "cut-off": (now) => (now.replica = "cut off"),
  promoted: (now, { actor }) => Object.assign(now, { replica: "promoted", service: actor, isUp: true }),
  paused: (now, event, client) => (client.isPaused = true),
  resumed: (now, event, client) => (client.isPaused = false),
  "client-cut-off": (now, event) => (clientOf(now, event.client).isCutOff = true),
  "client-connected": (now, event) => (clientOf(now, event.client).isCutOff = false),
  acquired: (now, { token }, client) => Object.assign(client, { hasLease: true, isOver: false, token, grant: (now.grants += 1) }),
  "lease-expired": (now, { whose }) => (clientOf(now, whose).isOver = true),
  released: endLease, "lease-lost": endLease, "lease-over": endLease, unanswered: endLease,
  read: (now, event, client) => {
    client.unseen = 0;
    ask(now, event, client);
  },
  written: (now, event, client) => {
    for (const other of now.clients.values()) if (other.unseen !== undefined) other.unseen += 1;
    client.unseen = 0;
    ask(now, event, client);
  },
  "accepted-claim": raise,
  "accepted-write": raise,
  "accepted-anothers-token": raise,
};

/** What the storage would answer if a client wrote now; nothing if it has no lease to write with. */
export function answerTo(client, { fence }, checks) {
  if (!client.hasLease || client.isKilled) return undefined;
  const isAnothers = client.token === fence?.token && client.grant !== fence.grant;
  if (checks === "tokens" && (client.token < fence?.token || isAnothers)) return "rejected";
  return client.unseen > 0 ? "lost" : "accepted";
}

/** Whether an action would do anything now. */
export function isPossible(action, now) {
  const [who, does] = action.split(": ");
  if (who === "sandbox") return true;
  return who === "lock service" ? canSuffer(now)[does] : canDo(now, Number(who.split(" ")[1]))[does];
}

function canSuffer({ service, isUp, replica }) {
  return {
    stop: isUp,
    restart: true,
    "restart empty": true,
    "jump the clock": isUp && ["redis", "lock-table", "nodes"].includes(service),
    "cut off the replica": replica === "in step",
    "promote the replica": replica === "in step" || replica === "cut off",
  };
}

function canDo({ clients }, number) {
  const client = clients.get(`client${number}`);
  if (!client) return { start: clients.size === number - 1 };
  const { isKilled, isPaused, isCutOff, hasLease } = client;
  const runs = !isKilled && !isPaused;
  return {
    acquire: runs && !hasLease,
    ...Object.fromEntries(["read", "check the lease", "write", "release"].map((does) => [does, runs && hasLease])),
    pause: runs,
    resume: !isKilled && isPaused,
    kill: !isKilled,
    "cut off": !isKilled && !isCutOff,
    "connect again": !isKilled && isCutOff,
  };
}

/** Which of the tasks these events of a world have done. */
export function tasksDone(events, checks) {
  const done = new Set();
  let [hasPaused, highest] = [false, 0];
  for (const event of events) {
    const is = (kind) => event.event === kind;
    if (event.overwrites_unseen > 0) done.add("lose");
    if (is("rejected") && event.actor !== "storage" && event.reason === "stale-token") done.add("reject");
    if (is("acquired") && event.beside && !hasPaused) done.add("holders");
    if (is("accepted-write") && checks === "tokens" && event.token < highest) done.add("legal");
    if (is("acquired")) highest = Math.max(highest, event.token);
    hasPaused ||= is("paused");
  }
  return done;
}
