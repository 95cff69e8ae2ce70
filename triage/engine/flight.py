"""Compares the flight-recorder dumps of a job's ranks, one process group at a time."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from triage.engine.evidence import FlightDump, FlightEntry, FlightGroup

_MAX_MISMATCHES = 200
_UNLIKE_KINDS = ("members", "type", "input-size", "output-size", "dtype", "pair-size")


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One difference between the ranks of a process group.

    `kind` is "type", "input-size", "output-size", "dtype" (the ranks made unlike calls at one
    number), "missing" (the rest wait for `ranks`), "extra" (only `ranks` made the call), "state"
    (`ranks` are behind in a call that others have started or completed), "unpaired" (a send
    without its receive or the reverse), "pair-size" (both are there, of unlike sizes) or "members"
    (the ranks hold one group for unlike sets of ranks; `seq` is 0).
    `culprit` is None where the dumps do not decide between the sides. `waits_elsewhere` says that
    the missing ranks hang in another group, so that their absence is a consequence.
    `is_next_round` says that the missing ranks had made this call in every round of a loop and
    began no further round. `lines` are (number of the dump, what it shows of the call).
    """

    kind: str
    group: str
    seq: int
    ranks: tuple[int, ...]
    others: tuple[int, ...]
    sentence: str
    culprit: int | None = None
    waits_elsewhere: bool = False
    is_next_round: bool = False
    lines: tuple[tuple[int, str], ...] = ()

    @property
    def is_unlike_call(self) -> bool:
        """Whether both sides made a call, or a group, and the two do not fit each other."""
        return self.kind in _UNLIKE_KINDS


@dataclass(frozen=True, slots=True)
class _Member:
    """A rank's view of one group; ranks that no name tells are numbered -1, -2 and so on."""

    rank: int
    index: int
    group: FlightGroup
    knows_all: bool

    @property
    def first_open(self) -> FlightEntry | None:
        return next((e for e in self.group.entries if e.state != "completed"), None)

    def at(self, seq: int) -> list[FlightEntry]:
        return [e for e in self.group.entries if e.seq == seq and not e.is_p2p]


@dataclass(frozen=True, slots=True)
class _Group:
    title: str
    members: Mapping[int, _Member]
    ranks: tuple[int, ...]


def compare(dumps: Sequence[FlightDump]) -> list[Mismatch]:
    """Every mismatch, earliest first; absences that another group's hang explains come last.

    Ranks without a dump are not judged. Of two dumps of one rank the first counts.
    """
    groups = _groups(dumps)
    open_elsewhere = _open_calls(groups)
    found: list[tuple[tuple[int, int, int], Mismatch]] = []
    for number, group in enumerate(groups):
        parts = itertools.chain(
            _unlike_calls(group), _absences(group, open_elsewhere), _pairs(group)
        )
        for created_ns, mismatch in itertools.islice(parts, _MAX_MISMATCHES):
            order = (int(mismatch.waits_elsewhere), created_ns, number)
            found.append((order, mismatch))
    for number, mismatch in enumerate(itertools.islice(_memberships(groups), _MAX_MISMATCHES)):
        found.append(((0, -1, number), mismatch))
    found.sort(key=lambda item: item[0])
    return [mismatch for _, mismatch in found][:_MAX_MISMATCHES]


def ranks_without_dump(dumps: Sequence[FlightDump]) -> tuple[int, ...]:
    """Members of the dumps' process groups of whom there is no dump."""
    known = {dump.rank for dump in dumps}
    expected = {rank for dump in dumps for group in dump.groups for rank in group.ranks}
    if any(dump.rank is None for dump in dumps) and len(expected) <= len(dumps):
        return ()
    return tuple(sorted(expected - known))


def standing(dumps: Sequence[FlightDump]) -> list[str]:
    """Sentences that say where the ranks stand, for dumps that show no mismatch of calls."""
    sentences = []
    for group in _groups(dumps):
        waiting: dict[tuple[int, str], list[_Member]] = defaultdict(list)
        for member in group.members.values():
            if (entry := member.first_open) is not None:
                waiting[(entry.seq, entry.op)].append(member)
        for _, members in sorted(waiting.items(), key=lambda item: item[0])[:4]:
            entry = next(e for m in members for e in (m.first_open,) if e is not None)
            done = min(m.group.last_completed for m in members)
            verb = "waits" if len(members) == 1 else "wait"
            sentences.append(
                f"{names(m.rank for m in members)} {verb} in {_numbered(entry, group)}"
                f"{_called(entry)}; completed up to {done}"
            )
            if len(members) == len(group.ranks) > 1 and len(waiting) == 1:
                sentences.append(
                    f"all {len(members)} ranks of {group.title} are in this call and their calls "
                    "agree: what holds it up is not the order of the calls"
                )
    return sentences


def has_open_call(dump: FlightDump) -> bool:
    """Whether the rank had enqueued anything that was not completed when it was dumped."""
    return any(e.state != "completed" for group in dump.groups for e in group.entries)


def ask_for(ranks: Sequence[int]) -> str:
    """The sentence about ranks without a dump."""
    return f"no dump from {names(ranks)}: nothing is known of what {_they(ranks)} did"


# ------------------------------------------------------------------------------------ groups


def _groups(dumps: Sequence[FlightDump]) -> list[_Group]:
    """Process groups in the order of the dumps.

    Groups that share a name and differ in members are several: split_group names all alike.
    """
    by_key: dict[tuple[str, str, tuple[int, ...]], dict[int, _Member]] = {}
    views = [(index, dump, group) for index, dump in enumerate(dumps) for group in dump.groups]
    for index, dump, group in sorted(views, key=lambda view: not view[2].ranks):
        rank = dump.rank if dump.rank is not None else -1 - index
        if rank >= 0 and group.ranks and rank not in group.ranks and not group.entries:
            continue
        key = (group.name, group.desc, group.ranks)
        if not group.ranks:
            key = next((k for k in by_key if k[:2] == key[:2]), key)
        known = not dump.is_cut or bool(group.entries) or group.last_enqueued > 0
        by_key.setdefault(key, {}).setdefault(rank, _Member(rank, index, group, known))
    return [
        _Group(_title(name, desc), members, ranks or tuple(sorted(members)))
        for (name, desc, ranks), members in by_key.items()
    ]


def _title(name: str, desc: str) -> str:
    if desc and desc != name:
        return desc if desc == "default_pg" or not name else f"{desc} ({name})"
    return f"group {name}" if name else _UNNAMED_GROUP


_UNNAMED_GROUP = "the group"


def _open_calls(groups: Sequence[_Group]) -> dict[int, list[tuple[_Group, FlightEntry]]]:
    calls: dict[int, list[tuple[_Group, FlightEntry]]] = defaultdict(list)
    for group in groups:
        for member in group.members.values():
            if (entry := member.first_open) is not None:
                calls[member.rank].append((group, entry))
    return calls


# ------------------------------------------------------------------------ unlike memberships


def _memberships(groups: Sequence[_Group]) -> Iterator[Mismatch]:
    """Groups that the ranks know by one name, and each for other members that overlap."""
    for one, other in itertools.combinations(groups, 2):
        if one.title != other.title or one.title == _UNNAMED_GROUP:
            continue
        # Disjoint groups of one name are parts of one split.
        if not (set(one.members) & set(other.ranks) or set(other.members) & set(one.ranks)):
            continue
        usual, odd = sorted((one, other), key=lambda g: (-len(g.members), min(g.members)))
        sides = [(names(g.members), names(g.ranks)) for g in (odd, usual)]
        sentence = f"{one.title} is not one group: " + ", ".join(
            f"for {ranks} it holds {held}" for ranks, held in sides
        )
        ranks, others = tuple(sorted(odd.members)), tuple(sorted(usual.members))
        lines = tuple(
            (g.members[rank].index, f"{_name(rank)}: {g.title} holds {names(g.ranks)}")
            for g in (odd, usual)
            for rank in sorted(g.members)[:2]
        )
        is_clear = len(ranks) == 1 < len(others) and ranks[0] >= 0
        yield Mismatch(
            "members", one.title, 0, ranks, others, sentence,
            culprit=ranks[0] if is_clear else None, lines=lines,
        )  # fmt: skip


# ------------------------------------------------------------------ unlike calls at one number


def _unlike_calls(group: _Group) -> Iterator[tuple[int, Mismatch]]:
    numbers = {e.seq for m in group.members.values() for e in m.group.entries if not e.is_p2p}
    for seq in sorted(numbers):
        calls = {rank: member.at(seq) for rank, member in group.members.items()}
        calls = {rank: entries for rank, entries in calls.items() if entries}
        if len(calls) < 2:
            continue
        # Coalesced calls share one number; they are compared in their order.
        for step in range(min(max(map(len, calls.values())), 64)):
            same_step = {r: entries[step] for r, entries in calls.items() if step < len(entries)}
            if len(same_step) < 2:
                continue
            mismatch = _compare_calls(group, seq, same_step)
            if mismatch is not None:
                yield min(e.created_ns or 0 for e in same_step.values()), mismatch
                break


def _compare_calls(group: _Group, seq: int, calls: Mapping[int, FlightEntry]) -> Mismatch | None:
    questions: tuple[tuple[str, Callable[[FlightEntry], Hashable]], ...] = (
        ("type", lambda e: e.op),
        ("input-size", _comparable_input),
        ("output-size", _comparable_output),
        ("dtype", _comparable_dtype),
        ("state", lambda e: e.state),
    )
    for kind, question in questions:
        if kind == "state":
            totals = _exchange_differs(group, seq, calls)
            if totals is not None:
                return totals
        answers: dict[Hashable, list[int]] = defaultdict(list)
        for rank, entry in calls.items():
            answer = question(entry)
            if answer is not None:
                answers[answer].append(rank)
        if len(answers) > 1:
            if kind == "state":
                return _state(group, seq, calls, answers)
            return _unlike(kind, group, seq, calls, answers)
    return None


def _plain_op(entry: FlightEntry) -> str:
    return entry.op.lower().replace("_", "")


def _comparable_input(entry: FlightEntry) -> Hashable:
    """What must be the same on all ranks; None where a rank's share may be its own."""
    op = _plain_op(entry)
    if op.startswith(("alltoall", "scatter", "broadcastoop")) or "barrier" in op:
        return None
    if op.startswith("allgather") and len(set(entry.outputs)) > 1:
        return None
    return entry.numel_in


def _comparable_output(entry: FlightEntry) -> Hashable:
    op = _plain_op(entry)
    if op.startswith(("alltoall", "gather", "reduceoop")) or "barrier" in op:
        return None
    if op.startswith("reducescatter") and len(set(entry.inputs)) > 1:
        return None
    return entry.numel_out


def _comparable_dtype(entry: FlightEntry) -> Hashable:
    op = _plain_op(entry)
    if "barrier" in op:
        return None
    # The side that only the root fills is empty elsewhere.
    dtype = entry.dtype_out if op.startswith(("scatter", "broadcast")) else entry.dtype_in
    return dtype or None


def _exchange_differs(group: _Group, seq: int, calls: Mapping[int, FlightEntry]) -> Mismatch | None:
    """An all-to-all in which the ranks together send more, or less, than they expect."""
    if len(calls) < len(group.ranks) or not all(
        _plain_op(e).startswith("alltoall") for e in calls.values()
    ):
        return None
    sent = sum(e.numel_in for e in calls.values())
    expected = sum(e.numel_out for e in calls.values())
    # Before torch 2.4 the sizes of an all-to-all were not recorded.
    if sent == expected or not sent or not expected:
        return None
    first = next(iter(calls.values()))
    sentence = (
        f"{first.op} {seq} of {group.title} does not add up: the ranks send {sent} elements and "
        f"expect {expected}{_called(first)}"
    )
    ranks = tuple(sorted(calls))
    return Mismatch("input-size", group.title, seq, ranks, (), sentence, lines=_lines(group, calls))


_WORDS = {
    "type": "differs in its kind",
    "input-size": "differs in the size of its input",
    "output-size": "differs in the size of its output",
    "dtype": "differs in its data type",
}


def _unlike(
    kind: str,
    group: _Group,
    seq: int,
    calls: Mapping[int, FlightEntry],
    answers: Mapping[Hashable, Sequence[int]],
) -> Mismatch:
    # The larger side is taken as the usual one; between equal ones, that of the lowest rank.
    sides = sorted(answers.values(), key=lambda ranks: (-len(ranks), min(ranks)))
    usual, odd = sorted(sides[0]), sorted(itertools.chain.from_iterable(sides[1:]))
    told = "; ".join(
        f"{names(side)} called {_call(calls[min(side)], kind)}" for side in [*sides[1:4], usual]
    )
    sentence = f"call {seq} of {group.title} {_WORDS[kind]}: {told}"
    return Mismatch(
        kind,
        group.title,
        seq,
        tuple(odd),
        tuple(usual),
        sentence,
        culprit=odd[0] if len(odd) < len(usual) and odd[0] >= 0 else None,
        lines=_lines(group, {rank: calls[rank] for rank in (*odd[:4], usual[0])}),
    )


_PROGRESS = {"scheduled": 0, "started": 1, "completed": 2}


def _state(
    group: _Group,
    seq: int,
    calls: Mapping[int, FlightEntry],
    answers: Mapping[Hashable, Sequence[int]],
) -> Mismatch:
    states = sorted(answers, key=lambda state: _PROGRESS.get(str(state), 0))
    behind, ahead = sorted(answers[states[0]]), sorted(answers[states[-1]])
    first = calls[behind[0]]
    means = {
        "scheduled": "not started (its GPU is still in what was enqueued before)",
        "started": "started and not completed",
    }.get(str(states[0]), f"is {states[0]} in")
    sentence = (
        f"{names(behind)} {'has' if len(behind) == 1 else 'have'} {means} "
        f"{_numbered(first, group)}, which {names(ahead)} "
        f"{'has' if len(ahead) == 1 else 'have'} {states[-1]}{_called(first)}"
    )
    culprit = behind[0] if len(behind) < len(ahead) and behind[0] >= 0 else None
    shown = {rank: calls[rank] for rank in (*behind[:4], ahead[0])}
    return Mismatch(
        "state", group.title, seq, tuple(behind), tuple(ahead), sentence, culprit,
        lines=_lines(group, shown),
    )  # fmt: skip


# --------------------------------------------------------------------------------- absences


def _absences(
    group: _Group, open_calls: Mapping[int, Sequence[tuple[_Group, FlightEntry]]]
) -> Iterator[tuple[int, Mismatch]]:
    """Ranks that enqueued nothing more while others of their group wait."""
    members = [m for m in group.members.values() if m.knows_all]
    absent: dict[int, list[_Member]] = defaultdict(list)
    furthest = max((m.group.last_enqueued for m in members), default=0)
    for member in members:
        is_waiting = any(e.state != "completed" and not e.is_p2p for e in member.group.entries)
        if member.group.last_enqueued < furthest and not is_waiting:
            absent[member.group.last_enqueued + 1].append(member)
    for seq, missing in sorted(absent.items()):
        waiting = [m for m in members if m.group.last_enqueued >= seq and m.first_open is not None]
        if not waiting:
            continue
        yield _absence(group, seq, missing, waiting, open_calls)


def _absence(
    group: _Group,
    seq: int,
    missing: Sequence[_Member],
    waiting: Sequence[_Member],
    open_calls: Mapping[int, Sequence[tuple[_Group, FlightEntry]]],
) -> tuple[int, Mismatch]:
    gone, there = sorted(m.rank for m in missing), sorted(m.rank for m in waiting)
    entry = next((e for m in waiting for e in m.at(seq)), None) or waiting[0].first_open
    assert entry is not None
    call = _numbered(entry, group)
    elsewhere = [
        (rank, other, e) for rank in gone for other, e in open_calls.get(rank, ()) if other != group
    ]
    told = [_last_words(member) for member in missing[:3]]
    is_extra = len(there) < len(gone)
    if is_extra:
        sentence = (
            f"only {names(there)} called {call}{_called(entry)}; {names(gone)} never did: "
            + "; ".join(told)
        )
    else:
        verb = "waits" if len(there) == 1 else "wait"
        sentence = (
            f"{names(gone)} never called {call}, in which {names(there)} {verb}"
            f"{_called(entry)}: " + "; ".join(told)
        )
    for rank, other, e in elsewhere[:1]:
        sentence += f"; rank {rank} waits in {_numbered(e, other)}{_called(e)}"
    rounds = min((_rounds(member, entry, seq) for member in missing), default=0)
    if rounds:
        sentence += f"; it had made this call in {rounds} rounds of a loop and began no other"
    odd, rest = (there, gone) if is_extra else (gone, there)
    shown: dict[int, FlightEntry] = {
        m.rank: m.group.entries[-1] for m in missing[:4] if m.group.entries
    }
    shown[waiting[0].rank] = entry
    is_known = odd[0] >= 0 and not elsewhere
    return entry.created_ns or 0, Mismatch(
        kind="extra" if is_extra else "missing",
        group=group.title,
        seq=seq,
        ranks=tuple(odd),
        others=tuple(rest),
        sentence=sentence,
        culprit=odd[0] if is_known else None,
        waits_elsewhere=bool(elsewhere) and not is_extra,
        is_next_round=rounds > 0 and not elsewhere,
        lines=_lines(group, shown),
    )


def _last_words(member: _Member) -> str:
    collectives = [e for e in member.group.entries if not e.is_p2p]
    if not collectives:
        if member.group.last_enqueued:
            return f"{_name(member.rank)} enqueued up to {member.group.last_enqueued}"
        return f"{_name(member.rank)} enqueued nothing in this group"
    last = collectives[-1]
    return (
        f"the last call of {_name(member.rank)} was {_numbered(last)}, {last.state}{_called(last)}"
    )


def _rounds(member: _Member, entry: FlightEntry, seq: int) -> int:
    """How often the rank made this call at one distance, if the next was due at `seq`; or 0."""
    earlier = [e.seq for e in member.group.entries if not e.is_p2p and _is_same_call(e, entry)]
    if len(earlier) < 3:
        return 0
    distance = earlier[-1] - earlier[-2]
    if distance <= 0 or earlier[-2] - earlier[-3] != distance or seq - earlier[-1] != distance:
        return 0
    rounds = 1
    for before, after in itertools.pairwise(reversed(earlier)):
        if before - after != distance:
            break
        rounds += 1
    return rounds


def _is_same_call(one: FlightEntry, other: FlightEntry) -> bool:
    sites = [frame.path + f":{frame.line}" for e in (one, other) for frame in e.frames]
    same_site = one.frames == other.frames or not sites or not (one.frames and other.frames)
    return (
        same_site
        and one.op == other.op
        and (one.numel_in, one.numel_out) == (other.numel_in, other.numel_out)
    )


# ----------------------------------------------------------------------- sends and receives


def _pairs(group: _Group) -> Iterator[tuple[int, Mismatch]]:
    """Each send against its receive, in the order in which the two ranks enqueued them."""
    sends: dict[tuple[int, int], list[FlightEntry]] = defaultdict(list)
    receives: dict[tuple[int, int], list[FlightEntry]] = defaultdict(list)
    ranks = sorted(group.ranks)
    for rank, member in group.members.items():
        for entry in member.group.entries:
            if entry.source is None or entry.destination is None:
                continue
            if max(entry.source, entry.destination) >= len(ranks):
                continue
            pair = (ranks[entry.source], ranks[entry.destination])
            if entry.op == "send" and pair[0] == rank:
                sends[pair].append(entry)
            elif entry.op == "recv" and pair[1] == rank:
                receives[pair].append(entry)
    for pair in sorted({*sends, *receives}):
        ends = [group.members.get(rank) for rank in pair]
        if any(end is None or not end.knows_all for end in ends):
            continue
        sent, received = sends[pair], receives[pair]
        if any(end is not None and end.group.is_cut for end in ends):
            # Where the first ones are lost, only what is still open can be set side by side.
            sent = [e for e in sent if e.state != "completed"]
            received = [e for e in received if e.state != "completed"]
        for send, receive in itertools.zip_longest(sent, received):
            if send is not None and receive is not None:
                if send.numel_in == receive.numel_out or not (send.inputs and receive.outputs):
                    continue
                yield send.created_ns or 0, _pair_size(group, pair, send, receive)
            else:
                yield _unpaired(group, pair, send, receive)


def _pair_size(
    group: _Group, pair: tuple[int, int], send: FlightEntry, receive: FlightEntry
) -> Mismatch:
    sentence = (
        f"{_name(pair[0])} sends {_shape(send.inputs, send.numel_in)}{_called(send)} to "
        f"{_name(pair[1])} in {group.title}, which receives "
        f"{_shape(receive.outputs, receive.numel_out)}{_called(receive)}"
    )
    lines = _lines(group, {pair[0]: send, pair[1]: receive})
    return Mismatch(
        "pair-size", group.title, send.seq, (pair[0],), (pair[1],), sentence, lines=lines
    )


def _unpaired(
    group: _Group, pair: tuple[int, int], send: FlightEntry | None, receive: FlightEntry | None
) -> tuple[int, Mismatch]:
    entry = send or receive
    assert entry is not None
    here, there = pair if send is not None else pair[::-1]
    does, counterpart = ("send to", "receive") if send is not None else ("receive from", "send")
    sentence = (
        f"{_name(here)} called {_numbered(entry, group)} to {does} {_name(there)}"
        f"{_called(entry)}, {entry.state}; {_name(there)} never enqueued "
        f"the {counterpart}"
    )
    lines = _lines(group, {here: entry})
    return entry.created_ns or 0, Mismatch(
        "unpaired", group.title, entry.seq, (there,), (here,), sentence, lines=lines
    )


# ------------------------------------------------------------------------------------ words


def _name(rank: int) -> str:
    return f"rank {rank}" if rank >= 0 else f"the {-rank}. dump"


def names(ranks: Iterable[int]) -> str:
    """`rank 3`, `ranks 0 and 2`, `ranks 0 to 6`; at least one rank is given."""
    ordered = sorted(set(ranks))
    if len(ordered) == 1:
        return _name(ordered[0])
    if ordered[0] < 0:
        return " and ".join(_name(rank) for rank in ordered[:4])
    runs: list[str] = []
    for _, run in itertools.groupby(enumerate(ordered), key=lambda item: item[1] - item[0]):
        numbers = [number for _, number in run]
        if len(numbers) > 2:
            runs.append(f"{numbers[0]} to {numbers[-1]}")
        else:
            runs.extend(map(str, numbers))
    if len(runs) > 8:
        runs = [*runs[:7], f"{len(ordered)} in all"]
    head = ", ".join(runs[:-1])
    return f"ranks {head} and {runs[-1]}" if head else f"ranks {runs[-1]}"


def _they(ranks: Sequence[int]) -> str:
    return "it" if len(ranks) == 1 else "they"


def _shape(sizes: Sequence[tuple[int, ...]], numel: int) -> str:
    shown = ", ".join(str(list(size)) for size in sizes[:3])
    if len(sizes) > 3:
        shown += f" and more, {numel} elements"
    return shown or "nothing"


def _of_size(entry: FlightEntry) -> str:
    sizes, numel, dtype = entry.inputs, entry.numel_in, entry.dtype_in
    if not sizes:
        sizes, numel, dtype = entry.outputs, entry.numel_out, entry.dtype_out
    if not sizes:
        return ""
    return f" of {_shape(sizes, numel)}" + (f" {dtype}" if dtype else "")


def _numbered(entry: FlightEntry, group: _Group | None = None) -> str:
    """`all_reduce 7 ([8] Float) of default_pg`."""
    size = _of_size(entry).removeprefix(" of ")
    within = f" of {group.title}" if group is not None else ""
    return f"{entry.op} {entry.seq}" + (f" ({size})" if size else "") + within


def _call(entry: FlightEntry, kind: str) -> str:
    if kind == "output-size":
        return f"{entry.op} into {_shape(entry.outputs, entry.numel_out)}{_called(entry)}"
    return f"{entry.op}{_of_size(entry)}{_called(entry)}"


def _called(entry: FlightEntry) -> str:
    frame = entry.call_site
    if frame is None:
        return ""
    where = f"{frame.path}:{frame.line}" if frame.line else frame.path
    return f" at {where} ({frame.function or 'the module'})"


def _lines(group: _Group, calls: Mapping[int, FlightEntry]) -> tuple[tuple[int, str], ...]:
    return tuple(
        (
            group.members[rank].index,
            f"{_name(rank)}: {_numbered(e, group)}, {e.state}{_called(e)}",
        )
        for rank, e in calls.items()
        if rank in group.members
    )
