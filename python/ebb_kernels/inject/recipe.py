"""Recipes: what replaces the forward of a class, or the call of an attention processor.

A recipe is one decorated function in one file of recipes/. It names the classes that it is for, or
a package of which it takes every class with the same source; the parts of their source that it
stands for; and the digests of these, so that a release that computes something else is noticed and
not overwritten.
"""

import functools
import importlib
import pkgutil
import sys
from dataclasses import dataclass
from pathlib import Path

from .source import digest

LEVELS = ("modules", "processors", "blocks")


@dataclass(frozen=True, eq=False)
class Recipe:
    name: str
    level: str
    function: callable
    classes: tuple = ()  # "package.module:Class"
    package: str = ""  # or every class of it whose parts have one of the digests
    parts: tuple = ("forward",)
    digests: tuple = ()  # none: a class of torch, whose meaning is documented
    applies: callable = None  # of the module, whether the recipe serves it: None, or why not
    found: callable = None  # called with each class that it matches

    def matches(self, cls):
        """True; False; or, for a class by name with another source, None."""
        if self.classes:
            if path_of(cls) not in self.classes:
                return False
            return not self.digests or digest(cls, self.parts) in self.digests or None
        return in_package(cls, self.package) and digest(cls, self.parts) in self.digests


_recipes: list[Recipe] = []


def path_of(cls):
    return f"{cls.__module__}:{cls.__qualname__}"


def in_package(cls, package):
    return cls.__module__.partition(".")[0] == package


def recipe(level, **rules):
    """Decorates the function that replaces forward(self, ...) or, for processors, __call__."""

    def add(function):
        made = Recipe(function.__name__, level, function, **rules)
        function.ebb_recipe = made
        function.__name__ = "forward"  # under which pickle finds the class' own
        _recipes.append(made)
        return function

    return add


def load():
    """Imports the recipes for the packages that the program has imported."""
    folder = Path(__file__).parent / "recipes"
    package = __name__.rpartition(".")[0] + ".recipes"
    for entry in pkgutil.iter_modules([str(folder)]):
        if entry.name in sys.modules:
            for file in pkgutil.iter_modules([str(folder / entry.name)]):
                importlib.import_module(f"{package}.{entry.name}.{file.name}")
    find.cache_clear()


def all_recipes():
    return tuple(_recipes)


@functools.cache
def find(cls):
    """(the recipe of a class or None, a recipe whose class has another source now or None)"""
    stale = None
    for candidate in _recipes:
        found = candidate.matches(cls)
        if found:
            if candidate.found:
                candidate.found(cls)
            return candidate, None
        if found is None:
            stale = candidate
    return None, stale
