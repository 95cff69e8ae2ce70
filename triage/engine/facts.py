"""Step 3: named questions that no regex can answer, asked of all texts of an incident."""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from triage.engine import flight
from triage.engine.evidence import (
    CollectiveEvent,
    Evidence,
    Hit,
    Point,
    Progress,
    StackDump,
    Thread,
)
from triage.engine.regex import regex
from triage.engine.stack_tree import (
    OWES_A_BATCH,
    UNNAMED,
    Process,
    Role,
    doing,
    function_name,
    is_own,
    is_started_anew,
    is_worker,
    late_ranks,
    processes,
    standing_of,
    stands_of,
    waits_for_a_batch,
)
from triage.engine.verdict import EvidenceLine


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact that holds: the sentence that says so, the rank it points at, its lines.

    `details` are further sentences, in order.
    """

    name: str
    because: str
    rank: int | None = None
    evidence: tuple[EvidenceLine, ...] = ()
    values: dict[str, str] = field(default_factory=dict)
    host: str | None = None
    details: tuple[str, ...] = ()


class Facts:
    """Answers by name; each question is asked once."""

    def __init__(self, evidences: Sequence[Evidence]) -> None:
        self.evidences = evidences
        self._answers: dict[str, Fact | None] = {}

    def get(self, name: str) -> Fact | None:
        """The Fact if it holds, else None; an unknown name holds never."""
        if name not in self._answers:
            question = QUESTIONS.get(name)
            self._answers[name] = question(self.evidences) if question else None
        return self._answers[name]


# ------------------------------------------------------------------------------ stack dumps

_LOCK_LINE = regex(r"(?i)\bwith \S{0,40}lock\b|\block\w{0,20}\.acquire\(|\.acquire\(")
_LOCK_FRAMES = regex(
    r"(?:^|\.)(?:acquire|__enter__|wait|lock|_acquire_restore|futex\w*|pthread_mutex_lock|"
    r"__lll_lock_wait|pthread_cond_wait\S*|sem_wait|do_futex_wait\S*|gomp_\w+|__kmp_\w+|"
    r"PyThread_acquire_lock\w*|syscall)$"
)
_RANK_ONLY = regex(
    r"(?i)(?:save|checkpoint|evaluat|valid|test|log|write|upload|export|plot|sample|generate|report|main_process)"
)


def _functions(thread: Thread) -> list[str]:
    return [function_name(frame.function) for frame in thread.frames]


def _stack_line(process: Process) -> EvidenceLine:
    thread = process.thread
    top = thread.frames[0]
    where = f"{top.path}:{top.line}" if top.line else top.path
    pid = f"process {process.stack.pid}, " if process.stack.pid else ""
    text = f"{pid}{thread.name or 'thread'} in {top.function} ({where})"
    return EvidenceLine(thread.line, thread.line + len(thread.frames), text, process.text_index)


def dataloader_main_waits_for_stuck_worker(evidences: Sequence[Evidence]) -> Fact | None:
    """A main thread waits for a batch while the workers that owe it stand still on a lock."""
    found = processes(evidences)
    for main in found:
        if main.standing.role is not Role.LOADER_WAIT:
            continue
        owing = [w for w in _workers_of(main, found) if w.standing.role in OWES_A_BATCH]
        stuck = [w for w in owing if w.standing.role is Role.WORKER_LOCKED]
        # The lock of a worker that is at work is given back.
        if not stuck or len(stuck) < len(owing) or any(is_started_anew(w.thread) for w in stuck):
            continue
        standing = next((w.standing for w in stuck if w.standing.place), None)
        place = f", at {standing.caller} ({standing.place})" if standing else ""
        because = (
            f"the main thread waits for a batch while {len(stuck)} worker"
            f"{'s stand' if len(stuck) != 1 else ' stands'} still on a lock{place}"
        )
        lines = (_stack_line(main), *map(_stack_line, stuck[:4]))
        return Fact("", because, main.rank, lines)
    return None


def _workers_of(main: Process, found: Sequence[Process]) -> list[Process]:
    """The workers of this process: its children, or all where the dump names no parents."""
    workers = [p for p in found if is_worker(p.thread)]
    if not any(w.stack.parent_pid for w in workers):
        return workers
    return [
        w
        for w in workers
        if (w.text_index, w.stack.parent_pid) == (main.text_index, main.stack.pid)
    ]


def main_waits_for_a_batch(evidences: Sequence[Evidence]) -> Fact | None:
    """A stack dump shows a main thread waiting for a batch, and no worker that makes one."""
    found = processes(evidences)
    for main in found:
        if main.standing.role is Role.LOADER_WAIT and not any(
            w.standing.role in OWES_A_BATCH for w in _workers_of(main, found)
        ):
            because = "the main thread waits for a batch; no worker is seen making one"
            return Fact("", because, main.rank, (_stack_line(main),))
    return None


def worker_stands_still_on_a_lock(evidences: Sequence[Evidence]) -> Fact | None:
    """A DataLoader worker of a fork stands on a lock, and no dump shows its main thread."""
    found = processes(evidences)
    workers = [p for p in found if p.standing.role is Role.WORKER_LOCKED]
    if any(p.is_training for p in found) or any(is_started_anew(w.thread) for w in workers):
        return None
    for worker in workers:
        place = f", at {worker.standing.caller} ({worker.standing.place})"
        because = f"a DataLoader worker stands on a lock{place if worker.standing.place else ''}"
        return Fact("", because, worker.rank, (_stack_line(worker),))
    return None


def _interrupted(evidences: Sequence[Evidence]) -> Iterator[tuple[int, Thread]]:
    """Where Ctrl-C found the processes of a run: each prints its traceback."""
    for index, evidence in enumerate(evidences):
        for traceback in evidence.tracebacks:
            if traceback.exception == "KeyboardInterrupt" and traceback.frames:
                yield index, Thread("interrupted", traceback.frames[::-1], traceback.line)


def _interrupted_ranks(evidences: Sequence[Evidence]) -> list[Process]:
    """The same as processes of the ranks; the first of a rank is its main thread's."""
    found: dict[int, Process] = {}
    for index, evidence in enumerate(evidences):
        for traceback in evidence.tracebacks:
            rank = traceback.rank
            if traceback.exception != "KeyboardInterrupt" or rank is None or rank in found:
                continue
            if traceback.frames:
                thread = Thread("MainThread", traceback.frames[::-1], traceback.line)
                stack = StackDump(None, traceback.line, traceback.end_line, (thread,), rank=rank)
                found[rank] = Process(index, stack, thread, standing_of(thread), rank)
    return list(found.values())


def interrupted_while_workers_stood_still(evidences: Sequence[Evidence]) -> Fact | None:
    """Ctrl-C found the main thread waiting for a batch that no worker was making."""
    waiting: list[EvidenceLine] = []
    still: list[EvidenceLine] = []
    where = ""
    for index, thread in _interrupted(evidences):
        top = thread.frames[0]
        line = EvidenceLine(
            thread.line,
            thread.line,
            f"interrupted in {top.function} ({top.path}:{top.line})",
            index,
        )
        if waits_for_a_batch(thread):
            waiting.append(line)
        elif is_worker(thread):
            functions = _functions(thread)
            if not any(name in functions for name in ("fetch", "__getitem__", "collate_fn")):
                still.append(line)
            elif _LOCK_FRAMES.search(top.function) or any(
                _LOCK_LINE.search(frame.code) for frame in thread.frames[:2]
            ):
                still.append(line)
                where = where or _first_user_frame(thread)
            else:
                return None
    if not waiting or not still:
        return None
    place = f", one of them on a lock at {where}" if where else ""
    many = f"{len(still)} workers" if len(still) != 1 else "one worker"
    because = f"Ctrl-C found the main thread waiting for a batch and {many} making none{place}"
    return Fact("", because, None, tuple(waiting[:1] + still[:4]))


def interrupted_while_waiting_for_a_batch(evidences: Sequence[Evidence]) -> Fact | None:
    """Ctrl-C found the main thread waiting for a batch; the text shows no worker."""
    threads = list(_interrupted(evidences))
    if any(is_worker(thread) for _, thread in threads):
        return None
    for index, thread in threads:
        if waits_for_a_batch(thread):
            text = f"interrupted in {thread.frames[0].function}"
            line = EvidenceLine(thread.line, thread.line, text, index)
            return Fact("", "Ctrl-C found the main thread waiting for a batch", None, (line,))
    return None


def _first_user_frame(thread: Thread) -> str:
    for frame in thread.frames:
        if is_own(frame):
            return f"{function_name(frame.function)} ({frame.path}:{frame.line})"
    return ""


def _stands(evidences: Sequence[Evidence]) -> list[Process]:
    """The processes of the job, with the collective that each waits in."""
    return list(stands_of(processes(evidences) or _interrupted_ranks(evidences)))


def _done_ranks(evidences: Sequence[Evidence]) -> set[int]:
    """Ranks whose own lines say that their epoch or loop is over."""
    ranks = set()
    pattern = re.compile(
        r"(?i)\brank ?(\d+)\b.{0,60}\b(?:done|finished|complete[d]?|end of epoch)\b"
    )
    for evidence in evidences:
        for rank, said in evidence.said_last():
            for _, text in said:
                if rank is None or _OF_LOOP.search(text):
                    break
                if re.search(
                    r"(?i)\b(?:epoch|loop|batches)\b.{0,30}\b(?:done|finished|complete)", text
                ):
                    ranks.add(rank)
        for progress in evidence.progress:
            if found := pattern.search(progress.text):
                ranks.add(int(found[1]))
    return ranks


def ranks_wait_in_different_collectives(evidences: Sequence[Evidence]) -> Fact | None:
    """Stack dumps show the ranks of one job in different collectives."""
    by_op: dict[str, list[Process]] = defaultdict(list)
    for stand in _stands(evidences):
        if stand.standing.op not in ("", UNNAMED):
            by_op[stand.standing.op].append(stand)
    if len(by_op) < 2:
        return None
    groups = sorted(by_op.values(), key=len)
    words = ", ".join(
        f"{len(g)} in {g[0].standing.op} (from {g[0].standing.caller})" for g in groups
    )
    lines = tuple(_stack_line(g[0]) for g in groups)
    because = f"the ranks wait in different collectives: {words}"
    return Fact("", because, groups[0][0].rank, lines)


def rank_at_work_while_the_others_wait(evidences: Sequence[Evidence]) -> Fact | None:
    """Stack dumps show a rank that still works towards the collective in which the others wait."""
    found = late_ranks(_stands(evidences))
    if found is None:
        return None
    late, waiting = found
    odd = late[0]
    because = (
        f"{len(waiting)} of {len(late) + len(waiting)} processes "
        f"{'waits' if len(waiting) == 1 else 'wait'} in {waiting[0].standing.op}, {len(late)} "
        f"{'is' if len(late) == 1 else 'are'} still at work in "
        f"{odd.standing.caller or odd.thread.frames[0].function}"
    )
    lines = (_stack_line(odd), _stack_line(waiting[0]))
    return Fact("", because, odd.rank, lines, {"doing": doing(odd.standing)})


def rank_outside_the_collective_others_wait_in(evidences: Sequence[Evidence]) -> Fact | None:
    """One rank is elsewhere (saving, evaluating, a branch of its own) while the others wait."""
    stands = _stands(evidences)
    waiting = [s for s in stands if s.standing.op]
    shared = {name for s in waiting for name in _own_functions(s)}
    outside = [s for s in stands if _is_on_its_own(s, shared)]
    if late_ranks(stands) is not None:
        return None
    if waiting and outside and len(outside) < len(stands):
        odd = outside[0]
        because = (
            f"{len(waiting)} of {len(stands)} processes wait in {waiting[0].standing.op}, "
            f"{len(outside)} {'is' if len(outside) == 1 else 'are'} in {odd.standing.caller}"
        )
        return Fact("", because, odd.rank, (_stack_line(odd), _stack_line(waiting[0])))
    waiting = [s for s in waiting if s.standing.op != UNNAMED]
    if len({s.standing.op for s in waiting}) < 2 or _uneven_by_stacks(stands) is not None:
        return None
    for stand in waiting:
        op, caller = stand.standing.op, stand.standing.caller
        if op != "backward" and _RANK_ONLY.search(caller):
            other = next(s for s in waiting if s.standing.op != op)
            because = (
                f"a rank waits in {op} called from {caller}, where the others never "
                f"come: they wait in {other.standing.op}"
            )
            return Fact("", because, stand.rank, (_stack_line(stand), _stack_line(other)))
    return None


def _own_functions(stand: Process) -> list[str]:
    return [function_name(f.function) for f in stand.thread.frames if is_own(f)]


def _is_on_its_own(stand: Process, shared: Collection[str]) -> bool:
    """Whether the process is in no collective, and in what one rank alone does.

    `shared` names the functions that the ranks that wait are in, too.
    """
    if stand.standing.op or stand.standing.role is Role.LOADER_WAIT:
        return False
    alone = [name for name in _own_functions(stand) if name not in shared]
    if stand.standing.role in (Role.CHECKPOINT, Role.ENDED):
        return True
    return bool(_RANK_ONLY.search(" ".join(alone)))


def _uneven_by_stacks(stands: Sequence[Process]) -> tuple[Process, Process] | None:
    """A rank that left its loop, and one that is still in it: (left, still)."""
    inside = [s for s in stands if s.standing.op == "backward"]
    left = [
        s
        for s in stands
        if s.standing.op not in ("", "backward", UNNAMED)
        and not _RANK_ONLY.search(s.standing.caller)
    ]
    if inside and left:
        return left[0], inside[0]
    return None


def ranks_stopped_at_different_batches(evidences: Sequence[Evidence]) -> Fact | None:
    """Some ranks ended their loop, others wait inside theirs; or the ranks' own counts differ."""
    recorded = _recorded(evidences)
    if recorded is not None and recorded[0].is_next_round:
        return recorded[1]
    by_stacks = {"source": "the ranks' stacks"}
    pair = _uneven_by_stacks(_stands(evidences))
    if pair is not None and _done_ranks(evidences):
        left, still = pair
        because = (
            f"one rank has left its loop and waits in {left.standing.op}, another still waits in "
            "backward"
        )
        lines = (_stack_line(left), _stack_line(still))
        return Fact("", because, still.rank, lines, by_stacks)
    counts: dict[str, int] = {}
    for evidence in evidences:
        counts.update(evidence.batches)
    counts.pop("None", None)
    # Between the ranks of a healthy run counts differ too, while one prints before the other.
    stopped = any(_timeouts(evidence)[1] is not None for evidence in evidences)
    if stopped and len(counts) > 1 and len(set(counts.values())) > 1:
        least = min(counts, key=lambda rank: counts[rank])
        most = max(counts, key=lambda rank: counts[rank])
        because = (
            f"rank {least} finished {counts[least]} batches, rank {most} finished {counts[most]}"
        )
        return Fact("", because, int(least), values=_BY_THEIR_LINES)
    if not stopped:
        return None
    return _loops_of_unlike_length(evidences) or _loop_that_others_left(evidences)


_BY_THEIR_LINES = {"source": "the ranks' own lines"}
_ROUND_OPS = ("ALLREDUCE", "REDUCE_SCATTER", "ALLGATHER", "BROADCAST")


def _loop_that_others_left(evidences: Sequence[Evidence]) -> Fact | None:
    """The last line of some ranks ends their epoch; the others timed out inside theirs."""
    done = _done_ranks(evidences)
    timed_out = {e.rank: (i, e) for i, e in _events(evidences, "timeout") if e.rank is not None}
    inside = [
        e.op.strip("_").startswith(_ROUND_OPS) and (e.numel_in or 0) > 1
        for _, e in timed_out.values()
    ]
    if not done or not inside or done & timed_out.keys() or not all(inside):
        return None
    index, event = next(iter(timed_out.values()))
    odd = done if len(done) <= len(timed_out) else set(timed_out)
    had = "had" if len(done) > 1 else "has"
    because = (
        f"{flight.names(done)} {had} ended the epoch, {flight.names(timed_out)} timed out in "
        f"{_describe(event)} of one more batch"
    )
    lines = (_event_line(index, event),)
    return Fact("", because, min(odd) if len(odd) == 1 else None, lines, _BY_THEIR_LINES)


_OF_LOOP = regex(
    r"(?i)\b(?:step|iter(?:ation)?|batch|it)s?\b\s?[=:#\[(]{0,2}\s?(?P<done>\d{1,9})\s?/\s?"
    r"(?P<total>\d{1,9})\b"
)


def _loops_of_unlike_length(evidences: Sequence[Evidence]) -> Fact | None:
    """The ranks count to different totals, and the one with fewer is through with its own."""
    loops: dict[int, tuple[str, int, int, EvidenceLine]] = {}
    for index, evidence in enumerate(evidences):
        for progress in evidence.progress:
            done, total = progress.done, progress.total
            if found := _OF_LOOP.search(progress.text):
                done, total = int(found["done"]), int(found["total"])
            elif progress.name == "epoch":
                continue
            if progress.rank is not None and total:
                line = EvidenceLine(progress.line, progress.line, progress.text, index)
                loops[progress.rank] = (progress.name, done, total, line)
    if len(loops) < 2 or len({name for name, *_ in loops.values()}) > 1:
        return None
    least = min(loops, key=lambda rank: loops[rank][2])
    most = max(loops, key=lambda rank: loops[rank][2])
    (_, done, total, line), (_, _, larger, other) = loops[least], loops[most]
    if not total < larger <= total * 1.25 or done < total - 1:
        return None
    because = f"rank {least} has {total} batches and is through, rank {most} has {larger}"
    with_most = [rank for rank, loop in loops.items() if loop[2] > total]
    odd = most if len(with_most) == 1 < len(loops) - 1 else least
    return Fact("", because, odd, (line, other), _BY_THEIR_LINES)


# ------------------------------------------------------------------------------ collectives


def _events(evidences: Sequence[Evidence], *kinds: str) -> list[tuple[int, CollectiveEvent]]:
    return [
        (index, event)
        for index, evidence in enumerate(evidences)
        for event in evidence.collectives
        if event.kind in kinds
    ]


def _event_line(index: int, event: CollectiveEvent) -> EvidenceLine:
    return EvidenceLine(event.line, event.line, event.text, index)


def _describe(event: CollectiveEvent) -> str:
    words = event.op or "a collective"
    if event.seq_num is not None:
        words += f" {event.seq_num}"
    if event.numel_in is not None:
        words += f" of {event.numel_in} elements"
    elif event.shape:
        words += f" of shape [{event.shape}]"
    return words


def collective_differs_between_ranks(evidences: Sequence[Evidence]) -> Fact | None:
    """In one process group the ranks stand in different collectives, or in one of other sizes."""
    recorded = _recorded(evidences)
    if recorded is not None and recorded[0].is_unlike_call:
        return recorded[1]
    by_group: dict[str, dict[int, tuple[int, CollectiveEvent]]] = defaultdict(dict)
    crowded: set[str] = set()
    for index, event in [*_timed_out(evidences), *_events(evidences, "mismatch")]:
        # A monitored barrier has no number that could be compared.
        is_monitored = event.op == "BARRIER" and event.kind == "timeout"
        if event.rank is None or not event.op or is_monitored:
            continue
        group = by_group[event.group]
        known = group.get(event.rank)
        if known is not None and known[1].seq_num != event.seq_num:
            # Several numbers on one rank may be several groups: nothing follows from them.
            crowded.add(event.group)
        group.setdefault(event.rank, (index, event))
    for name, ranks in by_group.items():
        if name not in crowded and (fact := _odd_call(ranks)) is not None:
            return fact
    return _logged_calls_differ(evidences)


def _odd_call(ranks: Mapping[int, tuple[int, CollectiveEvent]]) -> Fact | None:
    """The ranks of one group, each in one call: which of the calls does not fit the others."""
    kinds: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for rank, (_, event) in ranks.items():
        kinds[_identity(event)].append(rank)
    if len(kinds) < 2:
        return None
    rarest = min(kinds.values(), key=lambda r: (len(r), r))
    usual = max((k for k in kinds.values() if k is not rarest), key=len)
    odd, other = ranks[rarest[0]], ranks[usual[0]]
    if not _can_differ(odd[1], other[1]):
        return None
    because = (
        f"rank {rarest[0]} is in {_describe(odd[1])}, rank {usual[0]} in {_describe(other[1])}"
    )
    lines = (_event_line(*odd), _event_line(*other))
    culprit = rarest[0] if len(rarest) < len(usual) else None
    if culprit is None and odd[1].kind == "mismatch":
        # Each rank compares the others with itself: the one it names is the odd one.
        culprit = max(odd[1], other[1], key=lambda e: e.is_named_by_peer).rank
    return Fact("", because, culprit, lines, {"source": _SOURCES[odd[1].kind]})


_SOURCES = {
    "timeout": "the ranks' watchdog lines",
    "state": "the ranks' watchdog lines",
    "observed": "the ranks' watchdog lines",
    "mismatch": "the fingerprints that the ranks compared",
    "absent": "what a peer reports of it",
    "called": "NCCL's log of calls",
}


def _timed_out(evidences: Sequence[Evidence]) -> list[tuple[int, CollectiveEvent]]:
    """The timeouts, each with its process group where another line of the rank names it."""
    states = _events(evidences, "state")
    by_work: dict[tuple[int | None, int | None], str] = {
        (e.rank, e.seq_num): e.group for _, e in states if e.group and e.seq_num is not None
    }
    only = {e.group for _, e in states if e.group}
    usual = next(iter(only)) if len(only) == 1 else ""
    return [
        (i, e if e.group else replace(e, group=by_work.get((e.rank, e.seq_num), usual)))
        for i, e in _events(evidences, "timeout")
    ]


def _logged_calls_differ(evidences: Sequence[Evidence]) -> Fact | None:
    """With NCCL_DEBUG=INFO each call is logged: unlike ones at one number of a communicator."""
    calls: dict[tuple[str, int], dict[int, list[tuple[int, CollectiveEvent]]]] = {}
    for index, event in _events(evidences, "called"):
        if event.rank is not None and event.seq_num is not None:
            by_rank = calls.setdefault((event.group, event.seq_num), {})
            by_rank.setdefault(event.rank, []).append((index, event))
    for by_rank in calls.values():
        # Several calls of one number were launched together, in an order of their own.
        alone = {rank: made[0] for rank, made in by_rank.items() if len(made) == 1}
        if len(alone) == len(by_rank) > 1 and (fact := _odd_call(alone)) is not None:
            return fact
    return None


# Of these a rank's share may be of a size of its own.
_OWN_SIZES = ("BROADCAST", "ALLTOALL", "GATHER", "SCATTER", "SEND", "RECV")


def _size_of(event: CollectiveEvent) -> object:
    if event.kind == "timeout" and event.op.strip("_").startswith(_OWN_SIZES):
        return None
    return event.shape, event.numel_in


def _identity(event: CollectiveEvent) -> tuple[object, ...]:
    return event.seq_num, event.op, _size_of(event)


def _can_differ(one: CollectiveEvent, other: CollectiveEvent) -> bool:
    """Whether two unlike collectives prove a desync rather than unlike groups or cut numbers."""
    if one.kind == "mismatch" or other.kind == "mismatch":
        return True
    if one.seq_num == other.seq_num:
        return one.op != other.op or _size_of(one) != _size_of(other)
    return one.op != other.op and one.seq_num is not None and other.seq_num is not None


def rank_missing_from_collective(evidences: Sequence[Evidence]) -> Fact | None:
    """Ranks timed out in a collective that a rank of the same text never joined."""
    recorded = _recorded(evidences)
    if recorded is not None and not recorded[0].is_unlike_call:
        return recorded[1]
    dead = _dead_ranks(evidences)
    absent = _events(evidences, "absent")
    if absent:
        index, event = absent[0]
        if event.rank in dead:
            return None
        place = "barrier" if event.op == "BARRIER" else "collective"
        because = f"rank {event.rank} never reached the {place} that the others wait in"
        values = {"source": _SOURCES["absent"]}
        return Fact("", because, event.rank, (_event_line(index, event),), values)
    if (behind := _rank_behind(evidences, dead)) is not None:
        return behind
    timed_out = {e.rank for _, e in _events(evidences, "timeout") if e.rank is not None}
    seen = _events(evidences, "observed")
    # Who enqueued nothing more than it completed owes nothing: it went elsewhere.
    outside = [
        (i, e)
        for i, e in seen
        if e.rank is not None and e.rank not in timed_out and e.rank not in dead
    ]
    states = {e.rank: e for _, e in _events(evidences, "state")}
    outside = [(i, e) for i, e in outside if e.rank not in states or _is_ahead(states[e.rank])]
    ranks = {e.rank for _, e in outside}
    if not timed_out or len(ranks) != 1 or len(timed_out) < 1:
        return None
    index, event = outside[0]
    waiting = _events(evidences, "timeout")[0]
    because = (
        f"{len(timed_out)} rank{'s' if len(timed_out) != 1 else ''} timed out in "
        f"{_describe(waiting[1])}; rank {event.rank} did not: it only saw their signal"
    )
    lines = (_event_line(index, event), _event_line(*waiting))
    return Fact("", because, event.rank, lines, {"source": _SOURCES["observed"]})


def _rank_behind(evidences: Sequence[Evidence], dead: Collection[int]) -> Fact | None:
    """A rank whose last enqueued call stands before the one in which its group timed out."""
    groups: dict[str, list[tuple[int, CollectiveEvent]]] = defaultdict(list)
    for index, event in _timed_out(evidences):
        if event.group and event.seq_num is not None and event.rank is not None:
            groups[event.group].append((index, event))
    waiting = {e.rank for events in groups.values() for _, e in events}
    for name, events in groups.items():
        seq = min(e.seq_num or 0 for _, e in events)
        behind = {
            e.rank: (i, e)
            for i, e in _events(evidences, "state")
            if e.group == name and e.rank is not None and e.last_enqueued is not None
            if e.last_enqueued < seq and e.rank not in waiting and e.rank not in dead
        }
        if len(behind) != 1:
            continue
        (index, event), first = next(iter(behind.values())), events[0]
        ranks = {e.rank for _, e in events}
        last = event.last_enqueued
        because = (
            f"rank {event.rank} had enqueued "
            f"{f'only up to {last}' if last is not None and last > 0 else 'nothing'} when "
            f"{len(ranks)} rank{'s' if len(ranks) != 1 else ''} timed out in {_describe(first[1])}"
        )
        lines = (_event_line(index, event), _event_line(*first))
        return Fact("", because, event.rank, lines, {"source": _SOURCES["state"]})
    return None


# -------------------------------------------------------------------- communicators, NCCL's RAS


def communicator_counts_differ(evidences: Sequence[Evidence]) -> Fact | None:
    """NCCL's RAS shows a communicator of which one rank launched more or fewer calls."""
    groups: dict[tuple[int, str, str], list[CollectiveEvent]] = defaultdict(list)
    for index, event in _events(evidences, "launched", "status"):
        op = "" if event.kind == "status" else event.op
        groups[(index, event.group, op)].append(event)
    found: list[tuple[str, CollectiveEvent]] = []
    for (_, group, _), events in groups.items():
        odd = [e for e in events if e.is_named_by_peer]
        usual = max((e for e in events if not e.is_named_by_peer), key=_size, default=None)
        if len(odd) == 1 and usual is not None:
            found.append((f"communicator {group}: {odd[0].text}; {usual.text}", odd[0]))
        elif odd:
            # A dump of few ranks names them all: the one that is behind is waited for.
            least = min(odd, key=lambda e: (e.seq_num or 0, -1 if e.rank is None else e.rank))
            others = "; ".join(e.text for e in odd if e is not least)[:300]
            found.append((f"communicator {group}: {least.text}; {others}", least))
    if not found:
        return None
    because, event = next(((b, e) for b, e in found if e.kind == "launched"), found[0])
    index = next(i for i, e in _events(evidences, event.kind) if e is event)
    details = tuple(words for words, e in found if e is not event)[:6]
    lines = (_event_line(index, event),)
    return Fact("", because, event.rank, lines, host=event.host, details=details)


def _size(event: CollectiveEvent) -> int:
    return event.size or 0


def process_called_dead(evidences: Sequence[Evidence]) -> Fact | None:
    """NCCL's RAS cannot reach a process of the job, and calls it dead."""
    return _lost_process(evidences, "dead", "NCCL's RAS considers it dead")


def process_gives_no_answer(evidences: Sequence[Evidence]) -> Fact | None:
    """A process of the job gave NCCL's RAS no data, without being called dead."""
    return _lost_process(evidences, "silent", "it gave NCCL's RAS no data")


def _lost_process(evidences: Sequence[Evidence], kind: str, words: str) -> Fact | None:
    lost = _events(evidences, kind)
    if not lost:
        return None
    # The list of ranks says more than the list of processes above it.
    index, event = next(((i, e) for i, e in lost if e.rank is not None), lost[0])
    processes = {e.op for _, e in lost}
    others = f"; {len(processes)} processes in all" if len(processes) > 1 else ""
    because = f"{event.text}: {words}{others}"
    rank = event.rank if len(processes) == 1 else None
    host = event.host if len({e.host for _, e in lost}) == 1 else None
    return Fact("", because, rank, (_event_line(index, event),), host=host)


def rank_never_came_to_the_group(evidences: Sequence[Evidence]) -> Fact | None:
    """Of a group that never came about all ranks but few say that they were there."""
    groups: dict[str, list[tuple[int, CollectiveEvent]]] = defaultdict(list)
    for index, event in _events(evidences, "joined"):
        groups[event.group].append((index, event))
    for events in groups.values():
        size = max(_size(e) for _, e in events)
        came = {e.rank for _, e in events if e.rank is not None}
        if any(e.op == "COMPLETE" for _, e in events) or not came or max(came) >= size:
            continue
        missing = set(range(size)) - came
        # Where whole nodes say nothing, their logs are elsewhere.
        if not missing or len(missing) > max(1, size // 4) or len(came) < 2:
            continue
        because = f"{flight.names(came)} came to the group of {size}, {flight.names(missing)} not"
        lines = tuple(_event_line(*e) for e in events[:2])
        rank = min(missing) if len(missing) == 1 else None
        return Fact("", because, rank, lines)
    return None


def ranks_read_the_same_samples(evidences: Sequence[Evidence]) -> Fact | None:
    """All ranks that print the samples of a batch print the same ones, in the same order."""
    printed: dict[int, list[tuple[int, Hit]]] = defaultdict(list)
    for index, evidence in enumerate(evidences):
        for hit in evidence.hits:
            if hit.rank is not None and not hit.mention and "," in hit.values.get("samples", ""):
                printed[hit.rank].append((index, hit))
    rounds = min(map(len, printed.values()), default=0)
    lists = {tuple(h.values["samples"] for _, h in p[:rounds]) for p in printed.values()}
    if len(printed) < 2 or len(lists) > 1 or not rounds:
        return None
    because = f"{flight.names(printed)} read the same samples in the same order"
    lines = tuple(EvidenceLine(h.line, h.line, h.text, i) for i, h in _firsts(printed))
    return Fact("", because, None, lines)


def epochs_repeat_one_order(evidences: Sequence[Evidence]) -> Fact | None:
    """A rank prints samples of several epochs, shuffled, and each epoch brings the same ones."""
    orders: dict[tuple[int, int | None], dict[str, Hit]] = defaultdict(dict)
    for index, evidence in enumerate(evidences):
        for hit in evidence.hits:
            epoch, order = hit.values.get("epoch", ""), hit.values.get("order", "")
            if not hit.mention and order.count(",") > 1 and not _OF_VALIDATION.search(hit.text):
                orders[index, hit.rank].setdefault(epoch, hit)
    for (index, rank), epochs in orders.items():
        order, *others = (hit.values["order"] for hit in epochs.values())
        numbers = [int(n) for n in _NUMBER.findall(order)]
        if others and set(others) == {order} and numbers != sorted(numbers):
            because = f"{len(epochs)} epochs begin with the same samples in the same order"
            hits = list(epochs.values())[:4]
            lines = tuple(EvidenceLine(h.line, h.line, h.text, index) for h in hits)
            return Fact("", because, rank, lines)
    return None


_OF_VALIDATION = re.compile(r"(?i)\b(?:val|valid|validation|eval|test)\b")
_NUMBER = re.compile(r"\d{1,18}")


def _firsts(printed: Mapping[int, Sequence[tuple[int, Hit]]]) -> list[tuple[int, Hit]]:
    return [printed[rank][0] for rank in sorted(printed)[:4]]


def _recorded(evidences: Sequence[Evidence]) -> tuple[flight.Mismatch, Fact] | None:
    """The first mismatch of the ranks' flight-recorder dumps, and what it says; None: they agree.

    A rank that hangs in another group, or that died of its own exception, is missing as a
    consequence; being behind in a call proves nothing either.
    """
    recorded = [(i, e.flight) for i, e in enumerate(evidences) if e.flight is not None]
    if len(recorded) < 2:
        return None
    dumps = [dump for _, dump in recorded]
    mismatches = flight.compare(dumps)
    dead = _dead_ranks(evidences)
    first = next(
        (
            m
            for m in mismatches
            if m.kind != "state"
            and not m.waits_elsewhere
            and not (m.kind in ("missing", "unpaired") and dead & set(m.ranks))
        ),
        None,
    )
    if first is None:
        return None
    details = [m.sentence for m in mismatches if m is not first]
    if len(details) > 6:
        details = [*details[:5], f"{len(details) - 5} more mismatches follow"]
    if without := flight.ranks_without_dump(dumps):
        details.append(flight.ask_for(without))
    lines = tuple(EvidenceLine(1, 1, text, recorded[i][0]) for i, text in first.lines)
    values = {"seq_num": str(first.seq), "source": "the flight-recorder dumps"}
    fact = Fact("", first.sentence, first.culprit, lines, values, details=tuple(details))
    return first, fact


_OF_PEERS = regex(r"(?:NCCL|gloo|Dist\w*Error|[Bb]arrier|[Cc]onnection|[Tt]imed? ?out|[Pp]eer)")


def _dead_ranks(evidences: Sequence[Evidence]) -> set[int]:
    """Ranks that ended for a reason of their own: absence is then a consequence."""
    return {
        t.rank
        for evidence in evidences
        for t in evidence.tracebacks
        if t.rank is not None and t.exception and not _OF_PEERS.search(f"{t.exception} {t.message}")
    }


def _is_ahead(event: CollectiveEvent) -> bool:
    return event.last_enqueued is not None and event.last_enqueued == event.last_completed


_PREPARES = regex(
    r"(?i)(?:token|map\b|filter|download|generat|process|convert|load|read|extract|pack|group|"
    r"preprocess|cach|index|scan|sav|upload|copy|split|prepar|shard|resolv|import|compil|eval|"
    r"valid|test|predict|decod|encod|creat|concat|flatten|build|collect|comput|casting)"
)
_TIMEOUT_TEXT = regex(
    r"(?:timed out after|[Tt]imeout(?:\(ms\)|_ms)?[=: ]+|wait timeout after"
    r"|Timed out waiting)\s?(?P<value>\d{4,9}) ?ms"
)
_DISTRIBUTED_FAILURE = regex(
    r"(?:monitoredBarrier|waitForInput|Watchdog caught|DistBackendError|DistStoreError|"
    r"[Ss]ocket [Tt]imeout|Timed out|timed out|ProcessGroup(?:NCCL|Gloo)|barrier)"
)


_MEETING = ("barrier", "monitored_barrier", "wait_for_everyone", "main_process_first")


def rank_busy_until_the_timeout(evidences: Sequence[Evidence]) -> Fact | None:
    """A progress bar of one rank was still running when the others' wait reached its limit."""
    for index, evidence in enumerate(evidences):
        limits_s, failure_line = _timeouts(evidence)
        if failure_line is None:
            continue
        bar = _unfinished_bar(evidence.progress, failure_line)
        if bar is None or bar.elapsed_s is None or _was_killed(evidence, bar, failure_line):
            continue
        close = any(0.8 * t <= bar.elapsed_s <= 1.2 * t for t in limits_s)
        long = bar.elapsed_s >= 0.8 * min(limits_s, default=600.0)
        prepares = _PREPARES.search(bar.name) and (long or bar.elapsed_s >= 300)
        if not (close or prepares):
            continue
        rank = bar.rank
        if rank is None:
            rank = _only_rank_left(evidence)
        name = bar.name or "a progress bar"
        share = f" at {bar.done} of {bar.total}" if bar.total else ""
        because = (
            f"'{name}' was still running{share} after {_clock(bar.elapsed_s)} when the others' "
            "wait timed out"
        )
        line = EvidenceLine(bar.line, bar.line, bar.text, index)
        return Fact("", because, rank, (line,))
    return _last_said_to_be_at_work(evidences) or _work_done_too_late(evidences)


_DONE = regex(
    r"(?i)\b(?:saved (?:\w+ ){0,3}?(?:model|checkpoint|weights|state|cache|index|\S{1,300}"
    r"\.(?:pt|pth|bin|ckpt|safetensors|arrow|npy))\b|"
    r"(?:finished|done|completed) (?:saving|building|downloading|tokeni[sz]ing|"
    r"preprocessing|converting|loading|indexing|evaluating|generating|evaluation|validation|"
    r"checkpoint)|(?:building|downloading|tokeni[sz]ing|preprocessing|indexing|evaluation|"
    r"loading|saving) (?:took|finished|done|completed?)|checkpoint (?:saved|written)|"
    r"written (?:in|after) \d)"
)

# What a handler of the failure itself saves is no work that the others waited for.
_LAST_RESORT = regex(r"(?i)emergency|interrupt|signal|exception|crash|on exit|recovery")


def _work_done_too_late(evidences: Sequence[Evidence]) -> Fact | None:
    """A rank that did not time out reports work as done after the others' wait had ended."""
    for index, evidence in enumerate(evidences):
        waiting = {e.rank: e for e in evidence.collectives if e.kind == "timeout"}
        if None in waiting or not waiting:
            continue
        first = min(e.line for e in waiting.values())
        for rank, said in evidence.said_last():
            late = [
                (n, text)
                for n, text in said
                if n > first and _DONE.search(text) and not _LAST_RESORT.search(text)
            ]
            if rank in waiting or not late:
                continue
            number, text = late[-1]
            line = EvidenceLine(number, number, text, index)
            because = f"'{text[:120]}' came after the wait of {len(waiting)} others had ended"
            culprit = rank if rank is not None else _only_rank_left(evidence)
            return Fact("", because, culprit, (line,))
    return None


_AT_WORK = regex(
    r"(?i)\b(?:saving|building|downloading|tokeni[sz]ing|preprocessing|converting|compiling|"
    r"extracting|uploading|indexing|consolidating|evaluating|generating)\b"
)


def _last_said_to_be_at_work(evidences: Sequence[Evidence]) -> Fact | None:
    """The others wait in a barrier; the one rank that does not last said what it was doing."""
    for index, evidence in enumerate(evidences):
        waiting = {e.rank: e for e in evidence.collectives if e.kind in ("timeout", "wait")}
        if None in waiting or not waiting or any((e.numel_in or 1) > 1 for e in waiting.values()):
            continue
        for rank, said in evidence.said_last():
            if rank is None or rank in waiting or (work := _open_work(said)) is None:
                continue
            number, text, doing = work
            line = EvidenceLine(number, number, text, index)
            because = f"rank {rank} was {doing} when the wait of {len(waiting)} others ended"
            return Fact("", because, rank, (line,))
    return None


_OVER = regex(
    r"(?i)\b(?:done|finished|completed?|saved|built|downloaded|written|(?:epoch|step|iter(?:ation)?|"
    r"batch) ?[:=]? ?\d)"
)


def _open_work(said: Sequence[tuple[int, str]]) -> tuple[int, str, str] | None:
    """The work that a rank last spoke of, if no newer line says that it went on to something else.

    Its line's number, its line, and the word.
    """
    for number, text in said:
        if work := _AT_WORK.search(text):
            return number, text, work[0].lower()
        if _OVER.search(text):
            return None
    return None


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _timeouts(evidence: Evidence) -> tuple[list[float], int | None]:
    """Seconds of the limits that ran out, and the first line that says so."""
    limits = [e.timeout_ms / 1000 for e in evidence.collectives if e.timeout_ms]
    lines = [e.line for e in evidence.collectives if e.kind in ("timeout", "absent", "wait")]
    lines += [
        traceback.line
        for traceback in evidence.tracebacks
        if any(function_name(f.function) in _MEETING for f in traceback.frames)
    ]
    for hit in (*evidence.errors, *evidence.hits):
        if _DISTRIBUTED_FAILURE.search(hit.text):
            lines.append(hit.line)
            limits.extend(int(m["value"]) / 1000 for m in _TIMEOUT_TEXT.finditer(hit.text))
    if lines and not limits:
        # The defaults: 30 minutes of the store and gloo, 10 of NCCL.
        limits = [1800.0, 600.0]
    return limits, min(lines, default=None)


_TRAINS = regex(r"(?i)\b(?:train_)?loss ?[=:]|\blr ?[=:]")


def _unfinished_bar(progress: Iterable[Progress], before_line: int) -> Progress | None:
    last: dict[tuple[str, int | None, int | None], Progress] = {}
    for item in progress:
        # A bar of the training itself stops where the rank begins to wait.
        if item.elapsed_s and item.line <= before_line and not _TRAINS.search(item.text):
            last[(item.name, item.total, item.rank)] = item
    open_bars = [
        p for p in last.values() if (p.total is None or p.done < p.total) and (p.elapsed_s or 0) > 0
    ]
    return max(open_bars, key=lambda p: (p.line, p.elapsed_s or 0), default=None)


def _was_killed(evidence: Evidence, bar: Progress, failure_line: int) -> bool:
    """Whether the bar stopped because a signal ended its process."""
    return any(
        ending.signal and ending.rank == bar.rank and bar.line <= ending.line <= failure_line
        for ending in evidence.exits
    )


def _only_rank_left(evidence: Evidence) -> int | None:
    """The one rank that did not say that its wait timed out; rank 0 where several are left."""
    waited = {e.rank for e in evidence.collectives if e.kind in ("timeout", "wait")}
    waited |= {t.rank for t in evidence.tracebacks}
    waited |= {h.rank for h in evidence.hits}
    waited.discard(None)
    absent = [e.rank for e in evidence.collectives if e.kind == "absent" and e.rank is not None]
    if absent:
        return absent[0]
    if not waited:
        return None
    ranks = set(range(max(r for r in waited if r is not None) + 1)) - waited
    return min(ranks, default=None)


# ----------------------------------------------------------------------------------- numbers

_SIZE = regex(r"(?P<value>\d+(?:\.\d+)?) ?(?P<unit>bytes|B|[KMGT]i?B)\b")
_NOTABLE_SHARE = 0.03
_MIB = {"b": 1 / (1 << 20), "k": 1 / 1024, "m": 1.0, "g": 1024.0, "t": 1024.0 * 1024}
_OOM = regex(
    r"out of memory.{0,40}Tried to allocate (?P<request>[\d.]+ ?[KMGT]?i?B)(?P<rest>.*)", re.DOTALL
)


def _mib(text: str) -> float:
    found = _SIZE.search(text)
    if found is None:
        return 0.0
    return float(found["value"]) * _MIB[found["unit"][0].lower()]


def _size_before(rest: str, words: str) -> float | None:
    found = re.search(r"(\d+(?:\.\d+)? ?(?:[KMGT]i?B|bytes)) " + words, rest)
    return _mib(found[1]) if found else None


def _capacity(rest: str) -> float:
    found = re.search(r"total capacity of (\d+(?:\.\d+)? ?[KMGT]iB)", rest)
    return _mib(found[1]) if found else _size_before(rest, r"total capacity") or 0.0


def oom_reserved_memory_would_have_sufficed(evidences: Sequence[Evidence]) -> Fact | None:
    """PyTorch held more unallocated memory, or the GPU had more free, than the request."""
    for index, evidence in enumerate(evidences):
        texts = [(h.line, h.text, h.rank) for h in evidence.hits if "out of memory" in h.text]
        texts += [(t.end_line, t.message, t.rank) for t in evidence.tracebacks]
        for line, text, rank in texts:
            found = _OOM.search(text)
            if found is None:
                continue
            request, rest = _mib(found["request"]), found["rest"]
            unused = _size_before(rest, r"is reserved by PyTorch but unallocated")
            if unused is None:
                reserved = _size_before(rest, r"(?:reserved in total by PyTorch|cached)")
                allocated = _size_before(rest, r"already allocated")
                if reserved is not None and allocated is not None and "reserved in total" in rest:
                    unused = reserved - allocated
                elif reserved is not None:
                    unused = reserved
            # Below a limit of the process's own, what the GPU has free is not for it.
            allowed = _size_before(rest, r"allowed;")
            free = _size_before(rest, r"(?:is )?free") if allowed is None else None
            # What every full GPU has left over in its last blocks is no fragmentation.
            least = _NOTABLE_SHARE * (allowed or _capacity(rest))
            held = unused if unused is not None and unused > max(request, least) else None
            if held is None and not (free is not None and free > max(request * 1.5, least)):
                continue
            words = (
                f"{held:.0f} MiB were reserved by PyTorch but unallocated"
                if held is not None
                else f"{free:.0f} MiB were free"
            )
            because = f"a request of {request:.0f} MiB failed although {words}"
            values = {"requested": found["request"].strip()}
            return Fact("", because, rank, (EvidenceLine(line, line, text[:500], index),), values)
    return None


def _series(
    evidences: Sequence[Evidence], name: str
) -> Iterator[tuple[int, int | None, list[Point]]]:
    for index, evidence in enumerate(evidences):
        by_rank: dict[int | None, list[Point]] = defaultdict(list)
        for point in evidence.points:
            if point.series == name:
                by_rank[point.rank].append(point)
        for rank, points in by_rank.items():
            yield index, rank, points


def _point_lines(index: int, points: Sequence[Point], unit: str = "") -> tuple[EvidenceLine, ...]:
    return tuple(
        EvidenceLine(p.line, p.line, f"{p.series.split(':')[0]} {p.value:g}{unit}", index)
        for p in (points[0], points[-1])
    )


def _rises(points: Sequence[Point], least: int, factor: float) -> bool:
    values = [p.value for p in points]
    if len(values) < least or values[0] <= 0 or values[-1] < values[0] * factor:
        return False
    steps = [b - a for a, b in itertools.pairwise(values)]
    return sum(s > 0 for s in steps) >= 0.6 * len(steps) and sum(s < 0 for s in steps) <= 0.1 * len(
        steps
    )


def memory_rises_every_step(evidences: Sequence[Evidence]) -> Fact | None:
    """The run's own figures of GPU memory only rise."""
    for index, rank, points in _series(evidences, "gpu_memory"):
        if _rises(points, 4, 1.2):
            because = (
                f"GPU memory rose from {points[0].value:.0f} to {points[-1].value:.0f} MiB "
                "and never fell"
            )
            return Fact("", because, rank, _point_lines(index, points, " MiB"))
    return None


def host_memory_rises(evidences: Sequence[Evidence]) -> Fact | None:
    """The run's own figures of host memory only rise."""
    for index, rank, points in _series(evidences, "host_memory"):
        if _rises(points, 4, 1.15):
            because = (
                f"host memory rose from {points[0].value:g} to {points[-1].value:g} and never fell"
            )
            return Fact("", because, rank, _point_lines(index, points))
    return None


def autograd_nodes_grow(evidences: Sequence[Evidence]) -> Fact | None:
    """Listings of live objects show more autograd nodes each time."""
    for index, evidence in enumerate(evidences):
        by_name: dict[str, list[Point]] = defaultdict(list)
        for point in evidence.points:
            if point.series.startswith("graph_nodes:"):
                by_name[point.series].append(point)
        for name, points in by_name.items():
            values = [p.value for p in points]
            if len(values) >= 2 and values[-1] > values[0] and values == sorted(values):
                node = name.partition(":")[2]
                because = f"live {node} nodes grew from {values[0]:.0f} to {values[-1]:.0f}"
                return Fact("", because, None, _point_lines(index, points))
    return None


_MAX_REPEATS = 8


def loss_scale_keeps_falling(evidences: Sequence[Evidence]) -> Fact | None:
    """Steps are skipped one after the other, down to a scale that no longer helps."""
    for index, rank, points in _series(evidences, "skipped_step"):
        run = _longest_fall(points)
        if len(run) < 4:
            continue
        first, last = run[0].value, run[-1].value
        stuck = last >= first and last <= 128
        # A scale that starts at 2**32 is halved 16 times before it fits.
        if not (last <= 64 or stuck or (len(run) >= 12 and last <= 1024)):
            continue
        because = (
            f"{len(run)} steps skipped in a row, the loss scale stays at {last:g}"
            if stuck
            else f"{len(run)} steps skipped while the loss scale fell from {first:g} to {last:g}"
        )
        return Fact(
            "", because, rank, _point_lines(index, run), details=_skip_rate(evidences[index], rank)
        )
    for index, rank, points in _series(evidences, "loss_scale"):
        run = _longest_halving(points)
        if len(run) >= 7 and run[-1].value <= 64:
            because = (
                f"the loss scale was halved {len(run) - 1} times in a row, from "
                f"{run[0].value:g} to {run[-1].value:g}"
            )
            details = _skip_rate(evidences[index], rank)
            return Fact("", because, rank, _point_lines(index, run), details=details)
    for index, rank, points in _series(evidences, "skipped_total"):
        last_point = points[-1]
        # A scale that settles skips a few steps at the start, then hardly any.
        if len(points) > 1 and (last_point.step or 0) >= 20 and points[-2].value < last_point.value:
            share = last_point.value / (last_point.step or 1)
            if share >= 0.5:
                because = f"{last_point.value:g} of {last_point.step} steps were skipped"
                return Fact("", because, rank, _point_lines(index, points))
    return None


def _skip_rate(evidence: Evidence, rank: int | None) -> tuple[str, ...]:
    """Skips against steps, in a sentence; nothing where the lines name no steps."""
    name = "" if rank is None else f":{rank}"
    totals = [p for p in evidence.points if p.series == "skipped_total" and p.rank == rank]
    if totals and totals[-1].step:
        return (f"{totals[-1].value:g} of {totals[-1].step} steps were skipped in all",)
    skipped = evidence.point_counts.get(f"skipped_step{name}", 0)
    steps = [p.step for p in evidence.points if p.rank == rank and p.step is not None]
    span = max(steps) - min(steps) + 1 if steps else 0
    if skipped < 4 or span < skipped:
        return ()
    return (f"{skipped} of {span} steps were skipped ({skipped / span:.0%})",)


def _longest_halving(points: Sequence[Point]) -> list[Point]:
    """The longest run of halvings; a value may stand a few times, as of several ranks."""
    best: list[Point] = []
    run: list[Point] = []
    repeats = 0
    for point in points:
        if run and point.value == run[-1].value and repeats < _MAX_REPEATS:
            repeats += 1
            continue
        repeats = 0
        run = [*run, point] if run and point.value * 2 == run[-1].value else [point]
        if len(run) > len(best):
            best = run
    return best


def _longest_fall(points: Sequence[Point]) -> list[Point]:
    best: list[Point] = []
    run: list[Point] = []
    for point in points:
        run = [*run, point] if run and point.value <= run[-1].value else [point]
        if len(run) > len(best):
            best = run
    return best


def loss_is_nan(evidences: Sequence[Evidence]) -> Fact | None:
    """The loss became NaN and stayed so."""
    onsets = [
        (points[start].line, index, rank, points, start)
        for index, rank, points in _series(evidences, "loss")
        if len(points) - (start := _end_of_numbers(points)) >= 2
    ]
    if not onsets:
        return None
    line, index, rank, points, start = min(onsets, key=lambda onset: onset[:2])
    because = f"the loss is not a number from line {line}{_at_step(points[start])} on"
    details = []
    if start:
        before = points[start - 1]
        because += f"; the last finite one was {before.value:g}, on line {before.line}"
        usual = statistics.median(
            p.value for p in points[max(start - 50, 0) : start] if math.isfinite(p.value)
        )
        if start >= 5 and before.value > 10 * abs(usual):
            details.append(f"the loss had risen from a usual {usual:.3g} to {before.value:.3g}")
    else:
        because += ", and no finite one stands before it"
    exploded = gradient_norm_explodes(evidences)
    if exploded is not None and exploded.rank == rank:
        details.append(exploded.because)
    scale = [p for p in evidences[index].points if p.series == "loss_scale" and p.rank == rank]
    if scale:
        last = max((p for p in scale if p.line <= line), key=lambda p: p.line, default=scale[0])
        details.append(f"the loss scale was {last.value:g} then")
    lines = _point_lines(index, points[start:])
    return Fact("", because, rank, lines, details=tuple(details))


def _end_of_numbers(points: Sequence[Point]) -> int:
    """The index behind the last finite point."""
    for index in range(len(points), 0, -1):
        if math.isfinite(points[index - 1].value):
            return index
    return 0


def _at_step(point: Point) -> str:
    return f" (step {point.step})" if point.step is not None else ""


def gradient_norm_explodes(evidences: Sequence[Evidence]) -> Fact | None:
    """The gradient norm rose tenfold and more before it, or the loss, stopped being a number."""
    for index, rank, points in _series(evidences, "grad_norm"):
        onset = _end_of_numbers(points)
        end = points[onset].line if len(points) - onset >= 2 else None
        losses = [p for p in evidences[index].points if p.series == "loss" and p.rank == rank]
        loss_end = _end_of_numbers(losses)
        if len(losses) - loss_end >= 2:
            line = losses[loss_end].line
            end = line if end is None else min(end, line)
        if end is None:
            continue
        before = [p for p in points if p.line <= end and math.isfinite(p.value)]
        if len(before) < 5:
            continue
        usual = statistics.median(p.value for p in before[:-2])
        peak = max(before[-5:], key=lambda p: p.value)
        if usual > 0 and peak.value >= 10 * usual:
            because = (
                f"the gradient norm rose from a usual {usual:.3g} to {peak.value:.3g} on line "
                f"{peak.line}{_at_step(peak)}, before the numbers ended on line {end}"
            )
            return Fact("", because, rank, _point_lines(index, [peak]))
    return None


def step_time_grows(evidences: Sequence[Evidence]) -> Fact | None:
    """The steps, or the epochs, take longer and longer."""
    for name, words in (("step_time", "a step"), ("epoch_time", "an epoch")):
        for index, rank, points in _series(evidences, name):
            if len(points) < 12:
                continue
            # The first step compiles and warms up, a single slow one proves nothing: by quarters.
            size = len(points) // 4
            quarters = [
                statistics.median(p.value for p in points[at : at + size])
                for at in (0, size, 2 * size, len(points) - size)
            ]
            if quarters[0] > 0 and quarters[3] >= 1.5 * quarters[0] and _climbs(quarters):
                because = (
                    f"{words} took {quarters[0]:.3g} s at first and {quarters[3]:.3g} s in the end"
                )
                return Fact("", because, rank, _point_lines(index, points, " s"))
    return None


def _climbs(values: Sequence[float]) -> bool:
    return all(after >= 0.95 * before for before, after in itertools.pairwise(values))


def _named(
    name: str, question: Callable[[Sequence[Evidence]], Fact | None]
) -> Callable[[Sequence[Evidence]], Fact | None]:
    def ask(evidences: Sequence[Evidence]) -> Fact | None:
        fact = question(evidences)
        if fact is None:
            return None
        return replace(fact, name=name)

    return ask


QUESTIONS: dict[str, Callable[[Sequence[Evidence]], Fact | None]] = {
    question.__name__: _named(question.__name__, question)
    for question in (
        dataloader_main_waits_for_stuck_worker,
        main_waits_for_a_batch,
        worker_stands_still_on_a_lock,
        interrupted_while_workers_stood_still,
        interrupted_while_waiting_for_a_batch,
        ranks_wait_in_different_collectives,
        rank_at_work_while_the_others_wait,
        rank_outside_the_collective_others_wait_in,
        ranks_stopped_at_different_batches,
        collective_differs_between_ranks,
        rank_missing_from_collective,
        rank_never_came_to_the_group,
        ranks_read_the_same_samples,
        epochs_repeat_one_order,
        communicator_counts_differ,
        process_called_dead,
        process_gives_no_answer,
        rank_busy_until_the_timeout,
        oom_reserved_memory_would_have_sufficed,
        memory_rises_every_step,
        host_memory_rises,
        autograd_nodes_grow,
        loss_scale_keeps_falling,
        loss_is_nan,
        gradient_norm_explodes,
        step_time_grows,
    )
}

#: The values that a fact can give to a signature's `because`.
FACT_VALUES: dict[str, tuple[str, ...]] = dict.fromkeys(QUESTIONS, ()) | {
    "oom_reserved_memory_would_have_sufficed": ("requested",),
    "rank_at_work_while_the_others_wait": ("doing",),
    "ranks_stopped_at_different_batches": ("source",),
    "collective_differs_between_ranks": ("source",),
    "rank_missing_from_collective": ("source",),
}
