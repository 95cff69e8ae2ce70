"""An operator library was built with the other C++ string ABI than the installed torch."""

import subprocess
import sys
from pathlib import Path

SOURCE = """
#include <cstdint>
#include <string>
namespace c10::detail {  // as c10/util/Exception.h declares it
void torchCheckFail(const char*, const char*, uint32_t, const std::string&);
}
extern "C" void check_rows(int rows) {
  if (rows < 1) c10::detail::torchCheckFail("check_rows", "rows.cpp", 9, std::string("no rows"));
}
"""

# part: fixed
import torch
from torch.utils.cpp_extension import library_paths


def build(source: Path, library: Path) -> None:
    """Compile `source` with the string ABI, and against the libraries, of the installed torch."""
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    search = [f"-L{folder}" for folder in library_paths()]
    command = ["g++", "-shared", "-fPIC", "-std=c++17", abi, str(source), "-o", str(library)]
    subprocess.run([*command, *search, "-lc10"], check=True)


# end: fixed


def build_as_shipped(source, library):
    old = f"-D_GLIBCXX_USE_CXX11_ABI={int(not torch.compiled_with_cxx11_abi())}"
    command = ["g++", "-shared", "-fPIC", "-std=c++17", old, str(source), "-o", str(library)]
    subprocess.run(command, check=True)


source, library = Path("rows.cpp"), Path("rows_ops.so").absolute()
source.write_text(SOURCE)
build_as_shipped(source, library)
if "--fixed" in sys.argv:
    build(source, library)
torch.ops.load_library(library)
print(f"loaded {library.name}")
print("ran to its end")
