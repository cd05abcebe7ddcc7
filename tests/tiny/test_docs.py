"""Documents name files that exist."""

import re
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
