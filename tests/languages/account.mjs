// The fence from Node with pg, on a table that an administrator has protected with
// `select fence.protect('accounts', 'account_id')`:
//
//     npm install pg
//     DATABASE_URL=postgres://... node account.mjs

import assert from "node:assert/strict";
import pg from "pg";

// One client for a whole transaction: a pool's own `query` may take another for each statement.
const client = new pg.Client({ connectionString: process.env.DATABASE_URL });

async function transaction(work) {
  await client.query("begin");
  try {
    await work();
    await client.query("commit");
  } catch (error) {
    await client.query("rollback");
    throw error;
  }
}

await client.connect();

// A write that depends on nothing read presents its token, in the same transaction.
await transaction(async () => {
  await client.query("select fence.present($1, $2)", [34, "me"]);
  await client.query("update accounts set balance = 70 where account_id = 'alice'");
});

// A late one with an older token is rejected.
const stale = transaction(async () => {
  await client.query("select fence.present($1, $2)", [33, "late"]);
  await client.query("update accounts set balance = 0 where account_id = 'alice'");
});
await assert.rejects(
  stale,
  (error) => {
    assert.equal(error.code, "ZF001", error);
    assert.deepEqual(JSON.parse(error.detail), { resource: "alice", token: 33, highest_token: 34 });
    return true;
  },
  "the write with token 33 was not rejected",
);

// A write that presents no token is rejected too.
await assert.rejects(
  client.query("update accounts set balance = 0 where account_id = 'alice'"),
  { code: "ZF004" },
  "the write without a token was not rejected",
);

// A write that depends on what it reads claims before it reads.
await transaction(async () => {
  await client.query("select fence.claim($1, $2, $3)", ["alice", 34, "me"]);
  const { rows } = await client.query("select balance from accounts where account_id = 'alice'");
  assert.equal(rows[0].balance, 70);
  await client.query("update accounts set balance = $1 where account_id = 'alice'", [
    rows[0].balance + 5,
  ]);
});

await client.end();
