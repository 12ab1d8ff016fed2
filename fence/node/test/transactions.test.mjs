// Where transactions begin and end, with pg. The controls: the same program without `fenced` loses
// an update, or hears of no error.

import assert from "node:assert/strict";
import { test } from "node:test";
import * as fence from "fenced-storage-fence";
import {
  balance,
  DATABASE_URL,
  LOSSY_URL,
  once,
  openAccount,
  pool,
  READ,
  SUPERUSER_URL,
  tokenOf,
  unfenced,
  unreachable,
  value,
  withClients,
  WRITE,
} from "./bank.mjs";

const { Lease, fenced } = fence;

async function catchAnError(client, account, under) {
  await under(client, new Lease(account, 33), async () => {
    await client.query(WRITE, [5, account]);
    await assert.rejects(client.query("select 1 / 0"), { code: "22012" });
  });
}

test("an error that the work caught is not taken for a commit", async () => {
  const account = await openAccount();
  await withClients(1, async (client) => {
    await assert.rejects(catchAnError(client, account, fenced), fence.NotCommitted);
    await fenced(client, new Lease(account, 33), () => {});
  });
});

test("control: without fenced a caught error loses the write silently", async () => {
  const account = await openAccount();
  await withClients(1, (client) => catchAnError(client, account, unfenced));
  assert.equal(await balance(account), 100);
});

test("an end of the transaction within the work is not taken for a commit", async () => {
  const account = await openAccount();
  await withClients(1, async (client) => {
    for (const end of ["rollback", "rollback and chain"]) {
      const ended = fenced(client, new Lease(account, 33), async () => {
        await client.query(WRITE, [5, account]);
        await client.query(end);
      });
      await assert.rejects(ended, fence.NotCommitted);
      assert.equal(await balance(account), 100);
    }
  });
});

test("an open transaction is rejected, and left as it is", async () => {
  const account = await openAccount();
  await withClients(1, async (client) => {
    await unfenced(client, undefined, async () => {
      await client.query(WRITE, [5, account]);
      const nested = fenced(client, new Lease(account, 33), unreachable);
      await assert.rejects(nested, fence.TransactionOpen);
      assert.equal(await value(client, READ, [account]), 5);
    });
    assert.deepEqual([await balance(account), await tokenOf(account)], [5, undefined]);

    await client.query("begin");
    await assert.rejects(client.query("select 1 / 0"));
    const failed = fenced(client, new Lease(account, 33), unreachable);
    await assert.rejects(failed, fence.TransactionOpen);
  });
});

test("fenced inside fenced is rejected, and undoes all", async () => {
  const account = await openAccount();
  const lease = new Lease(account, 33);
  await withClients(1, async (client) => {
    const outer = fenced(client, lease, async () => {
      await client.query(WRITE, [5, account]);
      await fenced(client, lease, unreachable);
    });
    await assert.rejects(outer, fence.TransactionOpen);
    assert.deepEqual([await balance(account), await tokenOf(account)], [100, undefined]);
  });
});

test("control: a claim after the read loses an update", async () => {
  const account = await openAccount();
  await withClients(2, async (client, other) => {
    await unfenced(client, undefined, async () => {
      const read = await value(client, READ, [account]);
      await fenced(other, new Lease(account, 33), () => other.query(WRITE, [70, account]));
      await client.query("select fence.claim($1, 34, '')", [account]);
      await client.query(WRITE, [read - 50, account]);
    });
  });
  assert.equal(await balance(account), 50, "the withdrawal of 30 is lost");
});

test("a pool is rejected, and a client of it is not", async () => {
  const account = await openAccount();
  const clients = pool();
  try {
    await assert.rejects(fenced(clients, new Lease(account, 33), unreachable), TypeError);
    const client = await clients.connect();
    await fenced(client, new Lease(account, 33), () => client.query(WRITE, [5, account]));
    client.release();
  } finally {
    await clients.end();
  }
  assert.deepEqual([await balance(account), await tokenOf(account)], [5, 33]);
});

test("a lost answer to the commit is an unknown outcome", async () => {
  const account = await openAccount();
  await withClients(
    1,
    async (client) => {
      const work = () => client.query(WRITE, [5, account]);
      const lost = fenced(client, new Lease(account, 33), work);
      await assert.rejects(lost, fence.OutcomeUnknown);
    },
    LOSSY_URL,
  );
  assert.deepEqual([await balance(account), await tokenOf(account)], [5, 33], "committed");
});

test("a connection that the server ends at the commit is an unknown outcome", async () => {
  const account = await openAccount();
  await withClients(1, async (client) => {
    const ended = fenced(client, new Lease(account, 33), () =>
      client.query("insert into at_commit values ('end the connection')"),
    );
    await assert.rejects(ended, (error) => {
      assert(error instanceof fence.OutcomeUnknown, error);
      assert.equal(error.cause.code, "57P01");
      return true;
    });
  });
  assert.equal(await tokenOf(account), undefined, "not committed");
});

test("a connection that is lost before the commit is the driver's error", async () => {
  const account = await openAccount();
  await withClients(1, async (client) => {
    const lost = fenced(client, new Lease(account, 33), () =>
      client.query("select pg_terminate_backend(pg_backend_pid())"),
    );
    await assert.rejects(lost, (error) => !(error instanceof fence.FenceError));
  });
});

test("an error of the commit itself is typed", async () => {
  const account = await openAccount();
  await withClients(1, async (client) => {
    const contended = fenced(client, new Lease(account, 33), () =>
      client.query("insert into at_commit values ('contend')"),
    );
    await assert.rejects(contended, fence.Contended);
  });
  assert.equal(await tokenOf(account), undefined);
});

// One task fails at once, the other pauses, and writes when the end of `under` is known.
async function writeAfterTheEnd(client, account, under) {
  let wake, late;
  const awake = new Promise((resolve) => (wake = resolve));
  const failing = under(client, new Lease(account, 33), (transaction) => {
    late = awake.then(() => transaction.query(WRITE, [5, account]));
    return Promise.all([Promise.reject(new RangeError("no")), late]);
  });
  await assert.rejects(failing, RangeError);
  wake();
  await late;
}

test("a task that outlives a failure writes nothing", async () => {
  const account = await openAccount();
  await withClients(1, async (client) => {
    await assert.rejects(writeAfterTheEnd(client, account, fenced), /fenced has ended/);
  });
  assert.equal(await balance(account), 100);
});

test("control: without fenced a task that outlives a failure commits on its own", async () => {
  const account = await openAccount();
  await withClients(1, (client) => writeAfterTheEnd(client, account, unfenced));
  assert.equal(await balance(account), 5);
});

test("a task that outlives a success writes nothing", async () => {
  const account = await openAccount();
  await withClients(1, async (client) => {
    let kept;
    await fenced(client, new Lease(account, 33), async (transaction) => {
      kept = transaction;
      await transaction.query(WRITE, [7, account]);
    });
    await assert.rejects(async () => kept.query(WRITE, [5, account]), /fenced has ended/);
    await new Promise((resolve, reject) => {
      const answer = (error) => (error ? resolve() : reject(new Error("no error")));
      kept.query(WRITE, [5, account], answer);
    });
    await client.query("select 1");
  });
  assert.equal(await balance(account), 7);
});

async function commitAnother(client, account, under) {
  await under(client, new Lease(account, 33), async () => {
    await assert.rejects(client.query("select 1 / 0"), { code: "22012" });
    await client.query("rollback");
    await client.query("begin");
    await client.query(WRITE, [5, account]);
  });
}

test("another transaction is not committed at the end", async () => {
  const account = await openAccount();
  await withClients(1, async (client) => {
    await assert.rejects(commitAnother(client, account, fenced), fence.NotCommitted);
    assert.equal(await balance(account), 100);
    await fenced(client, new Lease(account, 33), () => {});
  });
});

test("control: without fenced another transaction is committed at the end", async () => {
  const account = await openAccount();
  await withClients(1, (client) => commitAnother(client, account, unfenced));
  assert.equal(await balance(account), 5);
});

test("a begin that fails leaves no transaction open, and the caller's own as it is", async () => {
  const name = `without_ids_${process.pid}`;
  const url = (of) => Object.assign(new URL(of), { pathname: `/${name}` }).href;
  await once(SUPERUSER_URL, `create database ${name}`);
  await once(
    url(SUPERUSER_URL),
    "revoke execute on function pg_catalog.pg_current_xact_id() from public",
  );
  await withClients(
    1,
    async (client) => {
      const denied = { code: "42501" };
      await assert.rejects(fenced(client, new Lease("a", 33), unreachable), denied);
      assert.equal(await value(client, "select 1"), 1);
      await client.query("begin");
      await assert.rejects(fenced(client, new Lease("a", 33), unreachable), denied);
      await assert.rejects(client.query("select 1"), { code: "25P02" });
    },
    url(DATABASE_URL),
  );
});
