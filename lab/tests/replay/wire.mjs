// Reads a record from stdin, and prints for each event what the page shows of the wire: a JSON array a line.

import { readFileSync } from "node:fs";
import { wire } from "../../src/page/wire.mjs";

globalThis.document = { createElement: (name) => ({ name }) };
const record = JSON.parse(readFileSync(0, "utf8"));
for (const index of record.events.keys()) {
  console.log(JSON.stringify(wire(record, index).map(({ name, className, textContent }) => [name, className, textContent])));
}
