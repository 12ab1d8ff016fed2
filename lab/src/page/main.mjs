// The page: one run, one chosen event, and all that shows them.

import { answers } from "./answers.mjs";
import { ORIGINAL, difference, forkAt, isForkable, leaseAt, original } from "./fork.mjs";
import { Live } from "./live.mjs";
import { sample, panel } from "./panel.mjs";
import { Player } from "./player.mjs";
import { decisive, described, parsed } from "./record.mjs";
import { Sandbox } from "./sandbox.mjs";
import { scale } from "./scale.mjs";
import { embedded, receive, save } from "./share.mjs";
import { SANDBOX } from "./standing.mjs";
import { story } from "./story.mjs";
import { Table } from "./table.mjs";
import { LANGUAGES, LEGEND } from "./texts.mjs";
import { wire } from "./wire.mjs";
import { actor, beats, choose, predicate, seconds, sentence, text, translated, verdict } from "./words.mjs";

const TICK_MS = 200;
const COLORS = 5;
const EXPLAINED = "fenced-page-explained";

const find = (id) => document.getElementById(id);
const brought = embedded();
const { scenarios, record, serves } = brought;
const address = new URLSearchParams(location.hash.slice(1));
/** The event of a run that the address leads to. */
const awaited = { run: address.get("run"), event: Number(address.get("event") ?? 0) - 1 };
let run, sandbox, live;
let [drawnWidth, waiting, ticking, shownBefore] = [0, 0, 0, -1];
let detailed = {};

const player = new Player(find, {
  show,
  wordsShown: () => (find("explain").checked ? find("beat").textContent.length : 0) / (document.documentElement.lang === "zh" ? 0.4 : 1),
  decisive: jump,
});
const table = new Table(find, (number) => player.choose(number));

find("language").addEventListener("click", () => {
  setAddress("lang", otherLanguage());
  speak(otherLanguage());
});
find("explain").checked = explained() !== "no";
find("explain").addEventListener("change", () => {
  explained(find("explain").checked ? "yes" : "no");
  if (run) show(player.chosen);
});
find("fork").addEventListener("click", (event) => {
  if (event.detail < 2) sandbox.begin(forkAt(run, player.chosen), original(run, player.chosen));
});
find("details").addEventListener("click", () => find("event-title").scrollIntoView());
find("save").addEventListener("click", () => save(run.record, brought));
receive(find("open"), (name, content) => {
  let dropped;
  try {
    dropped = parsed(content);
  } catch {
    return tell(text("not-a-record", { file: name }));
  }
  tell("");
  live?.leave();
  address.delete("run");
  open(dropped);
});
new ResizeObserver(() => run && find("worlds").clientWidth !== drawnWidth && draw()).observe(find("worlds"));
addEventListener("hashchange", () => {
  const now = new URLSearchParams(location.hash.slice(1));
  if (serves && ["token", "run"].some((name) => now.has(name) && now.get(name) !== address.get(name))) return location.reload();
  written = location.hash;
  if (run && now.get("event") !== address.get("event")) player.choose(Number(now.get("event")) - 1);
});

speak(address.get("lang") ?? navigator.language);
if (record) open(record, Number(address.get("event") ?? 1) - 1);
else tell(text(serves ? "start-one" : "no-record"), false);
live = serves ? new Live(find, address, scenarios, {
  shown, left: () => run && (show(player.chosen), sandbox.refresh(run)), tell, claimed, setAddress,
}) : undefined;
/** What follows the `#` in the address, as the page has found or written it last. */
let written = location.hash;
if (live) sandbox = new Sandbox(find, live, () => player.choose(player.count - 1));

/** Says what is wrong, or what is going on. */
function tell(message, isBad = true) {
  find("message").textContent = message;
  find("message").classList.toggle("bad", isBad);
  find("message").hidden = !message;
}

function otherLanguage() {
  return LANGUAGES.find((name) => name !== document.documentElement.lang);
}

/** Speaks a language from now on. */
function speak(name) {
  document.documentElement.lang = choose(name);
  find("language").lang = otherLanguage();
  for (const labelled of document.querySelectorAll("[data-text]")) labelled.textContent = text(labelled.dataset.text);
  for (const labelled of document.querySelectorAll("[data-label]")) {
    labelled.setAttribute("aria-label", text(labelled.dataset.label));
    labelled.title = text(labelled.dataset.label);
  }
  find("legend").replaceChildren(...LEGEND.map((entry) => {
    const item = document.createElement("li");
    item.append(sample(entry), ` ${text(`legend.${entry}`)}`);
    return item;
  }));
  sandbox?.label();
  if (run) open(run.record, followed(run.record));
  claimed();
}

/** Says what the scenario that could be run would show. */
function claimed() {
  const chosen = scenarios.find(({ name }) => name === find("scenario").value);
  find("scenario-claim").textContent = chosen && chosen.name !== run?.name ? translated(chosen.claim, chosen.name) : "";
}

/** The chosen event of a record, which may have grown. A reader who is at its last event goes on to the next. */
function followed({ events }) {
  return player.chosen < player.count - 1 ? player.chosen : events.length - 1;
}

/** Shows a record that grows: its last event, unless a reader has gone to another, or came for one. */
function shown(growing) {
  const last = growing.events.length - 1;
  if (address.get("run") !== awaited.run) awaited.event = -1;
  const goes = awaited.event >= 0 && awaited.event <= last;
  const isNew = run?.record !== growing;
  open(growing, goes ? awaited.event : isNew ? last : followed(growing));
  if (goes) awaited.event = -1;
  if (isNew) find(run.name === SANDBOX ? "sandbox" : "run").scrollIntoView();
}

/** Opens a record, at an event. */
function open(opened, chosen = 0) {
  const isOther = run?.record !== opened;
  run = described(opened, scenarios);
  run.stories = run.worlds.map((world) => story(world, run.tracks));
  run.events = run.worlds.flatMap((world) => world.events.map((event) => ({ event, world })));
  run.events.sort((one, other) => one.event.index - other.event.index);
  run.beats = beats(run.events);
  run.moments = run.worlds.filter((world) => world.events.length).map((world) => decisive(world).index);
  for (const name of ["run", "save"]) find(name).hidden = false;
  document.title = find("name").textContent = run.name;
  find("claim").textContent = translated(run.claim, run.name);
  claimed();
  find("unshown").hidden = opened.holds !== false;
  draw(chosen);
  player.open(run.events.length, chosen, isOther);
  sandbox?.refresh(run);
}

/** Draws all worlds on one scale, as wide as there is space. */
function draw(chosen = player.chosen) {
  const granted = run.record.events.filter((event) => event.token != null && event.event !== "counter-preset");
  const tokens = [...new Set(granted.map((event) => event.token))];
  tokens.sort((one, other) => one - other);
  const color = (token) => (token == null ? "n" : tokens.indexOf(token) % COLORS);
  const articles = run.stories.map(({ world }) => head(world));
  find("worlds").replaceChildren(...articles);
  drawnWidth = find("worlds").clientWidth;
  // All are as wide as the narrowest has space for.
  const width = Math.max(200, Math.min(...articles.map((article) => article.clientWidth)) - 26);
  const times = run.events.map(({ event }) => event.at);
  const common = scale(times, width);
  run.panels = run.stories.map((tale, number) => {
    const drawn = panel(tale, common, width, color);
    articles[number].append(drawn.picture);
    scrub(drawn, tale.world, common);
    return { ...drawn, article: articles[number] };
  });
  if (run.record.original && run.worlds.length > 1) {
    const differs = difference(...run.worlds);
    run.panels.forEach(({ mark }, number) => differs[number] && mark(differs[number].at, text("differs")));
  }
  if (player.count) show(Math.min(chosen, run.events.length - 1));
}

/** A panel without its picture. */
function head(world) {
  const part = (name, words, kind) => Object.assign(document.createElement(name), { textContent: words, className: kind });
  const article = part("article", "", "panel");
  const facts = Object.entries(world.outcome).map(([name, fact]) =>
    text("sentence", { who: translated(name.replaceAll("_", " "), name), does: fact ?? text("nothing") }));
  const goesOn = live?.isLive(run.record) && world.name !== ORIGINAL;
  const [words, kind] = verdict(world, run.record.holds);
  const ending = part("strong", words, `verdict ${kind}`);
  article.append(part("h2", title(world), ""), ending);
  article.append(part("p", facts.length ? text(goesOn ? "so-far" : "in-the-end", { facts: facts.join("; ") }) : "", "muted facts"));
  return article;
}

/** The title of a world. A fork has two, which differ in what was done. */
function title(world) {
  const own = translated(world.title);
  const side = world.name === ORIGINAL ? "fork.before" : "fork.after";
  return run.record.original ? text(side, { title: own }) : own;
}

/** Drags through a world's time, and names the event under the pointer. */
function scrub({ picture, actorAt }, world, common) {
  const go = (event) => {
    const { left, top } = picture.getBoundingClientRect();
    const [at, actor] = [common.time(event.clientX - left), actorAt(event.clientY - top)];
    const own = world.events.filter((other) => other.actor === actor);
    const nearest = (own.length ? own : world.events).reduce((best, other) => (Math.abs(other.at - at) < Math.abs(best.at - at) ? other : best));
    picture.title = sentence(nearest, world.checks);
    if (event.buttons && nearest.index !== player.chosen) player.choose(nearest.index);
  };
  picture.addEventListener("pointerdown", go);
  picture.addEventListener("pointermove", go);
}

/** Jumps to the next decisive moment: each world has one. */
function jump() {
  player.choose(run.moments[nextMoment()]);
  document.querySelector(".panel.chosen").scrollIntoView({ block: "nearest" });
}

function nextMoment() {
  return Math.max(0, run.moments.findIndex((number) => number > player.chosen));
}

function show(number) {
  const { event, world } = run.events[number];
  const count = run.worlds.length;
  const worldNumber = run.worlds.indexOf(world) + 1;
  find("world").textContent = count > 1 ? text("world", { number: worldNumber, count, title: title(world) }) : title(world);
  find("words").textContent = sentence(event, world.checks);
  find("time").setAttribute("aria-valuetext", text("position", {
    number: number + 1, count: run.events.length, time: seconds(event.at, 2),
  }));
  // At the end of the run, each world is at its own end: one may have lasted longer than the last.
  const isLast = number === run.events.length - 1;
  const isLive = Boolean(live?.isLive(run.record));
  const isEnd = isLast && !isLive;
  const beat = [run.beats[number], isEnd ? text("beat.end") : ""].filter(Boolean).join(" ");
  find("beat").textContent = find("explain").checked ? beat : "";
  find("beat").classList.toggle("empty", !find("beat").textContent);
  run.panels.forEach(({ picture, show: move, article }, panelNumber) => {
    const own = run.worlds[panelNumber];
    article.classList.toggle("chosen", own === world);
    const last = own === world ? event : own.events.findLast((other) => isEnd || other.at <= event.at);
    const states = move(isEnd ? Math.max(event.at, last?.at ?? 0) : event.at, last, own === world);
    picture.setAttribute("aria-label", text("picture", { world: title(own), states }));
  });
  find("worlds").classList.toggle("ended", isEnd);
  find("answers").replaceChildren(...(isEnd ? [] : answers(run, number)));
  const moments = run.moments.length;
  find("decisive").textContent = text(moments > 1 ? "decisive.of" : "decisive", { number: nextMoment() + 1, count: moments });
  Object.assign(find("fork"), { disabled: !isForkable(run), textContent: text("fork", { seconds: leaseAt(world) / 1000 }) });
  detail(event, world);
  table.show(run, number);
  clearInterval(ticking);
  // While nothing happens, a lease is counted down.
  const tick = () => run.panels[worldNumber - 1].show(event.at, event, true, live.age());
  if (isLast && isLive) ticking = setInterval(tick, TICK_MS);
  // Who has gone through to the end once needs no explanations on the next visit, unless they ask for them.
  if (isEnd && run.name !== SANDBOX && shownBefore === number - 1 && explained() === null) explained("no");
  shownBefore = number;
  setAddress("event", number + 1);
}

/** What the record has of an event. Values are set as text. What is shown already stays, with its focus. */
function detail(event, world) {
  const source = run.record.events[event.index];
  const { lang } = document.documentElement;
  if (detailed.source === source && detailed.lang === lang) return;
  detailed = { source, lang };
  find("event-words").textContent = `${seconds(event.at, 3)} s · ${actor(event.actor)} · ${predicate(event, world.checks)}`;
  const own = Object.entries(source).filter(([name]) => name !== "wire");
  find("fields").replaceChildren(...own.flatMap(([name, value]) => [
    Object.assign(document.createElement("dt"), { textContent: name }),
    Object.assign(document.createElement("dd"), { textContent: typeof value === "string" ? value : JSON.stringify(value) }),
  ]));
  find("wire").replaceChildren(...wire(run.record, event.index));
}

/** Changes the address, so that it leads here again. */
function setAddress(name, value) {
  address.set(name, value);
  // Browsers limit how often the address may change. Events that follow each other fast don't hold it up.
  waiting ||= setTimeout(() => {
    waiting = 0;
    // The visitor has just entered another address, which `hashchange` handles.
    if (location.hash !== written) return;
    history.replaceState(null, "", `#${address}`);
    written = location.hash;
  }, 60);
}

/** Remembers whether to explain each step, and returns that. A file from disk may have no storage for it. */
function explained(value) {
  try {
    if (value) localStorage.setItem(EXPLAINED, value);
    return localStorage.getItem(EXPLAINED);
  } catch {
    return null;
  }
}
