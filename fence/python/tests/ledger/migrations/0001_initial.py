from django.db import migrations, models


class Migration(migrations.Migration):
    operations = [
        migrations.CreateModel(
            "Entry",
            [
                ("id", models.BigAutoField(primary_key=True)),
                ("account_id", models.TextField()),
                ("amount", models.IntegerField()),
            ],
        )
    ]
