"""A C++ extension includes a header that lies in a folder the compiler does not search."""

import sys
from pathlib import Path

SOURCE = """
#include <Python.h>
#include <tables.h>
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "lookup", 0, -1, 0};
PyMODINIT_FUNC PyInit_lookup(void) {
  PyObject* module = PyModule_Create(&definition);
  PyModule_AddIntConstant(module, "rows", TABLE_ROWS);
  return module;
}
"""

headers = Path("third_party/include").absolute()
headers.mkdir(parents=True)
(headers / "tables.h").write_text("#define TABLE_ROWS 64\n")
source = Path("lookup.cpp").absolute()
source.write_text(SOURCE)

# part: fixed
from types import ModuleType

from torch.utils.cpp_extension import load


def build(name: str, source: Path, include: Path) -> ModuleType:
    """Compile and import `source`, whose own headers lie in the folder `include`."""
    if not any(include.rglob("*.h")):
        raise SystemExit(f"no headers in {include}: is the development package installed?")
    return load(name, [str(source)], extra_include_paths=[str(include)])


# end: fixed

if "--fixed" in sys.argv:
    module = build("lookup", source, headers)
else:
    module = load("lookup", [str(source)])
print(f"{module.rows} rows")
print("ran to its end")
