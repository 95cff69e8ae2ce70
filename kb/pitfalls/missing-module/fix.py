"""Name every absent or old package of a job in one go, before any GPU is taken."""

# part: fixed
from importlib import metadata

REQUIRED = {"torch": (2, 4), "transformers": (4, 44), "einops": (0, 7)}


def find_missing(required: dict[str, tuple[int, ...]]) -> list[str]:
    """One sentence for each package that is absent or older than asked for."""
    problems = []
    for name, minimum in required.items():
        try:
            installed = metadata.version(name)
        except metadata.PackageNotFoundError:
            problems.append(f"{name} is not installed")
            continue
        numbers = tuple(
            int(part) for part in installed.split("+")[0].split(".")[:2] if part.isdigit()
        )
        if numbers < minimum:
            problems.append(f"{name} {installed} is older than {'.'.join(map(str, minimum))}")
    return problems


if problems := find_missing(REQUIRED):
    raise SystemExit("\n".join(problems))
# end: fixed
