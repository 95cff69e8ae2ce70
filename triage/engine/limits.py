"""How much of a text the engine reads and keeps; every bound has its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one scan; the defaults keep a scan under 100 MiB whatever the text.

    Sizes are bytes, counts are items.
    """

    # A terminal line is under 1 KiB, a config dump under 20 KiB; what is longer is not a message.
    max_line_bytes: int = 64 * 1024
    # Start and end of a text are read line by line: settings stand at one, the end of the run at
    # the other. A text shorter than both together is read line by line as a whole.
    head_bytes: int = 64 * 1024
    tail_bytes: int = 192 * 1024
    # Lines around a hit that are read line by line, elsewhere in a long text.
    lines_before_hit: int = 3
    lines_after_hit: int = 60
    # A log with that many windows has shown how it fails; further ones end with their traceback.
    full_windows: int = 12
    lines_after_later_hit: int = 10
    # With that many, only the first hits of a pattern open further ones; the rest is a line each.
    max_windows: int = 60
    windows_always: int = 2
    # Hits of one pattern that open such a window; later ones are only noted, then only counted.
    windows_per_pattern: int = 40
    hits_per_pattern: int = 60
    # A traceback of 100,000 frames is an endless recursion: both ends tell it.
    max_frames: int = 64
    max_tracebacks: int = 200
    max_stack_threads: int = 20_000
    max_collectives: int = 8_192
    max_exits: int = 512
    max_progress: int = 4_000
    # Eight series of 16 ranks still have some 30 points each.
    max_points: int = 4_000
    # Lines of each rank that are kept as its last ones: what it was doing, behind what it printed
    # when it was ended.
    last_lines: int = 5
    # Text kept of one line.
    max_text_chars: int = 2_000
    max_evidence_bytes: int = 2 * 1024 * 1024
