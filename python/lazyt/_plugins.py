"""Plugins that Python packages bring, by entry points of the group `lazyt.plugins`.

`acme = "acme_lazyt:plugins"` names the folder `plugins` of the package `acme_lazyt`. No code of the package
is run.
"""

import warnings
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path


def _folder(point: EntryPoint) -> Path:
    package, *inside = point.module.split(".")
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"no package {package!r}")
    folder = Path(spec.submodule_search_locations[0], *inside, *filter(None, [point.attr]))
    if not folder.is_dir():
        raise NotADirectoryError(f"no folder {folder}")
    return folder.resolve()


def folders() -> Iterator[tuple[str, str]]:
    """(folder, what named it), in the order of names."""
    for point in sorted(entry_points(group="lazyt.plugins"), key=lambda p: (p.name, p.value)):
        try:
            yield str(_folder(point)), f"entry point {point.name}"
        except (ImportError, OSError, ValueError) as error:
            warnings.warn(
                f"entry point {point.name} = {point.value!r} of lazyt.plugins: {error}", stacklevel=2
            )
