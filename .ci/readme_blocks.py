"""Checks that each block of Swift in the README is a slice of a snippet, word for word, and that the
code which the articles "Coming from …" put beside an older system's stands in a snippet.
"""

import re
import sys
import textwrap

from snippet_symbols import SNIPPETS, all_snippets

ARTICLES = "Sources/*/*.docc/**/ComingFrom*.md"


def check_readme(snippets):
    slices = set()
    for snippet in snippets:
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


def squeezed(code):
    """Without what differs only because one has more lines than the other."""
    return re.sub(r",(?=[)\]])", "", re.sub(r"\s+", "", code))


def check_tables(snippets):
    code = squeezed("\n".join(line for snippet in snippets for line in snippet.lines))
    count = 0
    for article in SNIPPETS.parent.glob(ARTICLES):
        rows = re.findall(r"^\|.*\| (.*) \|$", article.read_text(), re.MULTILINE)
        # What stands in double backticks is a link, which the documentation's build checks.
        for span in re.findall(r"(?<!`)`([^`]+)`(?!`)", "\n".join(rows)):
            if squeezed(span) not in code:
                sys.exit(f"{article.name} has code in a table that is in no snippet: {span}")
            count += 1
    if count == 0:
        sys.exit(f"no code was found in the tables of {ARTICLES}")
    print(f"{count} pieces of code in tables are in snippets")


def main():
    snippets = all_snippets()
    check_readme(snippets)
    check_tables(snippets)


if __name__ == "__main__":
    main()
