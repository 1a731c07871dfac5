"""The channel `log`: one warning line in the ticker's own log."""

import logging

from ticker.notify import message
from ticker.notify.message import Notice

log = logging.getLogger("ticker.notify")


class Log:
    name = "log"

    def deliver(self, notice: Notice) -> str:
        log.warning(
            "notice event=%s what=%s task=%s: %s",
            notice.id,
            notice.what,
            notice.task_id,
            message.text(notice),
            extra={"event": "notice", "fields": {"event_id": notice.id}},
        )
        return "logged"
