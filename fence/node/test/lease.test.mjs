// Leases, and the protection of tables.

import assert from "node:assert/strict";
import { inspect } from "node:util";
import { afterEach, test } from "node:test";
import { Lease, protect } from "fenced-storage-fence";
import { once, OWNER_URL, withClients } from "./bank.mjs";

const VARIABLES = { FENCING_RESOURCE: "a b", FENCING_TOKEN: "33", FENCING_HOLDER: "me" };
afterEach(() => Object.keys(VARIABLES).forEach((name) => delete process.env[name]));

const parts = ({ resource, token, holder }) => [resource, token, holder];

test("the lease of the environment", () => {
  for (const name of Object.keys(VARIABLES)) {
    Object.assign(process.env, VARIABLES);
    assert.deepEqual(parts(Lease.fromEnvironment()), ["a b", 33, "me"]);
    delete process.env[name];
    assert.throws(() => Lease.fromEnvironment(), new RegExp(`${name} is not set`));
  }
});

test("a token of the environment that is no number is an error", () => {
  for (const token of ["", "abc", "33x", "1.5", "9007199254740993"]) {
    Object.assign(process.env, VARIABLES, { FENCING_TOKEN: token });
    assert.throws(() => Lease.fromEnvironment(), /FENCING_TOKEN is not a token/);
  }
});

test("the lease of a handle", () => {
  for (const key of ["name", "resource"]) {
    const handle = JSON.stringify({ [key]: "a", token: 33, holder: "me", ttl_ms: 600 });
    assert.deepEqual(parts(Lease.fromJson(handle)), ["a", 33, "me"]);
  }
});

test("the holder is not printed", () => {
  const lease = new Lease("a", 33, "secret");
  assert.doesNotMatch(inspect(lease) + JSON.stringify(lease), /secret/);
});

const REBUILD = `
  create table rebuilt (like node_entries);
  drop table node_entries;
  alter table rebuilt rename to node_entries;`;

// The resource of a blind insert that is rejected.
async function rejectedResource() {
  try {
    await once(OWNER_URL, "insert into node_entries values ('somebody')");
    return undefined;
  } catch (error) {
    assert.equal(error.code, "ZF004", error);
    return JSON.parse(error.detail).resource;
  }
}

test("a table that was rebuilt is protected again", async () => {
  await withClients(
    1,
    async (owner) => {
      await owner.query("create table node_entries (account_id text)");
      await protect(owner, { node_entries: "account_id" });
      assert.equal(await rejectedResource(), "somebody");
      await owner.query(REBUILD);
      assert.equal(await rejectedResource(), undefined, "the control: the triggers are gone");
      await owner.query(`begin; ${REBUILD}`);
      await protect(owner, { node_entries: ["account_id", "entry/"] });
      await owner.query("commit");
      assert.equal(await rejectedResource(), "entry/somebody");
      await assert.rejects(protect(owner, { misspelt: "account_id" }), { code: "42P01" });
    },
    OWNER_URL,
  );
});
