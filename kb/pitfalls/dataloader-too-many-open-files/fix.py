"""Allow more descriptors."""

# part: limit
import resource


def raise_open_files_limit(wanted: int = 65536) -> int:
    """Lift the soft limit of open files, as far as the hard limit allows; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < target:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


raise_open_files_limit()  # before the first DataLoader: workers inherit it
# end: limit
