"""Install script: writes the manual page, what `lazyt manual` prints. Arguments: the command, the folder."""

import os
import subprocess
import sys
from pathlib import Path

command, folder = sys.argv[1], Path(sys.argv[2])
if not folder.is_absolute():
    folder = Path(os.environ["MESON_INSTALL_DESTDIR_PREFIX"]) / folder
elif os.environ.get("DESTDIR"):
    folder = Path(os.environ["DESTDIR"]) / folder.relative_to("/")
page = subprocess.run([command, "manual"], capture_output=True)
if page.returncode:
    print(f"no manual page: {command} does not run", page.stderr.decode(errors="replace"))
else:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "lazyt.1").write_bytes(page.stdout)
