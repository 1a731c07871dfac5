"""What can be said of a task in a body, as `ticker.tasks.fields` declares it; `register` and `edit` check it."""

from ticker.tasks import fields, sorts
from ticker.web.api.fields import Field, instant, owner


def _field(field: sorts.Field) -> Field:
    match field.name:
        case "owner":
            return owner(field.name, field.says)
        case "first":
            return instant(field.name, field.says)
    return Field(field.name, field.says, field.schema)


SCHEDULES = tuple(map(_field, fields.SCHEDULES))
NEW = (_field(fields.FIELDS["function"]).needed(), *map(_field, (*fields.OF_NEW, *fields.SETTINGS.values())))
CHANGES = tuple(map(_field, fields.FIELDS.values()))
