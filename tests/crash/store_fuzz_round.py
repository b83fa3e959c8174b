"""One round of the store fuzzer: a store with changed files, and everything a user does with it.

read      verify, open read-only, survey, dump, salvage, rebuild --into, a command: nothing is written there
write     a copy is opened for writing, read, appended to, closed, verified and read again
rebuild   another copy is rebuilt in place and opened
load      the dump is loaded into a new store
"""

import io
import random
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path

import msgspec

from embermq import Message, MessageStore, StoredMessage
from embermq.cli import app
from embermq.columns.rows import C_PHYSICAL, C_SIZE
from embermq.format.message_json import BodyForm
from embermq.inspect.dump import Dump
from embermq.inspect.snapshot import DamagedRange, Survey
from embermq.repair.load.load import Source, load_messages
from embermq.repair.rebuild.rebuilding import rebuild
from embermq.repair.salvage.salvaging import salvage
from embermq.repair.verify.store_check import VerifyReport, verify
from embermq.testing.clock import START_MS, ManualClock
from tests.crash.store_fuzz_checks import Answers, Check, Expected, Failures, ask, check_same
from tests.crash.store_fuzz_mutations import CANARY, Mutator
from tests.crash.store_fuzz_truth import OUTSIDE, STORE, Truth, copy_tree, snapshot

LATER_MS = START_MS + 10_000_000  # After everything that was written.


class Round:
    """One round; its steps share these."""

    def __init__(self, truth: Truth, place: Path, source: random.Random) -> None:
        self.truth, self.place, self.source = truth, place, source
        self.failures = Failures()
        self.world = place / "world"
        self.root = self.world / STORE
        copy_tree(truth.template, self.world)
        self.mutations = Mutator(self.world, truth, source).run(source.randrange(1, 4))
        self.expected = Expected(truth, self.root)

    def run(self) -> None:
        before = snapshot(self.world)
        self._verify_before()
        reader = self._read_only(self.root, "read-only", complete=self.truth.clean)
        lines = self._dump()
        self._survey()
        self._salvage()
        self._rebuild_into()
        self._commands()
        changed = _changes(before, snapshot(self.world))
        if changed:
            self.failures.add("reading has changed files", changed)
        writer = self._write()
        if reader is not None and writer is not None:
            check_same(reader, writer, self.failures, keys=not self.expected.index_unproven)
        self._rebuild()
        if lines:
            self._load(lines)

    def _copy(self, name: str) -> Path:
        copy_tree(self.world, self.place / name)
        return self.place / name

    def _open(self, root: Path, *, read_only: bool = False) -> MessageStore:
        return MessageStore.open(root, self.truth.settings, read_only=read_only, clock=ManualClock(LATER_MS))

    # -- reading -----------------------------------------------------------------------------------------------

    def _verify_before(self) -> None:
        report = self.failures.run("verify", lambda: verify(self.root), may_refuse=self.expected.may_refuse)
        if report is None:
            return
        lost = [one for one in self.truth.records if one.start not in self.expected.intact]
        last = max(self.expected.intact, default=-1)
        first = min(self.expected.intact, default=0)
        first -= first % self.truth.settings.segment_bytes  # Files that are gone before it may have expired.
        inside = [one for one in lost if first <= one.start < last]
        if inside and report.is_sound:
            self.failures.add("verify finds no fault", f"records lost at {[one.start for one in inside[:6]]}")
        changed = self._changed_derived()
        if changed and self.truth.clean and not report.flaws and not report.pending_entries + report.pending_keys:
            self.failures.add("verify finds nothing", f"changed: {changed}")

    def _changed_derived(self) -> list[str]:
        """Queue and index files that are there, and hold other bytes as far as they were used."""
        template, changed = self.truth.template / STORE, []
        for family in ("consumequeue", "index"):
            for path in sorted((template / family).rglob("*")):
                other = self.root / path.relative_to(template)
                if path.is_file() and other.is_file() and not other.is_symlink():
                    was = path.read_bytes().rstrip(b"\0")
                    if other.read_bytes()[: len(was)] != was:
                        changed.append(str(path.relative_to(template)))
        return changed

    def _read_only(self, root: Path, name: str, *, complete: bool) -> Answers | None:
        store = self.failures.run(
            f"{name} open", lambda: self._open(root, read_only=True), may_refuse=self.expected.may_refuse
        )
        if store is None:
            return None
        answers = ask(store, self.expected, self.failures, name)
        self.failures.run(f"{name} close", store.close)
        Check(self.expected, self.failures, name, complete=complete).answers(answers)
        return answers

    def _dump(self) -> list[bytes]:
        def dump() -> list[bytes]:
            job = Dump(Survey.open(self.root), form=BodyForm.RAW)
            return b"".join(bytes(one) for one in job.pieces() if not isinstance(one, DamagedRange)).splitlines()

        lines = self.failures.run("dump", dump, may_refuse=self.expected.may_refuse) or []
        places = set()
        for line in lines:
            found = msgspec.json.decode(line)
            known = self.truth.by_start.get(found["physicalOffset"])
            places.add(found["physicalOffset"])
            self.failures.compared += 1
            if known is None or not _is_line_of(found, known.message):
                self.failures.add("dump has a wrong line", line[:200])
        if lines:
            self._no_gaps("dump", places)
        return lines

    def _no_gaps(self, name: str, places: set[int]) -> None:
        """Everything intact; of a store that was not closed, up to where the reader ends."""
        end = self.truth.log_end if self.truth.clean else max(places, default=0)
        missing = [one.start for one in self.expected.required if one.start not in places and one.start < end]
        if missing:
            self.failures.add(f"{name} misses intact records", f"{len(missing)}: {missing[:6]}")

    def _survey(self) -> None:
        self.failures.run("survey", self._look, may_refuse=self.expected.may_refuse)

    def _look(self) -> None:
        survey = Survey.open(self.root)
        places = set()
        for scanned in survey.scan(survey.log_min, survey.log_end):
            if isinstance(scanned, DamagedRange):
                continue
            for row in scanned.rows.tolist():
                places.add(row[C_PHYSICAL])
                at = row[C_PHYSICAL] - scanned.base
                known = self.truth.by_start.get(row[C_PHYSICAL])
                if known is None or bytes(scanned.data[at : at + row[C_SIZE]]) != known.raw:
                    self.failures.add("survey reads a wrong record", row[C_PHYSICAL])
        self._no_gaps("survey", places)
        visible = [one for one in self.expected.required if one.start < survey.log_end]
        self._look_at_queues(survey)
        asked = [] if self.expected.index_unproven else visible
        for one in self.source.sample(asked, min(len(asked), 12)):
            for key in one.keys[:1] if one.indexed else ():
                found = survey.find_key(one.message.topic, key, 0, 1 << 60)
                if found is not None and one.start not in found:
                    self.failures.add("survey find_key misses", (one.message.topic, key, one.start))

    def _look_at_queues(self, survey: Survey) -> None:
        for (topic, queue_id), span in survey.queues().items():
            entries = survey.entries(topic, queue_id, span.min_offset, span.max_offset)
            if len(entries) > span.max_offset - span.min_offset:
                self.failures.add("survey entries", (topic, queue_id, len(entries), span))

    def _salvage(self) -> None:
        into = self.place / "salvaged"
        saved = self.failures.run(
            "salvage",
            lambda: salvage(self.root, into, self.truth.settings),
            may_refuse=self.expected.may_refuse or not self.expected.required,
        )
        if saved is None:
            return
        self._check_sound(into, "salvaged")
        self._read_only(into, "salvaged", complete=True)

    def _rebuild_into(self) -> None:
        into = self.place / "rebuilt"
        call = partial(rebuild, self.root, self.truth.settings, into=into)
        self.failures.run("rebuild --into", call, may_refuse=self.expected.may_refuse or not self.expected.required)

    def _commands(self) -> None:
        """The command line itself, as a user calls it."""
        record = self.source.choice(self.truth.records).message
        calls = (
            ["info"],
            ["verify", "--fast"],
            ["dump"],
            ["get", "--at", str(record.physical_offset)],
            ["find", record.topic, "id3"],
            ["fetch", record.topic, "0"],
        )
        self._command(self.source.choice(calls))

    def _command(self, words: list[str]) -> None:
        arguments = ["store", words[0], str(self.root), *words[1:]]
        out, err = io.TextIOWrapper(io.BytesIO()), io.StringIO()

        def call() -> int:
            with redirect_stdout(out), redirect_stderr(err):
                return app.run(arguments)

        code = self.failures.run(f"command {words[0]}", call)
        if code not in (0, 1, 2, None) or "Traceback" in err.getvalue() or "Usage" in err.getvalue():
            self.failures.add(f"command {words}", f"{code}: {err.getvalue()[-500:]}")

    # -- writing -----------------------------------------------------------------------------------------------

    def _write(self) -> Answers | None:
        world = self._copy("written")
        root = world / STORE
        outside = snapshot(world / OUTSIDE / CANARY)
        opened = self.failures.run("open", lambda: self._open(root), may_refuse=self.expected.may_refuse)
        answers = None
        if opened is not None:
            self._check_kept(opened, root)
            answers = ask(opened, self.expected, self.failures, "opened")
            check = Check(self.expected, self.failures, "opened", complete=True)
            check.answers(answers)
            self._append(opened, answers)
            self.failures.run("close", opened.close)
            if not self.truth.trusting:
                self._check_sound(root, "opened")
            self._check_again(root, answers)
        self._check_outside(world, outside)
        return answers

    def _check_kept(self, store: MessageStore, root: Path) -> None:
        """What was damaged is in quarantine as it was."""
        size = self.truth.settings.segment_bytes
        for damage in store.recovery.damages:
            if damage.kept_in is None:
                continue
            start = damage.physical_offset
            path = self.root / "commitlog" / f"{start - start % size:020d}"
            was = path.read_bytes()[start % size :][: damage.length] if path.is_file() else b""
            kept = root / damage.kept_in
            if not kept.is_file() or kept.read_bytes().rstrip(b"\0") != was.rstrip(b"\0"):
                self.failures.add("quarantine", f"{damage} is not kept as it was")

    def _append(self, store: MessageStore, answers: Answers) -> None:
        """The store goes on: new messages get offsets of their own and can be read."""
        for topic, queue_id in list(self.expected.queues())[:4]:
            message = Message(topic, b"new", keys="new", queue_id=queue_id)
            may_refuse = bool(self.expected.odd_logs)
            receipt = self.failures.run("append", partial(store.append, message), may_refuse=may_refuse)
            if receipt is None:
                continue
            taken = {one.queue_offset for one in answers.queues.get((topic, queue_id), [])}
            if receipt.queue_offset in taken or receipt.queue_offset < max(taken, default=-1):
                self.failures.add("append", f"offset {receipt.queue_offset} of {topic}-{queue_id} is given twice")
            outcome = self.failures.run("fetch new", partial(store.fetch, topic, queue_id, receipt.queue_offset))
            if outcome is not None and [one.body for one in outcome.messages] != [b"new"]:
                self.failures.add("append", f"a new message in {topic}-{queue_id} is not fetched: {outcome}")

    def _check_again(self, root: Path, before: Answers) -> None:
        """Opened again, read-only, it answers the same, and the new messages."""
        store = self.failures.run(
            "second open", lambda: self._open(root, read_only=True), may_refuse=self.expected.may_refuse
        )
        if store is None:
            return
        again = ask(store, self.expected, self.failures, "second")
        self.failures.run("second close", store.close)
        for queue, messages in before.queues.items():
            now = [one for one in again.queues.get(queue, []) if one.body != b"new"]
            if now != messages:
                self.failures.add("second open", f"{queue} differs: {len(messages)} messages, now {len(now)}")

    def _check_outside(self, world: Path, before: dict[str, tuple[str, bytes]]) -> None:
        now = snapshot(world / OUTSIDE / CANARY)
        changed = [name for name, was in before.items() if now.get(name) != was]
        lost = [
            str(path)
            for path in (self.world / OUTSIDE).glob("*/unrelated.txt")
            if not (world / OUTSIDE / path.parent.name / path.name).exists()
        ]
        if changed or lost:
            self.failures.add("files outside", f"changed or gone: {changed} {lost}")

    def _check_sound(self, root: Path, name: str) -> None:
        report: VerifyReport | None = self.failures.run(f"verify {name}", lambda: verify(root))
        faults = [flaw for flaw in report.flaws if flaw.is_fault] if report is not None else []
        faults = [flaw for flaw in faults if flaw.file not in self.expected.odd_logs]
        if name == "opened" and self.expected.index_unproven:
            faults = [flaw for flaw in faults if flaw.family != "index"]
        if faults:
            shown = [f"{flaw.file}: {flaw.fault}" for flaw in faults]
            self.failures.add(f"verify {name}", f"{len(faults)} faults: {shown[:4]}")

    def _rebuild(self) -> None:
        world = self._copy("rebuilding")
        root = world / STORE
        outside = snapshot(world / OUTSIDE / CANARY)
        call = partial(rebuild, root, self.truth.settings)
        rebuilt = self.failures.run("rebuild", call, may_refuse=self.expected.rebuild_may_refuse)
        self._check_outside(world, outside)
        if rebuilt is None:
            return
        opened = self.failures.run("open rebuilt", lambda: self._open(root), may_refuse=self.expected.may_refuse)
        if opened is not None:
            answers = ask(opened, self.expected, self.failures, "rebuilt")
            self.failures.run("close rebuilt", opened.close)
            Check(self.expected, self.failures, "rebuilt", complete=True).answers(answers)

    def _load(self, lines: list[bytes]) -> None:
        path = self.place / "loaded"
        source = Source(io.BytesIO(b"\n".join(lines)), "dump")
        report = self.failures.run("load", lambda: load_messages(path, self.truth.settings, source))
        if report is None:
            return
        store = self.failures.run("open loaded", lambda: self._open(path, read_only=True))
        if store is None:
            return
        found = [(one.topic, one.queue_id, one.body) for one in store.scan()]
        store.close()
        wanted = [self.truth.by_start[msgspec.json.decode(one)["physicalOffset"]].message for one in lines]
        if found != [(one.topic, one.queue_id, one.body) for one in wanted]:
            self.failures.add("load", f"{len(lines)} lines, {len(found)} messages that differ")


def _is_line_of(line: dict[str, object], message: StoredMessage) -> bool:
    wanted = (message.topic, message.queue_id, message.queue_offset, message.size, message.body_crc)
    return (line["topic"], line["queueId"], line["queueOffset"], line["size"], line["bodyCrc"]) == wanted


def _changes(before: dict[str, tuple[str, bytes]], after: dict[str, tuple[str, bytes]]) -> list[str]:
    names = sorted(before.keys() | after.keys())
    return [name for name in names if before.get(name) != after.get(name)]
