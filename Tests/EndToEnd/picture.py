"""Draws what Outbox writes when it is killed and started again: the picture of the README.

    swift build --product Outbox
    python3 Tests/EndToEnd/picture.py .build/debug/Outbox .github/outbox.svg

The files go to an HTTP server that fails a third of the requests on purpose.
"""

import html
import os
import pathlib
import subprocess
import sys

from server import Server
from support import make_files, temporary_folder

COUNT = 200
KILL_AFTER = 3
CHARACTER, SIZE, LINE, MARGIN = 7.85, 13, 20, 16


def session(program, folder):
    """The lines of the terminal: (is a command, text)."""
    make_files(folder / "photos", COUNT, 7)
    server = Server(7, longest_wait=0.5, port=8080).start()
    arguments = ["--from", "photos", "--to", f"{server.url}/inbox", "--queue", "photos.jsonl",
                 "--concurrency", "8", "--timeout", "1"]
    command = "swift run Outbox " + " ".join(arguments)
    lines = []
    for is_killed in (True, False):
        lines.append((True, command))
        process = subprocess.Popen(
            [program, *arguments], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True)
        said = 0
        for line in process.stdout:
            lines.append((False, line.rstrip("\n").replace(f"{os.path.realpath(folder)}/", "")))
            said += 1
            if is_killed and said == KILL_AFTER:
                process.kill()
        process.wait()
        if is_killed:
            lines.append((False, "Killed"))
    server.stop()
    return lines


def drawing(lines):
    # The longest line has a prompt at most.
    width = round(2 * MARGIN + CHARACTER * (2 + max(len(text) for _, text in lines)))
    height = 2 * MARGIN + LINE * len(lines)
    rows = []
    for number, (is_command, text) in enumerate(lines):
        y = MARGIN + LINE * number + SIZE
        style = "command" if is_command else "killed" if text == "Killed" else "said"
        text = html.escape(("$ " if is_command else "") + text)
        rows.append(f'<text x="{MARGIN}" y="{y}" class="{style}">{text}</text>')
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img">',
        "<title>Outbox is killed, is started again, and delivers what is left</title>",
        "<style>text { font: 13px ui-monospace, Menlo, Consolas, monospace; white-space: pre }",
        ".command { fill: #79c0ff } .said { fill: #c9d1d9 } .killed { fill: #ff7b72 }</style>",
        '<rect width="100%" height="100%" rx="8" fill="#0d1117"/>',
        *rows,
        "</svg>",
        "",
    ])


def main():
    program, picture = (pathlib.Path(path).absolute() for path in sys.argv[1:3])
    with temporary_folder() as folder:
        lines = session(program, pathlib.Path(folder))
    picture.write_text(drawing(lines))
    print(f"{len(lines)} lines are drawn")


if __name__ == "__main__":
    main()
