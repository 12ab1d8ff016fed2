import os

import psycopg
from fence import Lease, fenced

lease = Lease.from_environment()
with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
    with fenced(connection, lease):
        sql = "select balance from accounts where account_id = %s"
        (balance,) = connection.execute(sql, [lease.resource]).fetchone()
        sql = "update accounts set balance = %s where account_id = %s"
        connection.execute(sql, [balance + 5, lease.resource])
