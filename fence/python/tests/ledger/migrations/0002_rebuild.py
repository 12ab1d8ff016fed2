from django.db import migrations

REBUILD = """
    create table rebuilt (like ledger_entry including all);
    insert into rebuilt select * from ledger_entry;
    drop table ledger_entry;
    alter table rebuilt rename to ledger_entry;
"""


class Migration(migrations.Migration):
    dependencies = [("ledger", "0001_initial")]
    operations = [migrations.RunSQL(REBUILD, migrations.RunSQL.noop)]
