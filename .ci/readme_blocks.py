"""Checks that each block of Swift in the README is a slice of a snippet, word for word."""

import re
import sys
import textwrap

from snippet_symbols import SNIPPETS, Snippet


def main():
    slices = set()
    for path in SNIPPETS.glob("*.swift"):
        snippet = Snippet(path)
        for start, end in snippet.slices.values():
            slices.add(textwrap.dedent("\n".join(snippet.lines[start:end])).strip())
    readme = (SNIPPETS.parent / "README.md").read_text()
    blocks = re.findall(r"^```swift\n(.*?)^```$", readme, re.DOTALL | re.MULTILINE)
    if not blocks:
        sys.exit("README.md has no block of Swift")
    for block in blocks:
        if block.strip() not in slices:
            sys.exit(f"README.md has a block that is no slice of a snippet:\n{block}")
    print(f"{len(blocks)} blocks are slices of snippets")


if __name__ == "__main__":
    main()
