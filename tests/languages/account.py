"""The fence from Python with psycopg 3, on a table that an administrator has protected with
`select fence.protect('accounts', 'account_id')`:

    pip install 'psycopg[binary]'
    DATABASE_URL=postgres://... python account.py
"""

import json
import os

import psycopg

connection = psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)

# A write that depends on nothing read presents its token, in the same transaction.
with connection.transaction():
    connection.execute("select fence.present(%s, %s)", [34, "me"])
    connection.execute("update accounts set balance = 70 where account_id = 'alice'")

# A late one with an older token is rejected.
try:
    with connection.transaction():
        connection.execute("select fence.present(%s, %s)", [33, "late"])
        connection.execute("update accounts set balance = 0 where account_id = 'alice'")
except psycopg.Error as error:
    assert error.sqlstate == "ZF001", error
    detail = json.loads(error.diag.message_detail)
    assert detail == {"resource": "alice", "token": 33, "highest_token": 34}, detail
else:
    raise SystemExit("the write with token 33 was not rejected")

# A write that presents no token is rejected too.
try:
    connection.execute("update accounts set balance = 0 where account_id = 'alice'")
except psycopg.Error as error:
    assert error.sqlstate == "ZF004", error
else:
    raise SystemExit("the write without a token was not rejected")

# A write that depends on what it reads claims before it reads.
with connection.transaction():
    connection.execute("select fence.claim(%s, %s, %s)", ["alice", 34, "me"])
    (balance,) = connection.execute(
        "select balance from accounts where account_id = 'alice'"
    ).fetchone()
    assert balance == 70, balance
    connection.execute(
        "update accounts set balance = %s where account_id = 'alice'", [balance + 5]
    )
