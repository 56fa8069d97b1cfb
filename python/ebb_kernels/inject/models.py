"""What is injected into a model as a whole: functions that it looks up by name. A file of recipes
adds a pair of functions."""

_pairs = []


def whole_model(injector, restorer):
    """injector(root) gives a dict of what it replaced, by name; restorer(root) undoes it."""
    if not any(p[0].__qualname__ == injector.__qualname__ for p in _pairs):
        _pairs.append((injector, restorer))


def inject(root, component, report):
    for injector, _ in _pairs:
        for name, what in injector(root, report.level).items():
            report.replaced[".".join(filter(None, (component, name)))] = what


def restore(root):
    for _, restorer in _pairs:
        restorer(root)
