// Reads a record from stdin as the page does. Prints what has no words there, or no track.

import { readFileSync } from "node:fs";
import { forkAt } from "../../src/page/fork.mjs";
import { decisive, described, parsed } from "../../src/page/record.mjs";
import { SANDBOX, answerTo, standing, tasksDone } from "../../src/page/standing.mjs";
import { story } from "../../src/page/story.mjs";
import { CHINESE, LANGUAGES, TEXTS } from "../../src/page/texts.mjs";
import { beat, beats, choose, sentence, state, verdict } from "../../src/page/words.mjs";

const problems = new Set();
const expect = (is, problem) => is || problems.add(problem);
const names = (text) => [...text.matchAll(/\{\w+\}/g)].map(([name]) => name).sort().join();

for (const [key, texts] of Object.entries(TEXTS)) {
  expect(texts.length === LANGUAGES.length && texts.every(Boolean), `${key}: one text for each language`);
  expect(new Set(texts.map(names)).size === 1, `${key}: the same values in each language`);
}

const run = described(parsed(readFileSync(0, "utf8")), JSON.parse(process.argv[2] ?? "[]"));
// Variants of an event follow a dot.
const known = new Set(Object.keys(TEXTS).map((key) => key.split(".")[0]));
const lines = [];
for (const language of LANGUAGES) {
  choose(language);
  for (const world of run.worlds) {
    const { tracks } = story(world, run.tracks);
    expect(world.events.includes(decisive(world)), `${world.name}: a decisive moment`);
    expect(TEXTS[`verdict.${world.danger}`] && verdict(world)[0], `${world.name}: how it ended`);
    for (const event of world.events) {
      const words = `${sentence(event, world.checks)} ${beat(event, world)}`;
      const isAgain = world.events.some((other) =>
        [other, event].every(({ event }) => event === "acquired") && other.index < event.index && other.token >= event.token);
      expect(!isAgain || !words.includes("higher"), `${event.event}: ${words}`);
      const isAfter = (kind, own = () => true) =>
        world.events.some((other) => other.index < event.index && other.event === kind && own(other));
      const isOthers = (other) => other.actor !== event.actor;
      // What a hand does need not be what the scenarios do.
      expect(isAfter("acquired", isOthers) || !words.includes("somebody else"), `${event.event}: nobody else had the lock: ${words}`);
      expect(isAfter("paused") || !words.includes("too early"), `${event.event}: nobody was paused: ${words}`);
      expect(TEXTS[`actor.${event.actor}`], `${event.actor}: a name`);
      expect(known.has(event.event) && !/undefined|NaN|null|\{/.test(words), `${event.event}: ${words}`);
      expect(!/[:：] *$|“”|  /.test(words.trim()), `${event.event}: a value is missing: ${words}`);
      expect(tracks.some((track) => track.actor === event.actor), `${event.actor}: a track`);
      const states = tracks.map((track) => `${track.actor}: ${state(track, event, world.checks)[0]}`);
      expect(!/undefined|NaN|\{/.test(states), `${event.event}: ${states}`);
      if (language === "en" && event === decisive(world)) lines.push(`${world.name}: ${words.trim()}`, ...states);
    }
  }
}
// What was explained once is not explained again. Another world is announced.
choose("en");
const told = run.worlds.flatMap((world) => world.events.map((event) => ({ event, world })));
const explained = beats(told).flatMap((words, number) => {
  const isNext = number > 0 && told[number].world !== told[number - 1].world;
  const announcement = TEXTS["beat.world"][0];
  expect(words.startsWith(announcement) === isNext, `${number}: ${words}`);
  return words.replace(announcement, "").trim() || [];
});
expect(new Set(explained).size === explained.length, `explained twice: ${explained.join("\n")}`);
for (const text of [run.name, ...run.worlds.map((world) => world.title)]) {
  expect(!run.claim || CHINESE[text], `${text}: Chinese words`);
}
// In a sandbox, the page says before each write what the storage will answer.
for (const { events, checks } of run.name === SANDBOX ? run.worlds : []) {
  // A fork comes to a lease that is over by waiting for that.
  const { actions } = forkAt({ events: told }, told.length - 1);
  for (const { actor } of events.filter((event) => event.event === "lease-over")) {
    const steps = ["wait until its lease is over", "check the lease"].map((does) => `${actor.replace("t", "t ")}: ${does}`);
    expect(String(actions).includes(String(steps)), `${steps}: ${actions}`);
  }
  events.forEach((event, number) => {
    const isWrite = event.event === "written" || (event.event === "rejected" && event.actor !== "storage");
    if (!isWrite) return;
    const now = standing(events.slice(0, number));
    const accepted = event.overwrites_unseen > 0 ? "lost" : "accepted";
    const answer = event.event === "rejected" ? "rejected" : accepted;
    const said = answerTo(now.clients.get(event.actor), now, checks);
    expect(said === answer, `${number}: ${event.actor} was answered ${answer}, and not ${said}`);
  });
  lines.push(`tasks: ${[...tasksDone(events, checks)].join(", ")}`);
}
console.log(problems.size ? [...problems].join("\n") : lines.join("\n"));
process.exitCode = problems.size ? 1 : 0;
