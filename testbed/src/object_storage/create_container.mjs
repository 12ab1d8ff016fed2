// Creates a container: node create_container.mjs ACCOUNT_URL ACCOUNT KEY CONTAINER
import { createHmac } from "node:crypto";

const [url, account, key, container] = process.argv.slice(2);
const headers = { "x-ms-date": new Date().toUTCString(), "x-ms-version": "2021-08-06" };
const address = new URL(`${url}/${container}?restype=container`);
// The verb, eleven headers that are absent, the headers of Azure, and the resource.
const signed = [
  "PUT", ...Array(11).fill(""), ...Object.entries(headers).map((header) => header.join(":")),
  `/${account}${address.pathname}`, "restype:container",
].join("\n");
const signature = createHmac("sha256", Buffer.from(key, "base64")).update(signed).digest("base64");
const answer = await fetch(address, {
  method: "PUT", headers: { ...headers, authorization: `SharedKey ${account}:${signature}` },
});
if (!answer.ok) throw new Error(`${answer.status} ${await answer.text()}`);
