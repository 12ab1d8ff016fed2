// A record as the page uses it: its worlds, each with its events on a time of its own.

import { ORIGINAL } from "./fork.mjs";
import { SANDBOX } from "./standing.mjs";

/** The events that only say how a world was set up. */
const SETTING = new Set(["counter-preset", "counter-from-the-clock", "stock", "started"]);

/** Reads the text of a record, such as `lab replay --json` prints. Throws if it is none. */
export function parsed(text) {
  const record = JSON.parse(text);
  const isEvent = (event) =>
    event && Number.isFinite(event.at_ms) && ["event", "world", "actor"].every((name) => typeof event[name] === "string");
  if (!record || !Array.isArray(record.events) || !record.events.length || !record.events.every(isEvent)) {
    throw new TypeError("no record");
  }
  return record;
}

/** Adds what is known of the scenario. Of one that is unknown, the record says enough to draw it. */
export function described(record, scenarios) {
  const known = scenarios.find((scenario) => scenario.name === record.scenario);
  const names = [...new Set([...record.events.map((event) => event.world), ...Object.keys(record.outcome ?? {})])];
  const worlds = names.map((name) => {
    const numbered = record.events.map((event, index) => ({ ...event, index })).filter((event) => event.world === name);
    const began = numbered.find((event) => !SETTING.has(event.event)) ?? numbered[0];
    const events = numbered.map((event) => ({ ...event, at: Math.max(0, event.at_ms - began.at_ms) }));
    return {
      ...(name === ORIGINAL && record.original),
      ...(known?.worlds.find((world) => world.name === name) ?? (name === ORIGINAL ? { name } : guessed(name, events))),
      events,
      outcome: record.outcome?.[name] ?? (record.scenario === SANDBOX && !record.failed ? soFar(events) : {}),
    };
  });
  const tracks = [...new Set([...(known?.tracks ?? []), ...record.events.map((event) => event.actor)])];
  return { record, worlds, tracks, name: String(record.scenario ?? ""), claim: known?.claim ?? "" };
}

/** How a sandbox would end now. */
function soFar(events) {
  return { updates_lost: events.reduce((sum, event) => sum + (event.overwrites_unseen ?? 0), 0) };
}

function guessed(name, events) {
  const checks = events.some((event) => event.event === "rejected") ? "tokens" : "nothing";
  return { name, title: name, checks, danger: "strikes" };
}

/** The event that decides how a world ends: what others only lead to. */
export function decisive(world) {
  const kinds = [
    (event) => ["accepted-stale-write", "accepted-anothers-token", "accepted-by-old-primary"].includes(event.event),
    (event) => event.overwrites_unseen > 0,
    (event) => event.event === "rejected" && event.actor === "storage",
    (event) => event.event === "claim-rejected" || event.event === "unavailable",
    (event) => event.beside || event.event === "lock-deleted" || event.event === "lock-kept",
    (event) => ["not-bought", "no-majority", "gave-up", "taken", "lock-remains", "lease-expired"].includes(event.event),
  ];
  const found = kinds.map((is) => world.events.findLast(is)).find(Boolean);
  return found ?? world.events.at(-1);
}
