#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""check_links.py FOLDER checks the HTML pages in a folder. It prints the links, pictures and anchors without a target in it."""
import html.parser
import pathlib
import sys
import urllib.parse


class Page(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.links, self.anchors = [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.anchors.update(values[name] for name in ("id", "name") if values.get(name))
        self.links += [values[name] for name in ("href", "src") if values.get(name)]


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    pages = {path: Page(path) for path in root.rglob("*.html")}
    broken, checked = [], 0
    for path, page in pages.items():
        for link in page.links:
            url = urllib.parse.urlsplit(link)
            if url.scheme or url.netloc:
                continue
            checked += 1
            target = (path.parent / urllib.parse.unquote(url.path)).resolve() if url.path else path
            target = target / "index.html" if target.is_dir() else target
            anchor = urllib.parse.unquote(url.fragment)
            if not target.is_relative_to(root) or not target.exists():
                broken.append(f"{path.relative_to(root)}: {link} is not there")
            elif anchor and target in pages and anchor not in pages[target].anchors:
                broken.append(f"{path.relative_to(root)}: {link} has no such anchor")
    print("\n".join(broken + [f"{checked} links in {len(pages)} pages, {len(broken)} broken"]))
    sys.exit(bool(broken) or not pages)


main()
