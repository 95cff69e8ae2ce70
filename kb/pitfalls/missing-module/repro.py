"""Code for torch 1.x asks for a module that torch 2.0 no longer has."""

import sys


# part: fixed
def string_types() -> tuple[type, ...]:
    """The types of texts, from wherever the installed torch keeps them."""
    try:
        from torch._six import string_classes  # torch < 2.0
    except ImportError:
        return (str, bytes)
    return string_classes if isinstance(string_classes, tuple) else (string_classes,)


# end: fixed


def string_types_of_torch_1():
    from torch._six import string_classes

    return string_classes


if __name__ == "__main__":
    types = string_types() if "--fixed" in sys.argv else string_types_of_torch_1()
    print(f"a path is {'one' if isinstance('train.csv', types) else 'none'} of {types}")
    print("ran to its end")
