"""Who plays: five mailboxes that are polled, each with a character of its own."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """A mailbox, how it is polled, and its character."""

    mailbox: str
    every: str = "3s"
    tolerance: str | None = None
    box: str | None = None
    function: str = "mail.fetch"
    delay: float = 0  # seconds that its server takes for one message
    backlog: int = 1  # messages that are in it when the curtain rises
    share: int = 1  # of each round of deliveries


CAST = (
    Part("support"),
    Part("sales"),
    Part("shop"),
    # More mail than one box can hold: its runs stop at their quota.
    Part("archive", every="5s", tolerance="2s", box="2s", delay=0.08, backlog=40, share=6),
    # Its first message never ends, and its function will not hear of a quota: its runs are killed.
    Part("legacy", every="5s", tolerance="2s", box="1.5s", function="mail.fetch_stubbornly", delay=60),
)
DELETED = "shop"
REPORTED = ("support", "shop")  # these have a second task, on a queue that has no worker at first
UNATTENDED = "reports"
