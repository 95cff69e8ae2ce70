"""A native decoder reads through a bad pointer on one of its inputs."""

import ctypes
import sys

import torch


def decode(number):
    if number == 3:
        ctypes.string_at(1, 4)  # what a decoder does with a broken file
    return torch.tensor(number)


# part: fixed
import multiprocessing
from collections.abc import Callable
from typing import Any


def survives(function: Callable[..., Any], *arguments: Any) -> bool:
    """Whether the native code behind `function` comes back at all; tried in a child process.

    Call it when the data set is built, before the process has used CUDA: the child is forked.
    """
    child = multiprocessing.get_context("fork").Process(target=function, args=arguments)
    child.start()
    child.join()
    return child.exitcode >= 0  # below 0: the signal that ended it


# end: fixed

if __name__ == "__main__":
    inputs = range(8)
    if "--fixed" in sys.argv:
        usable = [number for number in inputs if survives(decode, number)]
        print(f"left out: {sorted(set(inputs) - set(usable))}")
        inputs = usable
    print(f"sum {sum(decode(number) for number in inputs)}")
    print("ran to its end")
