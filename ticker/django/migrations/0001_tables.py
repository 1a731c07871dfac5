"""Creates the tables, or uses those that `ticker db upgrade` has created."""

from django.db import migrations

from ticker.django.operations import Tables


class Migration(migrations.Migration):
    operations = (Tables(drop=True),)
