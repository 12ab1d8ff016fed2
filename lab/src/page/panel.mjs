// A world as a panel: lanes with bars, marks and arrows, and a line at the chosen moment.

import { actor, seconds, short, state, text } from "./words.mjs";

const NAME = 20;
const BAR = 24;
const FENCE = 15;
const TRACK = 16;
const GAP = 8;
const AXIS = 18;
const LETTER = 7;
/** With more events than this, places are this many pixels apart, so that fewer things are drawn. */
const MANY = [1000, 3];
const SPACE = "http://www.w3.org/2000/svg";

/** An element of SVG. Texts are set as text, and never as markup. */
function element(name, attributes, content = "") {
  const created = document.createElementNS(SPACE, name);
  for (const [key, value] of Object.entries(attributes)) created.setAttribute(key, value);
  if (content !== "") created.textContent = content;
  return created;
}

/** Draws a story on a scale, and returns the picture and a function that shows a moment in it. */
export function panel(story, scale, width, color) {
  const svg = element("svg", { width, role: "img" });
  const drawn = new Set();
  // What is at the same place as another is drawn once.
  const add = (name, attributes, content) => {
    const key = JSON.stringify([name, attributes]);
    if (!drawn.has(key)) svg.append(element(name, attributes, content));
    drawn.add(key);
  };
  const grain = story.world.events.length > MANY[0] ? MANY[1] : 0.5;
  const x = (at) => Math.round(Math.min(width, scale.x(Math.min(at, scale.end))) / grain) * grain;
  const lanes = [];
  let top = 0;
  for (const lane of story.lanes) {
    const bars = top + NAME;
    const track = bars + BAR + (lane.kind === "storage" ? FENCE : 0) + TRACK / 2;
    const name = element("text", { x: 0, y: top + 14, class: "name" }, actor(lane.actor));
    const words = element("text", { x: width, y: top + 14, "text-anchor": "end" });
    add("line", { x1: 0, x2: width, y1: track, y2: track, class: "track" });
    lanes.push({ lane, bars, track, name, words });
    top = track + TRACK / 2 + GAP;
  }
  for (const { lane, bars } of lanes) {
    for (const span of lane.spans) bar(add, { lane, span, bars, scale, x, color });
    if (lane.kind === "storage" && story.world.checks !== "tokens") {
      add("rect", { x: 0.5, y: bars + BAR, width: width - 1, height: FENCE, class: "unfenced" });
      label(add, 0, width, bars + BAR + 11, text("state.unfenced"), "small muted");
    }
  }
  for (const arrow of story.arrows) shaft(add, arrow, lanes, x, color);
  for (const { lane, track } of lanes) {
    for (const mark of lane.marks) add("path", { d: SHAPES[mark.shape](x(mark.at), track), class: `mark ${mark.shape}` });
  }
  let last = "";
  for (const [time, at] of scale.ticks(56)) {
    const words = seconds(time, 2);
    if (at < width - 24 && words !== last) add("text", { x: at, y: top + 12, class: "small muted" }, words);
    last = words;
  }
  svg.setAttribute("height", top + AXIS);
  const future = element("rect", { y: 0, height: top, class: "future" });
  const now = element("line", { y1: 0, y2: top, class: "now" });
  const ring = element("circle", { r: 9, class: "ring" });
  svg.append(future, now, ring, ...lanes.flatMap(({ name, words }) => [name, words]));

  /** Shows a moment, after an event of this world. If it is the chosen event, its mark is ringed. */
  const show = (at, event, isChosen) => {
    const left = x(at);
    for (const [name, value] of Object.entries({ x: left, width: Math.max(0, width - left) })) future.setAttribute(name, value);
    now.setAttribute("x1", left);
    now.setAttribute("x2", left);
    const states = lanes.map(({ lane, words }) => {
      const [summary, tone] = state(lane, { index: event?.index ?? -1, at }, story.world.checks);
      words.textContent = summary;
      words.setAttribute("class", `state ${tone}`);
      return `${actor(lane.actor)}: ${summary}`;
    });
    const own = lanes.find(({ lane }) => isChosen && lane.actor === event.actor);
    ring.setAttribute("visibility", own ? "visible" : "hidden");
    ring.setAttribute("cx", left);
    ring.setAttribute("cy", own?.track ?? 0);
    return states.join("; ");
  };
  /** Marks a moment for good. */
  const mark = (at, words) => {
    const left = x(at);
    svg.append(element("line", { x1: left, x2: left, y1: 0, y2: top, class: "differs" }));
    const end = left > width / 2 ? "end" : "start";
    svg.append(element("text", { x: left + (end === "end" ? -4 : 4), y: top - 2, "text-anchor": end, class: "small differs" }, words));
  };
  return { svg, show, mark };
}

function bar(add, { lane, span, bars, scale, x, color }) {
  const [left, right] = [x(span.from), x(span.to)];
  const box = { x: left, width: Math.max(1, right - left) };
  const own = `t${color(span.token)}`;
  const draw = (top, height, kind) => add("rect", { ...box, y: bars + top, height, rx: 2, class: `${kind} ${own}` });
  const token = span.token == null ? "" : short(span.token);
  const write = (words, top = 16, kind = "") => label(add, left, right, bars + top, words, kind);
  const drawing = {
    lease: () => {
      add("polygon", { points: wedge(span, bars, scale, x), class: `lease ${own}` });
      write(token, 16, `on ${own}`);
    },
    believes: () => {
      draw(0, BAR / 2, "believes");
      write(token, 10, "small");
      // Where it is wrong follows from when it really holds the lock.
      const real = lane.spans.find((other) => other.what === "holds" && other.token === span.token && other.from === span.from);
      const wrong = real ? Math.max(left, x(real.to)) : left;
      if (wrong < right) add("rect", { x: wrong, width: right - wrong, y: bars, height: BAR, class: "wrong" });
    },
    holds: () => draw(BAR / 2, BAR / 2, "holds"),
    pause: () => draw(-3, BAR + 6, "pause"),
    wait: () => draw(4, BAR - 8, "wait"),
    held: () => draw(2, BAR - 4, "held"),
    killed: () => draw(BAR / 2 - 1, 2, "killed"),
    value: () => {
      draw(0, BAR, `value${span.lost ? " lost" : ""}`);
      write(token ? `${span.text} · ${token}` : span.text);
    },
    fence: () => {
      draw(BAR, FENCE, "fence");
      const words = text("state.fence", { token });
      const fits = words.length * LETTER < right - left - 6;
      write(fits ? words : `≥ ${token}`, BAR + 11, `small on ${own}`);
    },
  };
  drawing[span.what]();
}

/** A lease that shrinks with the time that is left of it. */
function wedge(span, bars, scale, x) {
  const left = (at) => (span.ms ? Math.max(0, 1 - (at - span.from) / span.ms) : 1);
  const to = Math.min(span.to, scale.end);
  const moments = [span.from, ...scale.between(span.from, to).slice(0, 50), to];
  const upper = moments.map((at) => `${x(at)},${(bars + BAR * (1 - left(at))).toFixed(1)}`);
  return [...upper, `${x(to)},${bars + BAR}`, `${x(span.from)},${bars + BAR}`].join(" ");
}

/** Words where there is room for them, or their beginning. */
function label(add, left, right, y, words, kind) {
  const room = Math.floor((right - left - 6) / LETTER);
  const letters = [...words];
  if (room < Math.min(letters.length, 3)) return;
  const shown = letters.length > room ? `${letters.slice(0, room - 1).join("")}…` : words;
  add("text", { x: left + 4, y, class: `in ${kind}` }, shown);
}

function shaft(add, { at, from, to, token, message, end }, lanes, x, color) {
  const [start, goal] = [from, to].map((name) => lanes.find(({ lane }) => lane.actor === name));
  const down = goal.bars > start.bars;
  const [y1, y2] = down ? [start.track, goal.bars] : [start.bars, goal.track];
  const [tip, back] = down ? [y2, y2 - 7] : [y2, y2 + 7];
  const left = x(at);
  const kind = `arrow ${message} ${end} t${color(token)}`;
  add("line", { x1: left, x2: left, y1, y2, class: kind });
  if (end === "refused") add("line", { x1: left - 7, x2: left + 7, y1: tip, y2: tip, class: "shield" });
  else add("path", { d: `M${left} ${tip}l-4 ${back - tip}h8z`, class: `head ${kind}` });
}

/** Marks differ by shape, not only by colour. */
const SHAPES = {
  plain: (x, y) => circle(x, y, 2.5),
  accepted: (x, y) => circle(x, y, 5),
  refused: (x, y) => `M${x - 5} ${y - 5}h10v10h-10z`,
  unknown: (x, y) => `M${x} ${y - 6.5}l6.5 6.5l-6.5 6.5l-6.5 -6.5z`,
  harm: (x, y) => `M${x} ${y - 7}l7 12h-14z`,
};

function circle(x, y, radius) {
  return `M${x - radius} ${y}a${radius} ${radius} 0 1 0 ${2 * radius} 0a${radius} ${radius} 0 1 0 ${-2 * radius} 0z`;
}

/** A sample for the legend. */
export function sample(name) {
  const svg = element("svg", { width: 30, height: 18, "aria-hidden": "true" });
  const area = { x: 1, y: 2, width: 28, height: 14, rx: 2 };
  if (SHAPES[name]) svg.append(element("path", { d: SHAPES[name](15, 9), class: `mark ${name}` }));
  else if (name === "lease") svg.append(element("polygon", { points: "1,2 29,16 1,16", class: "lease t0" }));
  else svg.append(element("rect", { ...area, class: `${name} t0` }));
  return svg;
}
