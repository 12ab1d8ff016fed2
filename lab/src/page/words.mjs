// Words for events and states, in the chosen language.

import { ORIGINAL } from "./fork.mjs";
import { CHINESE, LANGUAGES, TEXTS } from "./texts.mjs";

let language = 0;

/** Chooses a language by its name; an unknown one is English. */
export function choose(name) {
  language = Math.max(0, LANGUAGES.indexOf(String(name).slice(0, 2)));
  return LANGUAGES[language];
}

/** A text with its values filled in. */
export function text(key, values = {}) {
  const template = TEXTS[key]?.[language] ?? key;
  return template.replace(/\{(\w+)\}/g, (whole, name) => String(values[name] ?? ""));
}

/** A claim or a title, which is English unless its key has Chinese words. */
export function translated(english, key = english) {
  return (LANGUAGES[language] === "zh" && Object.hasOwn(CHINESE, key) && CHINESE[key]) || english;
}

export function actor(name) {
  return TEXTS[`actor.${name}`] ? text(`actor.${name}`) : name;
}

export function seconds(ms, digits = 1) {
  return (ms / 1000).toFixed(digits);
}

/** A token as it is shown: of a long one, its last digits. */
export function short(token) {
  const digits = String(token);
  return digits.length > 6 ? `…${digits.slice(-6)}` : digits;
}

/** What happens, as a predicate. */
export function predicate(event, checks) {
  const key = [event.event, variant(event, checks)].filter(Boolean).join(".");
  const value = event.value == null ? text("nothing") : text("quoted", { value: event.value });
  return text(TEXTS[key] ? key : event.event, {
    ...event,
    value,
    token: event.token == null ? "" : short(event.token),
    whose: participants(event.whose),
    client: participants(event.client),
    beside: participants(event.beside),
    nodes: participants(event.nodes),
    remaining: seconds(event.remaining_ms ?? 0), store: event.store && text(`store.${event.store}`),
  });
}

/** Clients or nodes that an event names, as in "client 1 and client 2" or "A, B and C". */
function participants(names) {
  const named = String(names ?? "").replace(/client \d/g, (title) => actor(title.replace(" ", "")));
  return named.replace(/, | and /g, (between) => text(between === ", " ? "comma" : "and"));
}

/** What happens, with who does it. */
export function sentence(event, checks) {
  return text("sentence", { who: actor(event.actor), does: predicate(event, checks) });
}

function variant(event, checks) {
  const variants = {
    "counter-preset": event.token == null && "zero",
    "lock-remains": event.remaining_ms == null && "ever",
    acquired: event.beside ? "beside" : event.token == null && "untold",
    written: event.overwrites_unseen > 0 && "unseen",
    rejected: event.actor === "storage" ? event.reason : "client",
    read: event.value == null && "nothing",
    "accepted-claim": checks === "tokens" && "checks",
    "accepted-write": event.token == null && "untold",
    "standby-promoted": event.token == null && "untold",
  };
  return variants[event.event];
}

/** What each event means, for those who see it for the first time. What is explained once is not explained again. */
export function beats(events) {
  const explained = new Set();
  let before;
  return events.map(({ event, world }) => {
    const isNext = before && before !== world;
    if (isNext && before.name === ORIGINAL) explained.clear();
    before = world;
    const words = beat(event, world);
    const isNew = words && !explained.has(words);
    explained.add(words);
    return [isNext ? text("beat.world") : "", isNew ? words : ""].filter(Boolean).join(" ");
  });
}

/** What an event means, for those who see it for the first time, if it has such words. */
export function beat(event, world) {
  const isAfter = (kind, own = () => true) => world.events.some((other) => other.index < event.index && other.event === kind && own(other));
  const isOwn = ({ actor: earlier }) => earlier === event.actor;
  const isTrue = {
    acquired: () => event.token != null && !event.beside && !isAfter("acquired", ({ token }) => token >= event.token),
    "accepted-stale-write": () => world.checks !== "tokens",
    "lease-expired": () => !/^client/.test(event.actor) && !isAfter("killed", ({ actor: killed }) => killed === String(event.whose).replace(" ", "")),
    rejected: () => event.actor === "storage" && event.reason === "stale-token" && world.events.findLast(({ index }) => index < event.index)?.event !== "claim-rejected",
  }[event.event];
  if (isTrue?.() === false) return "";
  const end = {
    acquired: () => {
      if (isAfter("counter-from-the-clock")) return "clock";
      return isAfter("acquired", (other) => !isOwn(other)) ? "next" : "first";
    },
    "accepted-claim": () => world.checks === "tokens" && "checks",
    "accepted-write": () => world.checks === "tokens" && isAfter("acquired", ({ token }) => token > event.token) && "late",
  }[event.event]?.();
  const key = ["beat", event.event, end].filter(Boolean).join(".");
  const unchecked = `${key}.unchecked`;
  const hasChecked = /^client/.test(event.actor) ? isAfter("lease-checked", isOwn) : isAfter("lease-checked") && isAfter("paused");
  const chosen = TEXTS[unchecked] && !hasChecked ? unchecked : key;
  const values = { ...event, token: short(event.token), highest_token: short(event.highest_token) };
  return TEXTS[chosen] ? text(chosen, values) : "";
}

/** How a world ended, in a few words, and whether that is good. Before its end, both are empty. */
export function verdict({ outcome, danger }, holds) {
  const { updates_lost: lost, holders_at_once: holders = outcome.at_work_at_once } = outcome;
  if (lost !== undefined) return lost > 0 ? [text("verdict.lost", { count: lost }), "bad"] : [text("verdict.kept"), "good"];
  if (holders !== undefined) return holders > 1 ? [text("verdict.holders", { count: holders }), "bad"] : [text("verdict.one"), "good"];
  if (holds === false || !Object.keys(outcome).length) return ["", ""];
  return [text(`verdict.${danger}`), danger === "averted" ? "good" : "bad"];
}

/** How a track is after an event, by its number and its time, and whether something is wrong with it. */
export function state(track, { index, at }, checks) {
  const spans = track.spans.filter((span) => span.first <= index && index < span.last);
  const find = (what) => spans.findLast((span) => span.what === what);
  if (track.kind === "storage") return [storageState(find("value"), find("fence"), checks), find("value")?.lost ? "bad" : ""];
  if (track.kind === "network") return [text(find("held") ? "state.held-back" : "state.network"), ""];
  if (track.kind === "client") return clientState(find);
  const value = find("value");
  const lease = find("lease");
  if (find("killed")) return [text("state.killed"), "odd"];
  if (!lease && track.actor === "database") return [text("state.database"), ""];
  if (find("follows")) return [text("state.follows"), ""];
  if (!lease) return [value ? value.text : text("state.free"), value?.lost ? "bad" : ""];
  const left = lease.ms == null ? NaN : Math.max(0, lease.ms - (at - lease.from));
  const key = left > 0 ? "state.held" : "state.held-on";
  return [text(key, { who: actor(lease.whose), seconds: seconds(left) }), ""];
}

function storageState(value, fence, checks) {
  const stored = value ? text("quoted", { value: value.text }) : text("nothing");
  const unseen = text(checks === "tokens" ? "state.fresh" : "state.unfenced");
  return `${stored} · ${fence ? text("state.fence", { token: short(fence.token) }) : unseen}`;
}

function clientState(find) {
  if (find("killed")) return [text("state.killed"), "odd"];
  const wrong = find("believes") && !find("holds");
  const key = wrong ? "wrong" : ["holds", "wait"].find(find) ?? "none";
  const words = text(`state.${key}`);
  return [find("pause") ? text("state.stopped", { state: words }) : words, wrong ? "bad" : ""];
}
