"""Finds what keeps a dataset from a spawned worker."""

import pickle


# part: search
def unpicklable_attributes(thing: object) -> dict[str, str]:
    """Names of the attributes that pickle refuses, with its reason."""
    state = thing.__getstate__() if hasattr(thing, "__getstate__") else vars(thing)
    refused = {}
    for name, value in (state or {}).items():
        try:
            pickle.dumps(value)
        except Exception as error:
            refused[name] = f"{type(error).__name__}: {error}"
    return refused


# end: search
