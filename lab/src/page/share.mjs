// The page as one file, and records that are dropped onto it.

/** The page as it came, before a script has changed it. */
const PRISTINE = document.documentElement.cloneNode(true);

/** What the page brought with it: the scenarios, and a record if it has one. */
export function embedded() {
  return JSON.parse(document.getElementById("data").textContent);
}

/** The viewer alone. It comes from the lab at once, because a reader may save a run when the lab is gone. */
const VIEWER = embedded().serves ? fetch("viewer.html").then((answer) => answer.text()) : `<!doctype html>\n${PRISTINE.outerHTML}\n`;

/** Saves a viewer with this record as a file. In JSON, `\u003c` is a `<` that ends no script. */
export async function save(record, { scenarios }) {
  const viewer = await VIEWER;
  const data = JSON.stringify({ scenarios, record }).replaceAll("<", "\\u003c");
  const page = viewer.replace(/( id="data">)[^<]*(<\/script>)/, (whole, start, end) => start + data + end);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([page], { type: "text/html" }));
  link.download = `${String(record.scenario).replace(/[^\w-]+/g, "-") || "run"}.html`;
  link.click();
  URL.revokeObjectURL(link.href);
}

/** Calls with the name and the text of each file that is chosen, or dropped onto the page. */
export function receive(input, open) {
  const take = async (files) => files[0] && open(files[0].name, await files[0].text());
  input.addEventListener("change", () => take(input.files));
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    take(event.dataTransfer.files);
  });
}
