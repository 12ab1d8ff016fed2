// What the storage would answer to each client of a sandbox, at a moment of its record.

import { SANDBOX, answerTo, standing } from "./standing.mjs";
import { actor, state, text } from "./words.mjs";

/** A line for each client: what it believes, and the storage's answer if it wrote now. */
export function answers(run, number) {
  if (run.record.scenario !== SANDBOX) return [];
  const { event, world } = run.events[number];
  const now = standing(world.events.filter(({ index }) => index <= event.index));
  const { tracks } = run.stories[run.worlds.indexOf(world)];
  return [...now.clients.values()].map((client) => {
    const track = tracks.find((own) => own.actor === client.actor);
    const [believes] = state(track, event, world.checks);
    const answer = answerTo(client, now, world.checks);
    const words = text(answer ? "answer" : "no-answer", {
      who: actor(client.actor),
      state: client.isCutOff ? text("state.cut-off", { state: believes }) : believes,
      answer: answer && text(answer === "accepted" && client.isOver ? "answer.late" : `answer.${answer}`),
    });
    const tone = { rejected: "good", lost: "bad" }[answer] ?? "";
    return Object.assign(document.createElement("li"), { textContent: words, className: tone });
  });
}
