// What the events of a world mean for its tracks: who holds the lock, who believes it, what is stored.

const KINDS = [
  ["client", /^(client\d|others)$/],
  ["network", /^network$/],
  ["storage", /^storage$/],
];
const ORDER = ["lock", "client", "network", "storage"];
const OUTCOMES = {
  rejected: ["rejected", "claim-rejected", "not-bought", "aborted", "busy", "gave-up", "no-majority"],
  unknown: [
    "replies-lost", "request-held", "cut-off", "client-cut-off", "unreachable", "unanswered", "standbys-cut-off",
    "primary-cut-off", "commit-waits", "unavailable",
  ],
  harm: ["accepted-stale-write", "accepted-anothers-token", "accepted-by-old-primary", "lock-deleted", "lock-forgotten"],
  accepted: [
    "acquired", "set-without-expiry", "read", "written", "accepted-claim", "accepted-write", "answered", "bought",
    "stock-read", "reissued", "admitted",
  ],
};

/** The shape that marks an event: a harm is something that was accepted and should not have been. */
export function shape(event) {
  const harms =
    event.overwrites_unseen > 0 || event.beside || (event.event === "taken" && event.taken > 0) ||
    (event.event === "lock-remains" && event.remaining_ms == null) ||
    (event.event === "stock" && event.sold > event.items);
  if (harms) return "harm";
  return Object.keys(OUTCOMES).find((name) => OUTCOMES[name].includes(event.event)) ?? "plain";
}

/** Tells a world: its tracks with their spans, and the arrows between them. Times are the world's. */
export function story(world, actors) {
  const kind = (actor) => KINDS.find(([, pattern]) => pattern.test(actor))?.[0] ?? "lock";
  const tracks = actors
    .map((actor) => ({ actor, kind: kind(actor), spans: [], open: [], marks: [] }))
    .sort((one, other) => ORDER.indexOf(one.kind) - ORDER.indexOf(other.kind));
  const draft = new Draft(tracks, world.checks === "tokens");
  for (const event of world.events) {
    draft.now = event.at;
    draft.index = event.index;
    draft.track(event.actor)?.marks.push({ at: event.at, index: event.index, shape: shape(event) });
    MEANINGS[event.event]?.(draft, event);
  }
  for (const span of tracks.flatMap((track) => track.open)) Object.assign(span, { to: Infinity, last: Infinity });
  return { world, tracks, arrows: draft.arrows };
}

/** A story that grows with each event. */
class Draft {
  now = 0;
  index = 0;
  arrows = [];
  lastRead = false;
  destroys = false;

  constructor(tracks, checks) {
    this.tracks = tracks;
    this.checks = checks;
    this.service = tracks.find((track) => track.kind === "lock")?.actor;
  }

  track(actor) {
    return this.tracks.find((track) => track.actor === actor);
  }

  start(actor, what, details = {}) {
    const span = { what, from: this.now, first: this.index, ...details };
    this.track(actor)?.spans.push(span);
    this.track(actor)?.open.push(span);
  }

  end(actor, what, details = {}) {
    const track = this.track(actor);
    const matches = (span) =>
      span.what === what && Object.entries(details).every(([name, value]) => span[name] === value);
    const ended = track?.open.filter(matches) ?? [];
    for (const span of ended) Object.assign(span, { to: this.now, last: this.index });
    if (ended.length) track.open = track.open.filter((span) => !matches(span));
    return ended.at(-1);
  }

  /** A lock service serves clients from now on. */
  serve(actor) {
    if (this.track(actor)?.kind === "lock") this.service = actor;
  }

  grant(client, token, ms) {
    const killed = this.tracks.filter((track) => track.open.some((span) => span.what === "killed"));
    for (const track of killed) this.giveBack(track.actor);
    this.end(client, "wait");
    this.start(client, "believes", { token });
    this.start(client, "holds", { token });
    this.start(this.service, "lease", { token, ms, whose: client });
    this.arrow(this.service, client, token, "grant");
  }

  /** The lock service ends a client's lease, which the client does not know. */
  expire(client) {
    for (const track of this.tracks) this.end(track.actor, "lease", { whose: client });
    this.end(client, "holds");
  }

  /** The client knows that it has no lease any more. */
  giveBack(client) {
    this.expire(client);
    this.end(client, "believes");
  }

  /** The lock service of now has kept a client's lease, which another may have granted. */
  keep(client) {
    for (const track of this.tracks.filter((track) => track.actor !== this.service)) {
      const kept = this.end(track.actor, "lease", { whose: client });
      const ms = kept?.ms && Math.max(1, kept.ms - (this.now - kept.from));
      if (kept) this.start(this.service, "lease", { token: kept.token, ms, whose: client });
    }
  }

  forgetAll() {
    for (const track of this.tracks.filter((track) => track.kind === "client")) this.expire(track.actor);
  }

  arrow(from, to, token, message) {
    if (this.track(from) && this.track(to)) this.arrows.push({ at: this.now, from, to, token, message, end: "accepted" });
  }

  request(event, message) {
    const held = this.end("network", "held", { token: event.token });
    this.lastRead = message === "read";
    this.destroys = event.overwrites_unseen > 0;
    this.arrow(held ? "network" : event.actor, "storage", event.token, message);
  }

  arrives(end) {
    const last = this.arrows.at(-1);
    if (last?.to === "storage") last.end = end;
  }

  store(actor, text, token, lost) {
    const last = this.track(actor)?.spans.findLast((span) => span.what === "value");
    if (last && last.text === text && last.token === token) return;
    this.end(actor, "value");
    this.start(actor, "value", { text, token, lost });
  }

  raiseFence(token) {
    const last = this.track("storage")?.spans.findLast((span) => span.what === "fence");
    if (!this.checks || token == null || last?.token >= token) return;
    this.end("storage", "fence");
    this.start("storage", "fence", { token });
  }

  accept(event) {
    const isRead = this.lastRead;
    if (event.event !== "accepted-write") this.arrives("harm");
    if (isRead || event.value == null) return;
    this.raiseFence(event.token);
    if (this.destroys) this.arrives("harm");
    this.store("storage", event.value, event.token, this.destroys);
  }
}

const named = (title) => String(title).replace(" ", "");
const accept = (draft, event) => draft.accept(event);
const rejected = (draft, event) => (event.actor === "storage" ? draft.arrives("rejected") : draft.request(event, "write"));
const giveBack = (draft, event) => draft.giveBack(event.actor);

/** What each event changes. One that is not here changes no track, and still has its mark. */
const MEANINGS = {
  acquired: (draft, event) => draft.grant(event.actor, event.token, event.remaining_ms ?? event.ttl_ms),
  "set-without-expiry": (draft, event) => draft.grant(event.actor, event.token),
  "lease-expired": (draft, event) => draft.expire(named(event.whose)),
  "lock-deleted": (draft, event) => draft.expire(named(event.whose)),
  "lock-forgotten": (draft, event) => draft.expire(named(event.whose)),
  "lock-kept": (draft, event) => event.actor === draft.service && draft.keep(named(event.whose)),
  restarted: (draft, event) => {
    draft.end(event.actor, "killed");
    if (event.keys === 0 && event.actor === draft.service) draft.forgetAll();
  },
  "snapshot-restored": (draft) => draft.forgetAll(),
  // A lock there is lost with its database.
  "standby-promoted": (draft, event) => draft.service === event.actor && draft.forgetAll(),
  started: (draft, event) => draft.serve(event.actor),
  "in-step": (draft, event) => draft.start(event.actor, "follows"),
  "cut-off": (draft, event) => draft.end(event.actor, "follows"),
  promoted: (draft, event) => (draft.end(event.actor, "follows"), draft.serve(event.actor)),
  reissued: (draft, event) => {
    draft.giveBack(event.actor);
    draft.grant(event.actor, event.token);
  },
  released: giveBack, lost: giveBack, "lease-lost": giveBack, "lease-over": giveBack,
  unanswered: (draft, event) => ["believes", "holds"].forEach((what) => draft.end(event.actor, what)),
  deleted: (draft, event) => event.keys > 0 && draft.giveBack(event.actor),
  paused: (draft, event) => draft.start(event.actor, "pause"),
  resumed: (draft, event) => draft.end(event.actor, "pause"),
  killed: (draft, event) => draft.start(event.actor, "killed"),
  busy: (draft, event) => draft.start(event.actor, "wait"),
  "gave-up": (draft, event) => draft.end(event.actor, "wait"),
  "waited-for": (draft) => draft.start("others", "wait"),
  "handed-over": (draft) => draft.end("others", "wait"),
  "request-held": (draft, event) => {
    const holds = (track) => track.open.some((span) => span.what === "believes" && span.token === event.token);
    const sender = draft.tracks.find(holds);
    if (sender) draft.arrow(sender.actor, "network", event.token, "write");
    draft.start("network", "held", { token: event.token });
  },
  read: (draft, event) => {
    // The first value that somebody reads was there from the start.
    const track = draft.track("storage");
    if (event.value != null && track && !track.spans.some((span) => span.what === "value")) {
      draft.start("storage", "value", { from: 0, first: 0, text: event.value });
    }
    draft.request(event, "read");
  },
  "claim-rejected": (draft, event) => draft.request(event, "read"),
  written: (draft, event) => draft.request(event, "write"),
  rejected,
  "accepted-claim": (draft, event) => draft.raiseFence(event.token),
  "accepted-write": accept,
  "accepted-stale-write": accept,
  "accepted-anothers-token": accept,
  // The request went there, and not to the storage.
  "accepted-by-old-primary": (draft) => draft.arrows.pop(),
  stock: (draft, event) => draft.store(event.actor, `${event.left} / ${event.items}`, undefined, event.sold > event.items),
};
