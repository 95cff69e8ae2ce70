"""A C module asks for NumPy's interface in the way that NumPy 1's headers compiled it."""

import subprocess
import sys
import sysconfig
from pathlib import Path

# What import_array() of NumPy 1.26 comes down to; the module is otherwise the same in both builds.
HEADERS_OF_NUMPY_1 = """
static int _import_array(void) {
  PyObject* module = PyImport_ImportModule("numpy.core._multiarray_umath");
  PyObject* api = module ? PyObject_GetAttrString(module, "_ARRAY_API") : NULL;
  Py_XDECREF(module);
  return api ? 0 : -1;
}
"""
SOURCE = """
#include <Python.h>
#include <numpy/arrayobject.h>
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "windows", 0, -1, 0};
PyMODINIT_FUNC PyInit_windows(void) {
  return _import_array() < 0 ? NULL : PyModule_Create(&definition);
}
"""

# part: fixed
import numpy as np


def build(source: Path, library: Path, headers: str = np.get_include()) -> None:
    """Compile a C module against the headers of the NumPy that is installed here."""
    include = [f"-I{headers}", f"-I{sysconfig.get_path('include')}"]
    subprocess.run(["gcc", "-shared", "-fPIC", *include, source, "-o", library], check=True)


# end: fixed

source, library, old = Path("windows.c"), Path("windows.so"), Path("numpy-1/numpy/arrayobject.h")
source.write_text(SOURCE)
old.parent.mkdir(parents=True)
old.write_text(HEADERS_OF_NUMPY_1)
build(source, library, str(old.parent.parent))
if "--fixed" in sys.argv:
    build(source, library)
sys.path.insert(0, ".")
import windows

print(f"imported {windows.__name__} under NumPy {np.__version__}")
print("ran to its end")
