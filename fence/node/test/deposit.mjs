import pg from "pg";
import { Lease, fenced } from "fenced-storage-fence";

const lease = Lease.fromEnvironment();
const client = new pg.Client({ connectionString: process.env.DATABASE_URL });
await client.connect();
try {
  await fenced(client, lease, async (transaction) => {
    let sql = "select balance from accounts where account_id = $1";
    const { balance } = (await transaction.query(sql, [lease.resource])).rows[0];
    sql = "update accounts set balance = $1 where account_id = $2";
    await transaction.query(sql, [BigInt(balance) + 5n, lease.resource]);
  });
} finally {
  await client.end();
}
