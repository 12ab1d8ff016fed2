// A world as a panel: tracks with bars, marks and arrows, and a line at the chosen moment.

import { actor, seconds, short, state, text } from "./words.mjs";

const NAME = 20;
const BAR = 24;
const FENCE = 15;
const RAIL = 16;
const GAP = 8;
const AXIS = 18;
const LETTER = 7;
/** Below this width, a track has its state on a line of its own. */
const NARROW = [400, 16];
/** With more events than this, places are this many pixels apart, so that fewer things are drawn. */
const MANY = [1000, 3];
const SPACE = "http://www.w3.org/2000/svg";

/** An element of SVG. Texts are set as text, and never as markup. */
function element(name, attributes, content = "") {
  const created = set(document.createElementNS(SPACE, name), attributes);
  created.textContent = content;
  return created;
}

function set(changed, attributes) {
  for (const [name, value] of Object.entries(attributes)) changed.setAttribute(name, value);
  return changed;
}

/** Shapes of one kind are one path. So a page stays smooth, however much has happened. */
class Drawing {
  kinds = new Map();
  texts = [];

  add(kind, path) {
    if (!this.kinds.has(kind)) this.kinds.set(kind, new Set());
    this.kinds.get(kind).add(path);
  }

  text(x, y, kind, words) {
    this.texts.push(element("text", { x, y, class: kind }, words));
  }

  elements() {
    const paths = [...this.kinds].map(([kind, shapes]) => element("path", { class: kind, d: [...shapes].join("") }));
    return [...paths, ...this.texts];
  }
}

/** Draws a story on a scale. Returns the picture, a function that shows a moment in it, and one that marks one. */
export function panel(story, scale, width, color) {
  const drawing = new Drawing();
  const grain = story.world.events.length > MANY[0] ? MANY[1] : 0.5;
  const x = (at) => Math.round(Math.min(width, scale.x(Math.min(at, scale.end))) / grain) * grain;
  const isNarrow = width < NARROW[0];
  const tracks = [];
  let top = 0;
  for (const track of story.tracks) {
    const bars = top + NAME + (isNarrow ? NARROW[1] : 0);
    const rail = bars + BAR + (track.kind === "storage" ? FENCE : 0) + RAIL / 2;
    const name = element("text", { x: 0, y: top + 14, class: "name" }, actor(track.actor));
    const words = element("tspan", isNarrow ? { x: 0, y: bars - 6 } : { dx: 10 });
    name.append(words);
    drawing.add("rail", `M0 ${rail}H${width}`);
    tracks.push({ track, bars, rail, name, words });
    top = rail + RAIL / 2 + GAP;
  }
  for (const { track, bars } of tracks) {
    for (const span of track.spans) bar(drawing, { track, span, bars, scale, x, color });
    if (track.kind === "storage" && story.world.checks !== "tokens") {
      drawing.add("unfenced", box(0.5, bars + BAR, width - 1, FENCE));
      label(drawing, 0, width, bars + BAR + 11, text("state.unfenced"), "small muted");
    }
  }
  for (const arrow of story.arrows) shaft(drawing, arrow, tracks, x, color);
  for (const [shape, path] of Object.entries(SHAPES)) {
    for (const { track, rail } of tracks) {
      for (const mark of track.marks) if (mark.shape === shape) drawing.add(`mark ${shape}`, path(x(mark.at), rail));
    }
  }
  let last = "";
  for (const [time, at] of scale.ticks(56)) {
    const words = seconds(time, 2);
    if (at < width - 24 && words !== last) drawing.text(at, top + 12, "small muted", words);
    last = words;
  }
  const size = { width, height: top + AXIS };
  const drawn = element("svg", { ...size, class: "drawn" });
  drawn.append(...drawing.elements());
  // What moves is a picture of its own, so that the browser need not paint the rest again.
  const moving = element("svg", { ...size, class: "moving" });
  const future = element("rect", { y: 0, height: top, class: "future" });
  const now = element("line", { y1: 0, y2: top, class: "now" });
  const ring = element("circle", { r: 9, class: "ring" });
  moving.append(future, now, ring, ...tracks.map(({ name }) => name));
  const picture = Object.assign(document.createElement("div"), { className: "picture", role: "img" });
  picture.append(drawn, moving);

  /** Shows a moment, after an event of this world. If it is the chosen event, its mark is ringed. While a run
   * is played, its last event may be this many milliseconds ago. */
  const show = (at, event, isChosen, age = 0) => {
    const left = x(at);
    set(future, { x: left, width: Math.max(0, width - left) });
    set(now, { x1: left, x2: left });
    const states = tracks.map(({ track, words }) => {
      const [summary, tone] = state(track, { index: event?.index ?? -1, at: at + age }, story.world.checks);
      set(words, { class: `state ${tone}${isNarrow ? " small" : ""}` }).textContent = summary;
      return `${actor(track.actor)}: ${summary}`;
    });
    const own = tracks.find(({ track }) => isChosen && track.actor === event.actor);
    set(ring, { visibility: own ? "visible" : "hidden", cx: left, cy: own?.rail ?? 0 });
    return states.join("; ");
  };
  /** Marks a moment for good. */
  const mark = (at, words) => {
    const left = x(at);
    const [end, shift] = left > width / 2 ? ["end", -4] : ["start", 4];
    drawn.append(element("path", { d: `M${left} 0V${top}`, class: "differs" }));
    drawn.append(element("text", { x: left + shift, y: top - 2, "text-anchor": end, class: "small differs" }, words));
  };
  /** Who has the track at this height. */
  const actorAt = (y) => tracks.find(({ rail }) => y < rail + RAIL / 2)?.track.actor;
  return { picture, show, mark, actorAt };
}

function bar(drawing, { track, span, bars, scale, x, color }) {
  const [left, right] = [x(span.from), x(span.to)];
  const own = `t${color(span.token)}`;
  const draw = (top, height, kind) => drawing.add(`${kind} ${own}`, box(left, bars + top, Math.max(1, right - left), height));
  const token = span.token == null ? "" : short(span.token);
  const write = (words, top = 16, kind = "") => label(drawing, left, right, bars + top, words, kind);
  const draws = {
    lease: () => {
      drawing.add(`lease ${own}`, wedge(span, bars, scale, x));
      write(token, 16, `on ${own}`);
    },
    believes: () => {
      draw(0, BAR / 2, "believes");
      write(token, 10, "small");
      // Where it is wrong follows from when it really holds the lock.
      const real = track.spans.find((other) => other.what === "holds" && other.token === span.token && other.from === span.from);
      const wrong = real ? Math.max(left, x(real.to)) : left;
      if (wrong < right) drawing.add("wrong", box(wrong, bars, right - wrong, BAR));
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
  draws[span.what]?.();
}

function box(x, y, width, height) {
  return `M${x} ${y}h${width}v${height}h${-width}z`;
}

/** A lease that shrinks with the time that is left of it. */
function wedge(span, bars, scale, x) {
  const left = (at) => (span.ms ? Math.max(0, 1 - (at - span.from) / span.ms) : 1);
  const to = Math.min(span.to, scale.end);
  const moments = [span.from, ...scale.between(span.from, to).slice(0, 50), to];
  const upper = moments.map((at) => `${x(at)} ${(bars + BAR * (1 - left(at))).toFixed(1)}`);
  return `M${upper.join("L")}V${bars + BAR}H${x(span.from)}z`;
}

/** Words where there is space for them, or their beginning. */
function label(drawing, left, right, y, words, kind) {
  const space = Math.floor((right - left - 6) / LETTER);
  const letters = [...words];
  if (space < Math.min(letters.length, 3)) return;
  const shown = letters.length > space ? `${letters.slice(0, space - 1).join("").trim()}…` : words;
  drawing.text(left + 4, y, kind, shown);
}

function shaft(drawing, { at, from, to, token, message, end }, tracks, x, color) {
  const [start, goal] = [from, to].map((name) => tracks.find(({ track }) => track.actor === name));
  const down = goal.bars > start.bars;
  const [y1, y2] = down ? [start.rail, goal.bars] : [start.bars, goal.rail];
  const [tip, back] = down ? [y2, y2 - 7] : [y2, y2 + 7];
  const left = x(at);
  const kind = `arrow ${message} ${end} t${color(token)}`;
  drawing.add(kind, `M${left} ${y1}V${y2}`);
  if (end === "rejected") drawing.add("shield", `M${left - 7} ${tip}h14`);
  else drawing.add(`head ${kind}`, `M${left} ${tip}l-4 ${back - tip}h8z`);
}

/** Marks differ by shape, not only by colour. The last ones are drawn above the others. */
const SHAPES = {
  plain: (x, y) => circle(x, y, 2.5),
  accepted: (x, y) => circle(x, y, 5),
  rejected: (x, y) => `M${x - 5} ${y - 5}h10v10h-10z`,
  unknown: (x, y) => `M${x} ${y - 6.5}l6.5 6.5l-6.5 6.5l-6.5 -6.5z`,
  harm: (x, y) => `M${x} ${y - 7}l7 12h-14z`,
};

function circle(x, y, radius) {
  return `M${x - radius} ${y}a${radius} ${radius} 0 1 0 ${2 * radius} 0a${radius} ${radius} 0 1 0 ${-2 * radius} 0z`;
}

/** A sample for the legend. */
export function sample(name) {
  const svg = element("svg", { width: 30, height: 18, "aria-hidden": "true" });
  const path = { lease: "M1 2L29 16H1z", read: "M1 9h28", shield: "M8 9h14" }[name] ?? box(1, 2, 28, 14);
  const kind = { read: "arrow read t0" }[name] ?? `${name} t0`;
  svg.append(element("path", { d: SHAPES[name]?.(15, 9) ?? path, class: SHAPES[name] ? `mark ${name}` : kind }));
  return svg;
}
