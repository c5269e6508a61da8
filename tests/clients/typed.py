# SPDX-License-Identifier: BSD-3-Clause
"""typed.py FOLDER COMPLETION...: types each line of standard input and a TAB into a bash in FOLDER
with these completions, and prints the completed line.

The bash has a terminal. A key that it binds writes the line to a file, so the terminal's output
need not be parsed.
"""

import os
import pty
import sys
import time

RC = r"""
bind 'set enable-bracketed-paste off'
bind 'set bell-style none'
bind 'set show-all-if-ambiguous off'
PS1='ready>'
bind -x '"\C-xw": printf "%s\n" "$READLINE_LINE" >>"$TYPED"'
"""


def wait(what, seconds=60):
    end = time.monotonic() + seconds
    while True:
        found = what()
        if found is not None:
            return found
        if time.monotonic() > end:
            sys.exit("bash does not answer")
        time.sleep(0.005)


def main():
    folder, completions = sys.argv[1], sys.argv[2:]
    lines = sys.stdin.read().splitlines()
    written = os.path.join(folder, "typed.out")
    rc = os.path.join(folder, "typed.rc")
    with open(rc, "w", encoding="utf-8") as file:
        file.write("".join(f". '{each}'\n" for each in completions) + RC)
    open(written, "w", encoding="utf-8").close()
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.environ.update(TYPED=written, TERM="dumb", INPUTRC="/dev/null")
        os.execvp("bash", ["bash", "--noprofile", "--rcfile", rc, "-i"])
    os.set_blocking(terminal, False)

    def screen():
        try:
            return os.read(terminal, 65536).decode(errors="replace")
        except (BlockingIOError, OSError):
            return ""

    # Until bash controls the terminal, typed text may be lost.
    shown = ""

    def ready():
        nonlocal shown
        shown += screen()
        return True if "ready>" in shown else None
    wait(ready)

    def answers(count):
        def seen():
            screen()  # discarded; a full terminal would block bash
            with open(written, encoding="utf-8") as file:
                all_lines = file.read().split("\n")
            return all_lines[count - 1] if len(all_lines) > count else None
        return wait(seen)

    for count, line in enumerate(lines, 1):
        os.write(terminal, line.encode() + b"\t\x18w\x15")
        print(answers(count))
    os.write(terminal, b"exit\n")


main()
