"""Writes a C++ header with a text file as a constant: embed_text.py INPUT OUTPUT NAME."""

import sys
from pathlib import Path


def main() -> None:
    source, target, name = sys.argv[1:]
    text = Path(source).read_text(encoding="utf-8")
    assert ')lazyt_text"' not in text
    Path(target).write_text(
        f'inline constexpr char {name}[] = R"lazyt_text({text})lazyt_text";\n', encoding="utf-8"
    )


if __name__ == "__main__":
    main()
