// The accounts in the database under test, and what the tests do with them.

import assert from "node:assert/strict";
import pg from "pg";

const { DATABASE_URL, OWNER_URL, SUPERUSER_URL, LOSSY_URL } = process.env;
export { DATABASE_URL, LOSSY_URL, OWNER_URL, SUPERUSER_URL };

// `pg` returns a bigint as a string.
export const READ = "select balance::integer from accounts where account_id = $1";
export const WRITE = "update accounts set balance = $1 where account_id = $2";
export const unreachable = () => assert.fail("the work must not run");

// What people write without the package.
export async function unfenced(client, _lease, work) {
  await client.query("begin");
  try {
    const result = await work(client);
    await client.query("commit");
    return result;
  } catch (error) {
    await client.query("rollback");
    throw error;
  }
}

let accounts = 0;

// Opens an account, and returns its name.
export async function openAccount(balance = 100) {
  const account = `account-${process.pid}-${++accounts}`;
  await once(OWNER_URL, "insert into accounts values ($1, $2)", [account, balance]);
  return account;
}

export async function balance(account) {
  return once(OWNER_URL, READ, [account]);
}

// The token of a resource's fence, or undefined. Only a superuser can read it.
export async function tokenOf(resource) {
  const sql = "select token::integer from fence.fence where resource = $1";
  return once(SUPERUSER_URL, sql, [resource]);
}

// Runs a test with clients, and ends them.
export async function withClients(count, test, url = DATABASE_URL) {
  const clients = Array.from({ length: count }, () => new pg.Client({ connectionString: url }));
  // A connection that is lost is an event, too.
  for (const client of clients) client.on("error", () => {});
  try {
    for (const client of clients) await client.connect();
    return await test(...clients);
  } finally {
    await Promise.allSettled(clients.map((client) => client.end()));
  }
}

export function pool() {
  return new pg.Pool({ connectionString: DATABASE_URL });
}

// Runs one statement, and returns its first value.
export async function once(url, sql, values) {
  return withClients(1, (client) => value(client, sql, values), url);
}

export async function value(client, sql, values) {
  const { rows } = await client.query({ text: sql, values, rowMode: "array" });
  return rows[0]?.[0];
}
