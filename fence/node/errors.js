// The errors of a fenced transaction. Unless one says otherwise, nothing was committed.

// An error of the fence. If the driver raised one, that is its `cause`.
export class FenceError extends Error {
  constructor(message, { cause, detail = {} } = {}) {
    super(message, { cause });
    this.name = new.target.name;
    this.resource = detail.resource;
    this.token = detail.token;
    this.highestToken = detail.highest_token;
  }
}

// The rule rejected the token. Discard what was read, and start again from the lock.
export class Rejected extends FenceError {}

// The token is below the fence: the lock was granted to another client since.
export class Stale extends Rejected {}

// The fence's token belongs to another holder: the lock service issued it twice.
export class HolderConflict extends Rejected {}

// The resource, the token or the holder is malformed.
export class Malformed extends FenceError {}

// The transaction wrote to a protected table without a token for the row's resource.
export class TokenRequired extends FenceError {}

// The transaction truncated a protected table.
export class TruncateRejected extends FenceError {}

// Another transaction got in between, or a wait timed out. Retry the whole transaction.
export class Contended extends FenceError {
  constructor(message, options) {
    super(`${message}: retry the whole transaction`, options);
  }
}

// A transaction was open already, so a claim might be newer than what it has read. It is as it was.
export class TransactionOpen extends FenceError {
  constructor(options) {
    super("the client is in a transaction: commit or roll back first", options);
  }
}

// The work ended without an error, but its transaction had failed or ended before: the work caught
// the error of a statement, or committed or rolled back itself.
export class NotCommitted extends FenceError {
  constructor(options) {
    super(
      "nothing was committed at the end of the work: its transaction had failed, and the work " +
        "caught the error, or the work itself had ended the transaction",
      options,
    );
  }
}

// The answer to the commit was lost. Acquire a higher token, and claim and read with it: that shows
// whether the transaction was committed.
export class OutcomeUnknown extends FenceError {
  constructor(options) {
    super(
      "the answer to the commit was lost: the transaction may be committed, or not",
      options,
    );
  }
}

const BY_SQLSTATE = {
  ZF001: Stale,
  ZF002: HolderConflict,
  ZF003: Malformed,
  ZF004: TokenRequired,
  ZF005: TruncateRejected,
  // A snapshot older than another's claim, a deadlock, and lock_timeout.
  "40001": Contended,
  "40P01": Contended,
  "55P03": Contended,
};

// Returns the error that the driver's error means, or the same error if it isn't the fence's.
export function typed(error) {
  const Kind = BY_SQLSTATE[error?.severity && error.code];
  if (Kind === undefined) return error;
  return new Kind(error.message, { cause: error, detail: parsed(error.detail) });
}

// The detail of a rejection. Any other, of PostgreSQL or of the program's own functions, is left out.
function parsed(detail) {
  try {
    return JSON.parse(detail) ?? {};
  } catch {
    return {};
  }
}
