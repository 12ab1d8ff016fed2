// What a client and a server said to each other, and lines for a shell that do the same.

import { text } from "./words.mjs";

/** Elements that show it for an event, as text. A decision of the storage answers the event before it. */
export function wire({ events }, index) {
  const decides = /^(accepted|answered|rejected)/.test(events[index].event) && !/^client/.test(events[index].actor);
  const { exchanges = [], omitted } = (events[index].wire ?? (decides && events[index - 1]?.wire)) || {};
  const script = (hash) => events.find((event) => event.wire?.scripts?.[hash])?.wire.scripts[hash] ?? hash;
  const shown = exchanges.flatMap((exchange) => {
    const [request, ...line] = FORMS[exchange.protocol]?.(exchange, script) ?? [exchange.protocol];
    return [part("pre", request, "request"), part("pre", exchange.answer ?? text("wire.unanswered")), ...line.flatMap(copied)];
  });
  const sql = exchanges.filter(({ protocol }) => protocol === "sql");
  if (sql.length) shown.push(...copied(["psql", sql[0].database, ...sql.flatMap(executed)]));
  if (omitted) shown.push(part("p", text("wire.omitted", { count: omitted })));
  return shown.length ? shown : [part("p", text("wire.none"), "muted")];
}

/** A request as it was sent, and the words of a line that sends it. */
const FORMS = {
  http: ({ method, url, headers, body }) => [
    [`${method} ${url}`, ...headers, "", body].join("\n").trimEnd(),
    ["curl", "-gi", "-X", method, ...headers.filter(isWhole).flatMap((header) => ["-H", header]), ...(body && ["--data-raw", body]), url],
  ],
  redis: ({ server, command }, script) => {
    const words = command.map((word) => (word.script ? script(word.script) : word));
    return [words.join(" "), ["redis-cli", ...(server.startsWith("/") ? ["-s", server] : ["-u", `redis://${server}`]), ...words]];
  },
  sql: ({ statement, arguments: values }) => [[statement, ...values.map((value, n) => `$${n + 1} = ${value}`)].join("\n")],
};

/** The arguments of `psql` that execute a statement of SQL. */
function executed({ statement, arguments: values }, number) {
  const literals = values.map((value) => (value === null ? "null" : `'${value.replaceAll("'", "''")}'`));
  return values.length ? ["-c", `prepare s${number} as ${statement}`, "-c", `execute s${number}(${literals})`] : ["-c", statement];
}

function part(name, words, className = "") {
  return Object.assign(document.createElement(name), { textContent: words, className, ...(name === "pre" && { tabIndex: 0 }) });
}

/** Whether a word is as it was sent. What is too long, secret or no text is not recorded as it was. */
function isWhole(word) {
  return !/…(?=$|')|\ufffd|\(not recorded\)$/.test(word);
}

/** A line of these words, and a button that copies it. A part of a request would do something else. */
function copied(words) {
  if (!words.every(isWhole)) return [];
  const line = words.map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`)).join(" ");
  return [part("pre", line, "line"), Object.assign(part("button", text("copy")), { type: "button", onclick: () => navigator.clipboard.writeText(line) })];
}
