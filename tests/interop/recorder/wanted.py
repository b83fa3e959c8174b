"""The differences there are on purpose. Each row names steps, the parts of their answers that may differ, and its line
in docs/compatibility.md: a row without a line fails, and so does a row that nothing needs any more."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Answer = dict[str, Any]

_EXCEPTION = re.compile(r"[\w.]+(Exception|Error)\b.*", re.DOTALL)
_LEFT_OVER = "not set any response code"
_FIELD = re.compile(r"[A-Z_0-9]+: header field \S+: .*")


@dataclass(frozen=True)
class Wanted:
    """Steps whose names match may differ in `parts`."""

    point: str  # the first cell of its line in docs/compatibility.md
    steps: str
    parts: frozenset[str]
    theirs: str = ".*"  # what the remark must match
    ours: str = ".*"

    def allows(self, step: str, theirs: Answer, ours: Answer) -> frozenset[str]:
        remarks = (theirs.get("remark") or "", self.theirs), (ours.get("remark") or "", self.ours)
        is_meant = re.fullmatch(self.steps, step) and all(re.fullmatch(p, text, re.DOTALL) for text, p in remarks)
        return self.parts if is_meant else frozenset()


def _row(point: str, steps: str, parts: str, theirs: str = ".*", ours: str = ".*") -> Wanted:
    return Wanted(point, steps, frozenset(parts.split()), theirs, ours)


MISSING = "request without a field that the broker needs"
REMARK = "remarks"
NEWER = "requests of 5.x clients and tools: 343, 345, 351, 352, 361"
NO_NAME = "group without a name"
LEFT = "leaving a group"
NEGATIVE = "negative offset committed"
FIGURES = "statistics (315)"
REPEATED = "a commit that is repeated"

WANTED = [
    # Remarks that say more, or the same in other words.
    _row(REMARK, ".*", "remark", r"request queueId\[\d+\] is illegal, TopicConfig .*", r"request queueId\[.* queues"),
    _row(REMARK, ".*", "remark", r"The specified topic .*", r"The specified topic .*"),
    _row(REMARK, ".*", "remark", r"the message is illegal, .*", r".+"),
    _row(REMARK, ".*", "remark", r"queueId\[.*consumer:\[/CLIENT-a\]", r"queueId\[.*"),
    _row(REMARK, ".*", "remark", r"parse the consumer's subscription failed", r"parse the consumer's subscr.*: .*"),
    _row(REMARK, ".*", "remark", r"push reply message to askerfail\.", r"push reply message to asker fail: .*"),
    _row(REMARK, ".*", "remark", r"broker unable to service, until .*", r"broker unable to service, until \d+ ms"),
    _row(REMARK, "end: .*", "remark", r"Find prepared transaction message failed", r"there is no half message .*"),
    _row(REMARK, "resume: .*", "remark", r"Exception was thrown when putting message back .*", r"there is no .*"),
    # Transactions.
    _row(REPEATED, "end: commit (again|after a rollback)", "remark", ours=".* was decided before; nothing was done"),
    _row(REPEATED, "pull: committed twice", "ext body"),
    # Fields.
    _row(MISSING, ".*", "remark ext", r"The specified topic is blank\.", _FIELD.pattern),
    _row(MISSING, ".*", "remark", r".*null.*", _FIELD.pattern),
    _row(MISSING, "(odd|clients): .*without.*", "code remark ext body", ours=_FIELD.pattern),
    _row(MISSING, "heartbeat: empty object", "code remark", ours=".* a heartbeat has a clientID"),
    _row("whole numbers in a header", "odd: queue id .*", "code remark ext"),
    # Requests.
    _row(NEWER, "pull: lite|admin: one .* of 5.x", "code remark ext body", "request type .* not supported"),
    _row("pull of a negative number of messages", "pull: a negative number wanted", "code remark ext body"),
    _row("pull with an empty `expressionType`", "pull: empty kind of expression", "code remark body"),
    _row("tag expression of blanks and separators", "pull: blank and separators", "code remark ext"),
    _row("stored reply", "pull: reply topic", "body"),
    _row("subscription of a C++ client", "clients: connections of C\\+\\+", "body"),
    _row(NO_NAME, "odd: pull of a group without a name", "code remark ext body"),
    _row(NO_NAME, "send: retry topic of no group|back: empty group", "code remark ext"),
    _row(LEFT, "odd: all groups", "body"),
    _row(NEGATIVE, "odd: all offsets", "body"),
    _row("correction of offsets (308)", "admin: correction without some", "body"),
    _row("correction of offsets (308)", "odd: offsets of those left out", "ext"),
    _row("clone of offsets (314) without a topic", "odd: the clone", "ext"),
    _row("property with a separator in it", "send: separator inside a value", "code remark ext"),
    _row("dead letter that its client delayed", "send: dead letter, delayed", "ext"),
    _row("`batch` = `1`", "send: batch as C\\+\\+ writes it", "code remark ext"),
    _row("`autoCreateTopicEnable` off and on again", "send: new topics after they were off", "code remark ext"),
    _row("entries of a queue (321) for a group", "entries: for a group", "body"),
    _row(FIGURES, "figures: (topic|group|given back).*", "body"),
    _row(FIGURES, "figures: queue", "code remark body"),
    _row("time span (303)", "admin: time span.*", "body"),
    _row("settings (26)", "settings: all", "body"),
    _row("runtime (28)", "figures: runtime", "body"),
    _row("answers to a binary request", "binary: (view|query|field missing)", "binary"),
]

# Of settings: those that the two were started with.
OWN_SETTINGS = {
    "storePathRootDir",
    "storePathCommitLog",
    "listenPort",
    "haListenPort",
    "diskMaxUsedSpaceRatio",
    "bitMapLengthConsumeQueueExt",
}


def differences(step: str, theirs: Answer, ours: Answer) -> Iterator[tuple[str, Wanted | None]]:
    """The parts in which two answers differ, each with the row that allows it."""
    for part in sorted({*theirs, *ours}):
        one, other = theirs.get(part), ours.get(part)
        if one == other or (part == "remark" and _is_java_only(theirs, ours)):
            continue
        yield part, next((row for row in WANTED if part in row.allows(step, theirs, ours)), None)


def _is_java_only(theirs: Answer, ours: Answer) -> bool:
    """Whether a remark is a Java exception, where ours says what is wrong, or is left over from before the request."""
    remark = theirs.get("remark") or ""
    if theirs.get("code") != ours.get("code"):
        return False
    return bool((_EXCEPTION.fullmatch(remark) and ours.get("remark")) or (remark == _LEFT_OVER and theirs["code"] == 0))
