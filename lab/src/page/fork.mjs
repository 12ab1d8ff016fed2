// A fork: the steps of a run up to a moment, which the lab plays again, and how two runs differ.

import { SANDBOX } from "./standing.mjs";

/** Scenarios whose steps can be done in a sandbox, too. */
const FORKABLE = [SANDBOX, "token-33-34", "never-saw-34"];
const LEASE_MS = 10_000;
const LOCKS_OF = { etcd: "etcd", zookeeper: "zookeeper", "lock-table": "postgres", nodes: "redlock" };
/** The name of the world that a fork began in. */
export const ORIGINAL = "original";

const DEED_OF = {
  acquired: "acquire", "gave-up": "acquire", read: "read", "claim-rejected": "read", written: "write", rejected: "write",
  released: "release", "lease-lost": "release", "lease-checked": "check the lease", paused: "pause", resumed: "resume", killed: "kill",
};
const FAULT_OF = {
  killed: "stop", "clock-jumped": "jump the clock", "cut-off": "cut off the replica", promoted: "promote the replica",
};
/** Events that say how a world was set up, that only look, or that come by themselves sooner or later. */
const SILENT = new Set(["started", "store-is", "in-step", "counter-preset", "counter-from-the-clock", "lease-expired", "lock-kept", "admitted"]);

/** Whether the lab can do the steps of a run again. */
export function isForkable({ record }) {
  return FORKABLE.includes(record.scenario);
}

/** How long a lease lasts in a fork of a world. A hand is slower than a scenario. */
export function leaseAt({ name, from = name, events }) {
  return (from.startsWith("fence-") && events.find(({ event }) => event === "acquired")?.ttl_ms) || LEASE_MS;
}

/** What opens a sandbox that has come to the same moment of a run that can be forked. */
export function forkAt({ events }, number) {
  const { event: last, world } = events[number];
  const settings = {
    fence: world.checks === "tokens" ? "on" : "off",
    claims: (world.from ?? world.name).endsWith("claims-off") ? "off" : "on",
    locks: world.events.map(({ actor }) => LOCKS_OF[actor]).find(Boolean) ?? "redis",
    store: world.events.find(({ event }) => event === "store-is")?.store ?? storeOf(world),
    ttl_ms: leaseAt(world),
  };
  const steps = world.events.filter(({ index }) => index <= last.index);
  const holders = new Set();
  return { settings, actions: steps.flatMap((event) => step(event, holders) ?? []) };
}

/** The store of a record that doesn't name it. Only the storage server counts versions. */
function storeOf({ events }) {
  return events.some(({ event, version }) => ["read", "written"].includes(event) && version === undefined) ? "postgres-table" : "sqlite";
}

/** The action that an event comes from, if it is the first of that action, or the actions that lead to it. */
function step({ event, actor, whose, client, keys }, holders) {
  if (event === "lease-expired") return `${whose}: wait until its lease is over`;
  if (event === "client-cut-off") return `${client}: cut off`;
  if (event === "client-connected") return `${client}: connect again`;
  if (event === "restarted") return `lock service: ${keys ? "restart" : "restart empty"}`;
  const number = /^client(\d)$/.exec(actor)?.[1];
  if (!number) return actor !== "storage" && FAULT_OF[event] ? `lock service: ${FAULT_OF[event]}` : undefined;
  // The first two start by themselves.
  if (event === "started") return number > 2 ? `client ${number}: start` : undefined;
  if (event === "lease-over") return ["wait until its lease is over", "check the lease"].map((does) => `client ${number}: ${does}`);
  const does = event === "unanswered" ? (holders.has(actor) ? "release" : "acquire") : DEED_OF[event];
  if (event === "acquired") holders.add(actor);
  if (does === "release") holders.delete(actor);
  return does && `client ${number}: ${does}`;
}

/** A run with the events of the world that it was forked from before its own. */
export function original(run, number) {
  const { world } = run.events[number];
  const { title, checks, danger, name, from = name } = world;
  const events = world.events.map(({ index }) => ({ ...run.record.events[index], world: ORIGINAL }));
  return { world: { title, checks, danger, from }, events };
}

/** The first events in which two worlds differ: the second's, and the first's if it goes on. */
export function difference(one, other) {
  const [earlier, later] = [one, other].map((world) => world.events.filter(({ event }) => !SILENT.has(event)));
  const isSame = (event, twin) => twin && ["event", "actor", "token"].every((name) => event[name] === twin[name]);
  const at = later.findIndex((event, number) => !isSame(event, earlier[number]));
  return at < 0 ? [] : [earlier[at], later[at]];
}
