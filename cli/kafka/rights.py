"""The least rights in Kafka of each of Baton's principals, as ACLs.

To read, write or delete implies to describe; to change settings implies to read them. A test compares
the table in docs/security.md; another gives each principal exactly these, runs its work, and sees all of them
used. `baton up --secure` grants them.
"""

from __future__ import annotations

from shared.kafka.admin.users import Right
from shared.model.names import DEFAULT_GROUP, Names

PRINCIPALS = ("producer", "consumer", "follower", "queue", "control", "spark", "command line", "repairs")
_OWN = ("create", "describe-configs")
"""For topics that a service creates: it also looks whether existing ones are as safe as new ones."""


def rights_of(principal: str, names: Names, group: str = DEFAULT_GROUP) -> list[Right]:
    """What the principal needs, and nothing else; `group` counts for members alone.

    >>> rights_of("producer", Names("x"))[0].name
    'x.fragments.'
    """
    fragments = names.topic("fragments.")  # and `fragments.rejected`
    sessions = names.topic("sessions")  # and `sessions.GROUP`
    rights = {
        "producer": [Right("topic", fragments, "prefixed", ("write", *_OWN))],
        "consumer": [
            Right("topic", fragments, "prefixed", ("read", "write", "describe-configs")),
            Right("topic", names.sessions(group), "literal", ("write", *_OWN)),
            Right("topic", names.checkpoints(group), "literal", ("read", "write", "delete", *_OWN)),
            Right("topic", names.events, "literal", ("write", *_OWN)),
            Right("group", names.kafka_group(group), "literal", ("read",)),
            Right("transactional-id", f"{names.kafka_group(group)}.", "prefixed", ("write",)),
        ],
        "follower": [Right("topic", sessions, "prefixed", ("read",))],
        "queue": [
            Right("topic", names.queue(""), "prefixed", ("read", "write", "delete", *_OWN)),
            Right("topic", sessions, "prefixed", ("read",)),
            Right("group", names.queue_group(""), "prefixed", ("read", "delete")),
        ],
        "control": [
            Right("topic", fragments, "prefixed", ("read",)),
            Right("topic", sessions, "prefixed", ("read", "describe-configs")),
            Right("topic", names.events, "literal", ("read", "write", *_OWN)),
            Right("topic", names.history, "literal", ("read", "write", *_OWN)),
            Right("topic", names.checkpoints(""), "prefixed", ("describe",)),
            Right("group", names.kafka_group(""), "prefixed", ("describe",)),
        ],
        "spark": [
            Right("topic", fragments, "prefixed", ("read",)),
            Right("topic", sessions, "prefixed", ("read",)),
            Right("group", names.kafka_group(""), "prefixed", ("describe",)),
        ],
        "command line": [
            Right("topic", fragments, "prefixed", ("read",)),
            Right("topic", sessions, "prefixed", ("read",)),
            Right("topic", names.rejected, "literal", ("write",)),
            Right("group", names.replay(""), "prefixed", ("read",)),
            Right("group", names.kafka_group(""), "prefixed", ("describe",)),
        ],
        "repairs": [
            Right("topic", fragments, "prefixed", ("read", "alter-configs")),
            Right("topic", names.checkpoints(""), "prefixed", ("delete",)),
            Right("group", names.kafka_group(""), "prefixed", ("delete",)),
        ],
    }
    return rights[principal]
