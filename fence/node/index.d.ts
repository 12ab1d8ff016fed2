/** A `Client` of pg, or one of a pool's, but no `Pool`. */
export interface AnyClient {
  query(sql: string, values?: any[]): Promise<any>;
  readonly totalCount?: never;
}

/** Anything with a resource, a token and a holder. */
export interface AnyLease {
  readonly resource: string;
  readonly token: number;
  readonly holder: string;
}

/** A held lock. The holder is the proof of holding, so it is not printed. */
export class Lease implements AnyLease {
  constructor(resource: string, token: number, holder?: string);
  readonly resource: string;
  readonly token: number;
  readonly holder: string;
  /** The lease of `lock-client run`, whose command this process is. */
  static fromEnvironment(): Lease;
  /** The lease in a JSON object: the handle that `lock-client acquire` prints. */
  static fromJson(text: string): Lease;
}

/**
 * Begins a transaction, claims, runs the work, commits, and returns the work's result; or rolls
 * back, after any error. Several leases are claimed in the byte order of their resources.
 *
 * The work gets the client, but its `query` rejects once `fenced` has ended: a task that still runs
 * would write outside any transaction.
 *
 * Rejects with `TransactionOpen` inside another transaction: its reads may be older than the claim,
 * and a rejection would leave the work that was based on them.
 */
export function fenced<Client extends AnyClient, Result>(
  client: Client,
  leases: AnyLease | readonly AnyLease[],
  work: (transaction: Client) => Promise<Result> | Result,
): Promise<Result>;

/**
 * Protects tables, again or for the first time, in the caller's transaction. `tables` maps the name
 * of each table to the column that names a row's resource, or to that column and a prefix. Call this
 * after every migration: a table that was rebuilt has lost its triggers.
 */
export function protect(
  client: AnyClient,
  tables: Readonly<Record<string, string | readonly [column: string, prefix: string]>>,
): Promise<void>;

/** An error of the fence. Unless its class says otherwise, nothing was committed. */
export class FenceError extends Error {
  readonly resource?: string;
  readonly token?: number;
  readonly highestToken?: number;
  /** The driver's error. */
  readonly cause?: unknown;
}

/** The rule rejected the token. Discard what was read, and start again from the lock. */
export class Rejected extends FenceError {}
/** The token is below the fence: the lock was granted to another client since. */
export class Stale extends Rejected {}
/** The fence's token belongs to another holder: the lock service issued it twice. */
export class HolderConflict extends Rejected {}
/** The resource, the token or the holder is malformed. */
export class Malformed extends FenceError {}
/** The transaction wrote to a protected table without a token for the row's resource. */
export class TokenRequired extends FenceError {}
/** The transaction truncated a protected table. */
export class TruncateRejected extends FenceError {}
/** Another transaction got in between, or a wait timed out. Retry the whole transaction. */
export class Contended extends FenceError {}
/** A transaction was open already. It is as it was. */
export class TransactionOpen extends FenceError {}
/** The transaction of the work had failed, or the work itself had ended it. */
export class NotCommitted extends FenceError {}
/** The answer to the commit was lost. Acquire a higher token, and claim and read with it. */
export class OutcomeUnknown extends FenceError {}
