"""Install script: removes what an earlier version left in an installed folder. Arguments: the source, the folder."""

import os
import sys
from pathlib import Path

source, folder = Path(sys.argv[1]), Path(sys.argv[2])
if not folder.is_absolute():
    folder = Path(os.environ["MESON_INSTALL_DESTDIR_PREFIX"]) / folder
elif os.environ.get("DESTDIR"):
    folder = Path(os.environ["DESTDIR"]) / folder.relative_to("/")
for path in folder.rglob("*"):
    if path.is_file() and not (source / path.relative_to(folder)).exists():
        path.unlink()
