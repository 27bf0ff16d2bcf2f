"""What the package names in public is documented and annotated."""

import importlib
import inspect

import pytest
import torch

import ropewalk

MODULES = ["ropewalk", "ropewalk.torch", "ropewalk.nn", "ropewalk.transformers", "ropewalk.engine", "ropewalk.vllm", "ropewalk.zoo"]
NAMES = [(module, name) for module in MODULES for name in importlib.import_module(module).__all__]


def ours(thing):
    return str(getattr(thing, "__module__", "")).startswith("ropewalk") and not isinstance(thing, type(ropewalk.num_cores))


def members(owner):
    """Public functions, properties and the constructor that a class has of itself."""
    for name, member in vars(owner).items():
        if isinstance(member, (staticmethod, classmethod)):
            member = member.__func__
        if isinstance(member, property):
            member = member.fget
        if inspect.isfunction(member) and ours(member) and (name == "__init__" or not name.startswith("_")):
            yield name, member


def unannotated(function):
    signature = inspect.signature(function)
    bare = [p.name for p in signature.parameters.values() if p.annotation is p.empty and p.name not in ("self", "cls")]
    return bare + (["return"] if signature.return_annotation is signature.empty and function.__name__ != "__init__" else [])


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_there_once(module):
    loaded = importlib.import_module(module)
    assert len(set(loaded.__all__)) == len(loaded.__all__) > 0
    assert inspect.getdoc(loaded)
    assert [name for name in loaded.__all__ if not hasattr(loaded, name)] == []


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_it_says_what_it_is(module, name):
    thing = getattr(importlib.import_module(module), name)
    assert len(inspect.getdoc(thing) or "") > 15
    if inspect.isclass(thing):
        assert inspect.getdoc(thing) != inspect.getdoc(thing.__mro__[1])
        # That of a base class counts, but for __init__, which the class describes.
        assert [n for n, _ in members(thing) if n != "__init__" and not inspect.getdoc(getattr(thing, n))] == []


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_its_types_are_said(module, name):
    thing = getattr(importlib.import_module(module), name)
    functions = list(members(thing)) if inspect.isclass(thing) else [(name, thing)]
    assert {n: unannotated(f) for n, f in functions if ours(f) and unannotated(f)} == {}


def test_modules_have_their_forward_documented():
    """Of the base class, or of their own."""
    for name in importlib.import_module("ropewalk.nn").__all__:
        module = getattr(ropewalk.nn, name)
        assert issubclass(module, torch.nn.Module)
        assert inspect.getdoc(module.forward) not in (None, inspect.getdoc(torch.nn.Module.forward))
