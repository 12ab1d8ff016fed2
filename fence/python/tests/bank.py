"""The accounts in the database under test, as seen from outside."""

import itertools
import os

import psycopg

URL = os.environ["DATABASE_URL"]
OWNER_URL = os.environ["OWNER_URL"]
#: Through a proxy that loses all answers to commits.
LOSSY_URL = os.environ["LOSSY_URL"]

_numbers = itertools.count(1)


def open_account(balance=100):
    """Opens an account, and returns its name."""
    account = f"account-{os.getpid()}-{next(_numbers)}"
    with psycopg.connect(OWNER_URL) as connection:
        connection.execute("insert into accounts values (%s, %s)", [account, balance])
    return account


class Entries:
    """A table of entries. A rebuild as tools do it loses its triggers."""

    def __init__(self):
        self.name = f"entries_{os.getpid()}_{next(_numbers)}"
        self.protected = {self.name: ("account_id", "entry/")}
        self.blind_insert = f"insert into {self.name} values ('somebody', 1)"
        with psycopg.connect(OWNER_URL) as connection:
            connection.execute(f"create table {self.name} (account_id text, amount integer)")
            protect = "select fence.protect(%s, 'account_id', prefix => 'entry/')"
            connection.execute(protect, [self.name])

    def rebuild(self):
        """The statements of a rebuild."""
        return f"""
            create table rebuilt (like {self.name});
            insert into rebuilt select * from {self.name};
            drop table {self.name};
            alter table rebuilt rename to {self.name};
        """

    def are_protected(self):
        """Whether a blind insert is rejected."""
        with psycopg.connect(OWNER_URL) as connection:
            try:
                connection.execute(self.blind_insert)
            except psycopg.Error as error:
                assert error.sqlstate == "ZF004", error
                assert '"entry/somebody"' in error.diag.message_detail, error
                return True
            return False


def balance(account):
    with psycopg.connect(OWNER_URL) as connection:
        sql = "select balance from accounts where account_id = %s"
        return connection.execute(sql, [account]).fetchone()[0]


def token_of(resource):
    """The token of a resource's fence, or None. Only a superuser can read it."""
    with psycopg.connect(os.environ["SUPERUSER_URL"]) as connection:
        sql = "select token from fence.fence where resource = %s"
        row = connection.execute(sql, [resource]).fetchone()
        return row and row[0]


def end_connection(pid):
    """Ends a connection of the application, and waits until it has ended."""
    with psycopg.connect(os.environ["SUPERUSER_URL"]) as connection:
        connection.execute("select pg_terminate_backend(%s, 10000)", [pid])
