"""Documents name files that exist, and show code that is compiled."""

import re
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("sdk_docs/**/*.md"), *ROOT.glob("core/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_of_a_page_lead_to_files(page):
    text = page.read_text()
    links = re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", text)
    missing = [link for link in links if not (page.parent / link).exists()]
    assert not missing


def region(path: str, name: str) -> str:
    """What stands between `[region name]` and the next `[end]` of a source."""
    begin, end = rf"^[ \t]*(?://|/\*|#) \[region {name}\][^\n]*\n", r"^[ \t]*(?://|/\*|#) \[end\]"
    found = re.findall(f"{begin}(.*?){end}", (ROOT / path).read_text(), re.MULTILINE | re.DOTALL)
    assert len(found) == 1, f"{path} has {len(found)} regions {name}"
    return textwrap.dedent(found[0])


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_code_of_a_page_is_that_of_the_source_it_names(page):
    quoted = re.findall(r"<!-- region (\S+) (\S+) -->\n```\w*\n(.*?)```", page.read_text(), re.DOTALL)
    assert [(path, name) for path, name, code in quoted if code != region(path, name)] == []


def test_the_guide_shows_the_template():
    assert (ROOT / "sdk_docs" / "plugin_guide.md").read_text().count("<!-- region abi/") >= 6


def test_every_reason_code_of_the_loader_is_explained():
    source = (ROOT / "core" / "loader" / "report.cpp").read_text()
    codes = set(re.findall(r'^ {4}\{"([a-z-]+)",', source, re.MULTILINE)) - {"loaded", "found", "bad-layers"}
    explained = set(re.findall(r"`([a-z-]+)`", (ROOT / "sdk_docs" / "loading.md").read_text()))
    assert len(codes) >= 25
    assert sorted(codes - explained) == []
