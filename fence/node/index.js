// Fencing tokens, checked by PostgreSQL: claim first, then read, then write. With pg.

import { NotCommitted, OutcomeUnknown, TransactionOpen, typed } from "./errors.js";
import { inClaimOrder } from "./lease.js";

export {
  Contended,
  FenceError,
  HolderConflict,
  Malformed,
  NotCommitted,
  OutcomeUnknown,
  Rejected,
  Stale,
  TokenRequired,
  TransactionOpen,
  TruncateRejected,
} from "./errors.js";
export { Lease } from "./lease.js";

// Each is one message, and so one round trip. A transaction that the first has begun is as old as
// the message: inside an older transaction, `begin` does nothing but warn. The second fails before
// its commit in any other transaction: PostgreSQL skips the rest of a message after an error.
const BEGIN = `begin; select pg_catalog.pg_current_xact_id()::text as id,
  pg_catalog.now() = pg_catalog.statement_timestamp() as is_new`;
const ANOTHER = "another transaction than the one that fenced began";
const commitOnly = (transaction) => `select (
  case when pg_catalog.pg_current_xact_id_if_assigned()::text = '${transaction}' then '1'
  else '${ANOTHER}' end)::integer; commit`;

const ABORTED = "25P02";
const ALREADY_OPEN = "25001";

// Begins a transaction, claims, runs the work, commits, and returns the work's result; or rolls
// back, after any error. Several leases are claimed in the byte order of their resources.
//
// The work gets the client, but its `query` rejects once `fenced` has ended: a task that still runs
// would write outside any transaction.
//
// Rejects with TransactionOpen inside another transaction: its reads may be older than the claim,
// and a rejection would leave the work that was based on them.
export async function fenced(client, leases, work) {
  const claims = inClaimOrder(leases);
  if (typeof client.totalCount === "number") {
    throw new TypeError("a pool runs each statement on another client: use await pool.connect()");
  }
  const transaction = await begin(client);
  const { lent, end } = lend(client);
  let result;
  try {
    for (const { resource, token, holder } of claims) {
      await client.query("select fence.claim($1, $2, $3)", [resource, token, holder]);
    }
    result = await work(lent);
    end();
  } catch (error) {
    end();
    await rollBack(client);
    throw typed(error);
  }
  await commit(client, transaction);
  return result;
}

// Protects tables, again or for the first time, in the caller's transaction. `tables` maps the name
// of each table to the column that names a row's resource, or to that column and a prefix. Call this
// after every migration: a table that was rebuilt has lost its triggers.
export async function protect(client, tables) {
  for (const [table, resource] of Object.entries(tables)) {
    const [column, prefix = ""] = [resource].flat();
    const values = [table, column, prefix];
    await client.query("select fence.protect($1::regclass, $2, prefix => $3)", values);
  }
}

// Returns the client for the work, and a function that ends its use.
function lend(client) {
  let hasEnded = false;
  const query = (...values) => {
    if (!hasEnded) return client.query(...values);
    const error = new Error("fenced has ended: await each query within the work");
    const callback = values.at(-1);
    if (typeof callback !== "function") return Promise.reject(error);
    process.nextTick(callback, error);
  };
  const get = (_, name) => (name === "query" ? query : Reflect.get(client, name));
  return { lent: new Proxy(client, { get }), end: () => (hasEnded = true) };
}

async function begin(client) {
  let isOpen = false;
  const note = ({ code }) => (isOpen ||= code === ALREADY_OPEN);
  client.on?.("notice", note);
  let results;
  try {
    results = await client.query(BEGIN);
  } catch (error) {
    if (error.code === ABORTED) throw new TransactionOpen({ cause: error });
    // A transaction of the caller stays aborted: after a rollback, its next write would commit.
    if (!isOpen) await rollBack(client);
    throw error;
  } finally {
    client.removeListener?.("notice", note);
  }
  const { id, is_new: isNew } = results[1].rows[0];
  if (!isNew) throw new TransactionOpen();
  return id;
}

async function commit(client, transaction) {
  try {
    await client.query(commitOnly(transaction));
  } catch (error) {
    // An error proves that nothing was committed if the server has sent it, and still answers: a
    // server that ends the connection may also say why.
    const isAlive = await rollBack(client);
    if (error.severity === undefined || !isAlive) throw new OutcomeUnknown({ cause: error });
    const isAnother = error.code === ABORTED || error.message.includes(ANOTHER);
    throw isAnother ? new NotCommitted({ cause: error }) : typed(error);
  }
}

// Returns whether the server has answered. A connection that is lost has rolled back by itself.
async function rollBack(client) {
  try {
    await client.query("rollback");
    return true;
  } catch {
    return false;
  }
}
