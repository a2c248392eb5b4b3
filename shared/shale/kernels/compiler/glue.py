"""Writes the C source of the extension module: arguments to C numbers, a call, a result to a Python object.

It uses Python's stable interface of 3.11 only, so that one module serves all later versions.  It declares what it
uses of it: Python's headers are not part of every installation of Python, and the interface does not change.
"""

from collections.abc import Sequence

from shale.kernels.compiler.objects import Symbol, TargetCpu

MODULE = "_compiled"
_C_TYPES = {"i64": "int64_t", "u64": "uint64_t", "object": "int64_t", "key": "int64_t, int64_t"}
_PRELUDE = r"""
#include <stddef.h>
#include <stdint.h>

typedef intptr_t Py_ssize_t;
typedef struct _object PyObject;
typedef PyObject *(*PyCFunction)(PyObject *, PyObject *);

typedef struct {
    const char *name;
    PyCFunction function;
    int flags;
    const char *doc;
} PyMethodDef;

typedef struct {
    struct { Py_ssize_t references; void *type; PyObject *(*init)(void); Py_ssize_t index; PyObject *copy; } base;
    const char *name;
    const char *doc;
    Py_ssize_t size;
    PyMethodDef *methods;
    void *slots, *traverse, *clear, *free;
} PyModuleDef;

enum { ABI_VERSION = 3, METH_FASTCALL = 0x80 };

extern PyObject _Py_NoneStruct;
extern PyObject *PyExc_ImportError;
extern PyObject *PyExc_TypeError;
void Py_IncRef(PyObject *);
void Py_DecRef(PyObject *);
void Py_FatalError(const char *);
PyObject *PyBool_FromLong(long);
int PyBytes_AsStringAndSize(PyObject *, char **, Py_ssize_t *);
PyObject *PyBytes_FromStringAndSize(const char *, Py_ssize_t);
PyObject *PyErr_Format(PyObject *, const char *, ...);
PyObject *PyErr_Occurred(void);
void *PyEval_SaveThread(void);
void PyEval_RestoreThread(void *);
long long PyLong_AsLongLong(PyObject *);
unsigned long long PyLong_AsUnsignedLongLong(PyObject *);
PyObject *PyLong_FromLongLong(long long);
PyObject *PyModule_Create2(PyModuleDef *, int);
int PyModule_AddFunctions(PyObject *, PyMethodDef *);
int PyModule_AddStringConstant(PyObject *, const char *, const char *);
PyObject *PyNumber_Index(PyObject *);

static PyObject *none(void) {
    Py_IncRef(&_Py_NoneStruct);
    return &_Py_NoneStruct;
}

/* Numba's code refers to these where a kernel would raise.  Kernels do not raise. */
#define NEVER(name) \
    __attribute__((visibility("hidden"))) void *name(void) { Py_FatalError("a kernel raised: " #name); return NULL; }
NEVER(NRT_Free)
NEVER(numba_do_raise)
NEVER(numba_gil_ensure)
NEVER(numba_gil_release)
NEVER(numba_runtime_build_excinfo_struct)
NEVER(numba_unpickle)

static int to_i64(PyObject *item, int64_t *number) {
    *number = PyLong_AsLongLong(item);
    return *number != -1 || PyErr_Occurred() == NULL;
}

static int to_u64(PyObject *item, uint64_t *number) {
    PyObject *index = PyNumber_Index(item);
    if (index == NULL) return 0;
    *number = PyLong_AsUnsignedLongLong(index);
    Py_DecRef(index);
    return *number != (uint64_t)-1 || PyErr_Occurred() == NULL;
}

static int to_key(PyObject *item, int64_t *address, int64_t *size) {
    char *data;
    Py_ssize_t length;
    if (PyBytes_AsStringAndSize(item, &data, &length) < 0) return 0;
    *address = (int64_t)data;
    *size = length;
    return 1;
}

static PyObject *of_answer(const int64_t *answer) {
    if (answer[0] == -1) return PyBytes_FromStringAndSize((const char *)answer[1], answer[2]);
    if (answer[0] == 0) return none();
    return PyLong_FromLongLong(answer[0]);
}

#ifdef __x86_64__
#include <cpuid.h>

/* Whether this CPU, and the system, have what the variant v3 is compiled for: x86-64-v3 and PCLMULQDQ.  Not all
   linkers have the tables that the compilers' own functions for this need. */
static __attribute__((unused)) int may_run_v3(void) {
    unsigned a, b, c, d, low, high;
    const unsigned first = 1u << 1 | 1u << 12 | 1u << 22 | 1u << 27 | 1u << 28 | 1u << 29;
    const unsigned seventh = 1u << 3 | 1u << 5 | 1u << 8;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & first) != first) return 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & 6) != 6) return 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (b & seventh) != seventh) return 0;
    return __get_cpuid(0x80000001, &a, &b, &c, &d) && (c & 1u << 5);
}
#endif

static PyObject *wrong_count(const char *name, int wanted, Py_ssize_t got) {
    return PyErr_Format(PyExc_TypeError, "%s takes %d arguments, not %zd", name, wanted, got);
}
"""

_RESULTS = {
    "void": "return none();",
    "i64": "return PyLong_FromLongLong(result);",
    "bool": "return PyBool_FromLong(result & 1);",
    "count": "return result < 0 ? NULL : PyLong_FromLongLong(result);",
    "answer": "return of_answer(answer);",
}


def module_source(variants: Sequence[tuple[TargetCpu, Sequence[Symbol]]], digest: str) -> str:
    """Return the C source.

    Args:
        variants: the best one first.  Where not even the last one may run, importing the module fails.
        digest: of the kernel sources; the module has it as ``SOURCE_DIGEST``.
    """
    parts = [_PRELUDE]
    for cpu, symbols in variants:
        parts += [_function(cpu.variant, symbol) for symbol in symbols]
        parts.append(_table(cpu.variant, symbols))
    parts.append(_init([cpu for cpu, _ in variants], digest))
    return "\n".join(parts)


def _function(variant: str, symbol: Symbol) -> str:
    types = [_C_TYPES[parameter] for parameter in symbol.parameters] + ["int64_t"] * (symbol.result == "answer")
    result_type = {"void": "void", "answer": "void", "bool": "int8_t"}.get(symbol.result, "int64_t")
    wanted = len(symbol.parameters)
    lines = [
        f"extern {result_type} {symbol.symbol}({', '.join(types)});",
        f"static PyObject *{variant}_{symbol.name}(PyObject *module, PyObject *const *args, Py_ssize_t count) {{",
        f'    if (count != {wanted}) return wrong_count("{symbol.name}", {wanted}, count);',
    ]
    passed = []
    for place, parameter in enumerate(symbol.parameters):
        declared, convert, names = _argument(place, parameter)
        lines.append(f"    {declared}")
        if convert:
            lines.append(f"    if (!{convert}) return NULL;")
        passed += names
    if symbol.result == "answer":
        lines.append("    int64_t answer[3];")
        passed.append("(int64_t)answer")
    call = f"{symbol.symbol}({', '.join(passed)});"
    if result_type == "void":
        statement = call
    else:
        lines.append(f"    {result_type} result;")
        statement = f"result = {call}"
    if symbol.holds_lock:
        lines.append(f"    {statement}")
    else:
        lines += ["    void *thread = PyEval_SaveThread();", f"    {statement}", "    PyEval_RestoreThread(thread);"]
    return "\n".join([*lines, f"    {_RESULTS[symbol.result]}", "}"])


def _argument(place: int, parameter: str) -> tuple[str, str, list[str]]:
    """Return declaration, conversion and names of one argument."""
    name = f"a{place}"
    if parameter == "object":
        return f"int64_t {name} = (int64_t)args[{place}];", "", [name]
    if parameter == "key":
        return f"int64_t {name}, {name}_size;", f"to_key(args[{place}], &{name}, &{name}_size)", [name, f"{name}_size"]
    return f"{_C_TYPES[parameter]} {name};", f"to_{parameter}(args[{place}], &{name})", [name]


def _table(variant: str, symbols: Sequence[Symbol]) -> str:
    rows = [
        f'    {{"{symbol.name}", (PyCFunction)(void (*)(void)){variant}_{symbol.name}, METH_FASTCALL, NULL}},'
        for symbol in symbols
    ]
    return "\n".join([f"static PyMethodDef {variant}_methods[] = {{", *rows, "    {NULL, NULL, 0, NULL},", "};"])


def _init(cpus: Sequence[TargetCpu], digest: str) -> str:
    chosen = [
        f'    if (may_run_{cpu.variant}()) {{ methods = {cpu.variant}_methods; variant = "{cpu.variant}"; }}'
        for cpu in reversed(cpus[:-1])
    ]
    last = cpus[-1].variant
    if cpus[-1].requires:
        refusal = 'PyErr_Format(PyExc_ImportError, "the kernels were compiled for another CPU")'
        chosen.insert(0, f"    if (!may_run_{last}()) return {refusal};")
    return f"""
static PyModuleDef definition = {{.base = {{.references = 1}}, .name = "{MODULE}", .size = -1}};

__attribute__((visibility("default"))) PyObject *PyInit_{MODULE}(void) {{
    PyMethodDef *methods = {last}_methods;
    const char *variant = "{last}";
{chr(10).join(chosen)}
    PyObject *module = PyModule_Create2(&definition, ABI_VERSION);
    if (module == NULL) return NULL;
    if (PyModule_AddFunctions(module, methods) < 0 ||
        PyModule_AddStringConstant(module, "VARIANT", variant) < 0 ||
        PyModule_AddStringConstant(module, "SOURCE_DIGEST", "{digest}") < 0) {{
        Py_DecRef(module);
        return NULL;
    }}
    return module;
}}
"""
