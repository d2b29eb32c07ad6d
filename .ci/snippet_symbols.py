"""Writes the symbol graph of the snippets, which lets `docc convert` show them by `@Snippet`.

    python3 .ci/snippet_symbols.py OUTPUT.symbols.json

The lines `//!` at the top of a snippet explain it; `// snippet.NAME` and `// snippet.end` enclose a
slice; what stands between `// snippet.hide` and `// snippet.show` is left out. In the documentation
a snippet is `@Snippet(path: "Steadfast/Snippets/FOLDER/NAME", slice: "SLICE")`.
"""

import json
import pathlib
import re
import sys

PACKAGE = "Steadfast"
SNIPPETS = pathlib.Path(__file__).resolve().parents[1] / "Snippets"


class Snippet:
    def __init__(self, path):
        self.path = path
        self.explanation = []
        self.lines = []
        self.slices = {}
        self._open_slice = None
        self._is_hidden = False
        for number, line in enumerate(path.read_text().splitlines(), 1):
            self._read(line, number)
        if self._open_slice or self._is_hidden:
            sys.exit(f"{path}: the last slice or hidden part has no end")

    def _read(self, line, number):
        if line.startswith("//!"):
            self.explanation.append(line[3:].removeprefix(" "))
        elif marker := re.fullmatch(r"\s*// snippet\.([A-Za-z0-9_-]+)", line):
            self._mark(marker[1], number)
        elif not self._is_hidden and (self.lines or line.strip()):
            self.lines.append(line)

    def _mark(self, name, number):
        if name in ("hide", "show"):
            self._is_hidden = name == "hide"
        elif name == "end" and self._open_slice:
            slice_name, start = self._open_slice
            self.slices[slice_name] = [start, len(self.lines)]
            self._open_slice = None
        elif name == "end" or self._open_slice or name in self.slices:
            sys.exit(f"{self.path}:{number}: 'snippet.{name}' does not fit the marks before it")
        else:
            self._open_slice = (name, len(self.lines))

    def symbol(self):
        return {
            "identifier": {
                "precise": f"$snippet__{PACKAGE}.{self.path.stem}",
                "interfaceLanguage": "swift",
            },
            "names": {"title": self.path.stem},
            "pathComponents": ["Snippets", *self.path.relative_to(SNIPPETS).with_suffix("").parts],
            "docComment": {"lines": [{"text": line} for line in self.explanation]},
            "accessLevel": "public",
            "kind": {"identifier": "snippet", "displayName": "Snippet"},
            "snippet": {"language": "swift", "lines": self.lines, "slices": self.slices},
            "isVirtual": True,
        }


def all_snippets():
    return [Snippet(path) for path in sorted(SNIPPETS.rglob("*.swift"))]


def main():
    linux = {"architecture": "x86_64", "vendor": "swift", "operatingSystem": {"name": "linux"}}
    graph = {
        "metadata": {
            "formatVersion": {"major": 0, "minor": 1, "patch": 0},
            "generator": "snippet_symbols",
        },
        "module": {"name": PACKAGE, "platform": linux, "isVirtual": True},
        "symbols": [snippet.symbol() for snippet in all_snippets()],
        "relationships": [],
    }
    pathlib.Path(sys.argv[1]).write_text(json.dumps(graph))


if __name__ == "__main__":
    main()
