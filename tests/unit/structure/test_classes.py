"""Limits for the sizes of classes and functions, and one class per name."""

import ast
from collections import defaultdict

from tests.unit.structure import ratchet
from tests.unit.structure.source_tree import Module, code

PUBLIC_METHODS_MAX = 18
PARAMETERS_MAX = 7


def public_methods(node: ast.ClassDef) -> set[str]:
    """The names of the public methods and properties that the class body defines."""
    functions = (child for child in node.body if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))
    return {child.name for child in functions if not child.name.startswith("_")}


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count the parameters, ``self`` and ``cls`` aside."""
    names = [each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


COMPILED = {"helper", "inlined", "kernel", "njit"}
COMMANDS = ("services/shale_cli/commands/", "services/shale_spark/cli/")


def _is_kernel(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Kernels take arrays and numbers one by one: numba compiles no argument objects."""
    names = {ast.unparse(each).partition("(")[0].rpartition(".")[2] for each in node.decorator_list}
    return not names.isdisjoint(COMPILED)


def _is_command(module: Module, name: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Commands declare one parameter per flag: typer calls them with the context first."""
    arguments = node.args.args
    takes_context = bool(arguments) and arguments[0].annotation is not None
    return (
        module.path.startswith(COMMANDS)
        and "." not in name
        and takes_context
        and ast.unparse(arguments[0].annotation).strip("'\"") == "typer.Context"
    )


def classes_with_too_many_public_methods() -> dict[str, int]:
    """Count the public methods of each class that is no mirror."""
    return {
        f"{module.path}::{node.name}": len(public_methods(node))
        for module in code()
        if not module.is_mirror
        for node in module.classes()
        if len(public_methods(node)) > PUBLIC_METHODS_MAX
    }


def functions_with_too_many_parameters() -> dict[str, int]:
    """Count the parameters of each function that is no mirror, no kernel and no command."""
    return {
        f"{module.path}::{name}": parameters(node)
        for module in code()
        if not module.is_mirror
        for name, node in module.functions()
        if parameters(node) > PARAMETERS_MAX and not _is_kernel(node) and not _is_command(module, name, node)
    }


def class_names_in_several_modules() -> dict[str, int]:
    """Count the modules that define a class of the same name at their top level."""
    places = defaultdict(list)
    for module in code():
        if not module.is_mirror:
            for node in module.tree.body:
                if isinstance(node, ast.ClassDef):
                    places[node.name].append(module.path)
    return {name: len(paths) for name, paths in places.items() if len(paths) > 1}


RULES = {
    "public methods": classes_with_too_many_public_methods,
    "parameters": functions_with_too_many_parameters,
    "class names": class_names_in_several_modules,
}


def test_no_class_has_more_than_18_public_methods() -> None:
    ratchet.check("public methods", classes_with_too_many_public_methods())


def test_no_function_has_more_than_7_parameters() -> None:
    ratchet.check("parameters", functions_with_too_many_parameters())


def test_every_class_name_is_used_once() -> None:
    ratchet.check("class names", class_names_in_several_modules())
