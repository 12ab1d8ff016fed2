// Claims and rejections with pg. The control of the first test: the same program without `fenced`
// loses an update.

import assert from "node:assert/strict";
import { test } from "node:test";
import * as fence from "fenced-storage-fence";
import {
  balance,
  openAccount,
  READ,
  tokenOf,
  unfenced,
  unreachable,
  value,
  withClients,
  WRITE,
} from "./bank.mjs";

const { Lease, fenced } = fence;

// Client 33 reads and pauses; client 34 withdraws 30; client 33 wakes up, and withdraws 50 from
// what it has read.
async function writeLate(account, under) {
  const [early, late] = [new Lease(account, 33, "early"), new Lease(account, 34, "late")];
  await withClients(2, async (sleepy, other) => {
    const read = await under(sleepy, early, () => value(sleepy, READ, [account]));
    await under(other, late, async () => {
      await other.query(WRITE, [(await value(other, READ, [account])) - 30, account]);
    });
    assert.equal(await balance(account), 70);
    await under(sleepy, early, () => sleepy.query(WRITE, [read - 50, account]));
  });
}

test("a late write with an old token is stale", async () => {
  const account = await openAccount();
  await assert.rejects(writeLate(account, fenced), (error) => {
    assert(error instanceof fence.Stale && error instanceof fence.Rejected, error);
    assert.equal(error.name, "Stale");
    assert.deepEqual([error.resource, error.token, error.highestToken], [account, 33, 34]);
    assert.equal(error.cause.code, "ZF001");
    return true;
  });
  assert.equal(await balance(account), 70);
});

test("control: the same program without fenced loses an update", async () => {
  const account = await openAccount();
  await writeLate(account, unfenced);
  assert.equal(await balance(account), 50, "the withdrawal of 30 is lost");
});

test("a token of another holder is a holder conflict", async () => {
  const account = await openAccount();
  await withClients(1, async (client) => {
    await fenced(client, new Lease(account, 33, "one"), () => {});
    const conflict = fenced(client, new Lease(account, 33, "another"), unreachable);
    await assert.rejects(conflict, fence.HolderConflict);
  });
});

test("any object with resource, token and holder is a lease", async () => {
  const account = await openAccount();
  await withClients(1, async (client) => {
    const lease = { resource: account, token: 33, holder: "" };
    assert.equal(await fenced(client, lease, () => "done"), "done");
    for (const none of [{ name: account, token: 33, holder: "" }, []]) {
      await assert.rejects(fenced(client, none, unreachable), TypeError);
    }
    await assert.rejects(fenced(client, new Lease(account, 0), unreachable), fence.Malformed);
  });
});

test("a rejection of one lease undoes the claims of all, and the client can be used", async () => {
  const accounts = [await openAccount(), await openAccount()];
  await withClients(1, async (client) => {
    await fenced(client, new Lease(accounts[1], 34), () => {});
    const leases = accounts.map((account) => new Lease(account, 33));
    await assert.rejects(fenced(client, leases, unreachable), fence.Stale);
    assert.equal(await tokenOf(accounts[0]), undefined);
    await fenced(client, new Lease(accounts[0], 32), () => {});
    assert.equal(await tokenOf(accounts[0]), 32);
  });
});

test("leases are claimed in the byte order of their resources", async () => {
  const resources = ["order é", "order a", "order Z", "order \u{10000}", "order \uffff"];
  const claimed = [];
  const client = {
    query: async (sql, values) => {
      if (values) claimed.push(values[0]);
      const row = sql.startsWith("begin") ? { id: "1", is_new: true } : { id: "1" };
      return [{ rows: [row] }, { rows: [row] }];
    },
  };
  const leases = resources.map((resource) => new Lease(resource, 33));
  await fenced(client, leases, () => {});
  const expected = ["order Z", "order a", "order é", "order \uffff", "order \u{10000}"];
  assert.deepEqual(claimed, expected);
});

test("an error of the work rolls back the claim and the write", async () => {
  const account = await openAccount();
  await withClients(1, async (client) => {
    const failing = fenced(client, new Lease(account, 33), async () => {
      await client.query(WRITE, [5, account]);
      throw new RangeError("no");
    });
    await assert.rejects(failing, RangeError);
  });
  assert.deepEqual([await balance(account), await tokenOf(account)], [100, undefined]);
});

test("a write to a protected table without its token is typed", async () => {
  const account = await openAccount();
  await withClients(1, async (client) => {
    const blind = fenced(client, new Lease(account, 33), async () => {
      await client.query(WRITE, [5, account]);
      await client.query("insert into entries values ('another', 1)");
    });
    await assert.rejects(blind, (error) => {
      assert(error instanceof fence.TokenRequired, error);
      assert.equal(error.resource, "another");
      return true;
    });
  });
  assert.equal(await balance(account), 100, "the whole transaction is rolled back");
});

test("other errors are typed", async () => {
  const account = await openAccount();
  const typed = {
    40001: fence.Contended,
    "40P01": fence.Contended,
    "55P03": fence.Contended,
    ZF003: fence.Malformed,
    ZF005: fence.TruncateRejected,
  };
  await withClients(1, async (client) => {
    for (const [state, kind] of Object.entries(typed)) {
      const raise = `do $$ begin raise sqlstate '${state}' using message = 'm'; end $$`;
      const failing = fenced(client, new Lease(account, 33), () => client.query(raise));
      await assert.rejects(failing, kind);
    }
  });
});

test("a detail of another's making doesn't hide the error", async () => {
  const account = await openAccount();
  await withClients(1, async (client) => {
    for (const detail of ["no JSON", "null", "[1]", '"text"']) {
      const raise = `do $$ begin
        raise sqlstate 'ZF003' using message = 'm', detail = '${detail}'; end $$`;
      const failing = fenced(client, new Lease(account, 33), () => client.query(raise));
      await assert.rejects(failing, fence.Malformed);
    }
  });
});

test("a claim that waited at repeatable read is contended", async () => {
  const account = await openAccount();
  await withClients(3, async (holder, waiter, watcher) => {
    await waiter.query("set default_transaction_isolation = 'repeatable read'");
    const pid = await value(waiter, "select pg_backend_pid()");
    let waiting;
    await fenced(holder, new Lease(account, 33), async () => {
      let hasEnded = false;
      waiting = fenced(waiter, new Lease(account, 34), unreachable);
      waiting.catch(() => (hasEnded = true));
      const waits = "select wait_event_type = 'Lock' from pg_stat_activity where pid = $1";
      while (!hasEnded && !(await value(watcher, waits, [pid])));
    });
    await assert.rejects(waiting, (error) => {
      assert(error instanceof fence.Contended, error);
      assert.match(error.message, /retry the whole transaction/);
      return true;
    });
  });
});
