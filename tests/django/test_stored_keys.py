"""The key of a row of a model is written as its field stores it."""

import pytest

from tests.documents.recipes import write

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

MODELS = """
import uuid
from django.db import models

class Char32UUIDField(models.UUIDField):  # as in Django's documentation, for tables that were made before native UUIDs
    def db_type(self, connection):
        return "char(32)"

    def get_db_prep_value(self, value, connection, prepared=False):
        value = super().get_db_prep_value(value, connection, prepared)
        return value and value.hex

class PrefixedField(models.CharField):
    def get_prep_value(self, value):
        return value and f"ch_{value}"

    def from_db_value(self, value, expression, connection):
        return value and value.removeprefix("ch_")

class Device(models.Model):
    id = Char32UUIDField(primary_key=True, default=uuid.uuid4)

class Prefixed(models.Model):
    id = PrefixedField(primary_key=True, max_length=50)

class Native(models.Model):
    id = models.UUIDField(primary_key=True)

class Numbered(models.Model):
    id = models.SmallIntegerField(primary_key=True)

class Told(models.Model):
    device = models.OneToOneField(Device, primary_key=True, on_delete=models.CASCADE)
"""

OWNERS = """
from uuid import UUID
from django.db import connection
from myapp.models import *
import ticker
from ticker import owners

UID = UUID("6f2c1c3e-8a59-4b5e-9d7a-1f0e5c8b7a60")

with connection.schema_editor() as editor:
    for model in (Device, Prefixed, Native, Numbered, Told):
        editor.create_model(model)
        for statement in owners.triggers(model):
            editor.execute(statement, params=None)

for model, values in ((Device, {"id": UID}), (Prefixed, {"id": "5"}), (Native, {"id": str(UID).upper()}), (Numbered, {"id": "7"}),
                      (Told, {"device": Device.objects.create()})):
    owner = model.objects.create(**values)
    print(ticker.register(connection, "polls", every="1m", owner=owner).owner)
    assert ticker.list_tasks(connection, owner=model.objects.get(pk=owner.pk)), model
    owner.delete()
    assert ticker.list_tasks(connection) == [], model
"""


def test_a_task_has_the_key_that_the_field_of_its_owner_stores(manage, shell, project):
    manage("migrate")
    write(project, **{"myapp/models.py": (project / "myapp/models.py").read_text() + MODELS})
    device, prefixed, native, numbered, told = shell(OWNERS).splitlines()
    assert [device, prefixed, native, numbered] == [
        "myapp_device:6f2c1c3e8a594b5e9d7a1f0e5c8b7a60", "myapp_prefixed:ch_5",
        "myapp_native:6f2c1c3e-8a59-4b5e-9d7a-1f0e5c8b7a60", "myapp_numbered:7",
    ]  # fmt: skip
    assert len(told) == len("myapp_told:") + 32
