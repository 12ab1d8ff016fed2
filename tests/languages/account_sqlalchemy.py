"""The fence from Python with SQLAlchemy 2, on a table that an administrator has protected with
`select fence.protect('accounts', 'account_id')`:

    pip install sqlalchemy 'psycopg[binary]'
    DATABASE_URL=postgres://... python account_sqlalchemy.py
"""

import json
import os

from sqlalchemy import create_engine, func, make_url, select, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column


class Base(DeclarativeBase):
    pass


class Account(Base):
    __tablename__ = "accounts"

    account_id: Mapped[str] = mapped_column(primary_key=True)
    balance: Mapped[int]


url = make_url(os.environ["DATABASE_URL"]).set(drivername="postgresql+psycopg")
engine = create_engine(url)

# A write that depends on nothing read presents its token, in the same transaction.
with Session(engine) as session, session.begin():
    session.execute(select(func.fence.present(34, "me")))
    session.execute(update(Account).filter_by(account_id="alice").values(balance=70))

# A late one with an older token is rejected.
try:
    with Session(engine) as session, session.begin():
        session.execute(select(func.fence.present(33, "late")))
        session.execute(update(Account).filter_by(account_id="alice").values(balance=0))
except DBAPIError as error:
    assert error.orig.sqlstate == "ZF001", error
    detail = json.loads(error.orig.diag.message_detail)
    assert detail == {"resource": "alice", "token": 33, "highest_token": 34}, detail
else:
    raise SystemExit("the write with token 33 was not rejected")

# A write that presents no token is rejected too.
try:
    with Session(engine) as session, session.begin():
        session.execute(update(Account).filter_by(account_id="alice").values(balance=0))
except DBAPIError as error:
    assert error.orig.sqlstate == "ZF004", error
else:
    raise SystemExit("the write without a token was not rejected")

# A write that depends on what it reads claims before it reads: in a new session, which remembers
# nothing of what it read before.
with Session(engine) as session, session.begin():
    session.execute(select(func.fence.claim("alice", 34, "me")))
    account = session.get_one(Account, "alice")
    assert account.balance == 70, account.balance
    account.balance += 5
