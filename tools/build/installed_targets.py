"""Prints what of a build folder is installed, as names for ninja: what `make demo` needs, without tests."""

import json
import sys
from pathlib import Path


def main() -> int:
    build = Path(sys.argv[1]).resolve()
    targets = json.loads((build / "meson-info" / "intro-targets.json").read_text(encoding="utf-8"))
    for target in targets:
        if target["installed"]:
            print(*(Path(name).relative_to(build) for name in target["filename"]), sep="\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
