#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Manual pages on standard output, from what explains itself already.

    manual.py program PROGRAM            PROGRAM(1), from its --help as CLI11 prints it
    manual.py config NAME TITLE FILE...  NAME(5), from commented files of config/: their keys with the comments
"""
import pathlib
import re
import subprocess
import sys

SEE_ALSO = ("rove-run(1)", "rove.toml(5)", "rove-tent.toml(5)")


def escape(text):
    """Text as roff has it: no line of it is a request, and a hyphen is one that can be copied."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)


def paragraphs(lines):
    """Indented lines stay as they are, others flow."""
    page, verbatim = [], False
    for line in lines:
        if line.startswith("  ") != verbatim:
            verbatim = not verbatim
            page.append(".nf" if verbatim else ".fi")
        page.append(escape(line) if line else ".PP")
    return page + [".fi"] * verbatim


def tagged(tag, text):
    return [".TP", f"\\fB{escape(tag)}\\fP", *([escape(text)] if text else [])]


def page(name, section, title, body):
    others = [other for other in SEE_ALSO if other != f"{name}({section})"]
    return "\n".join([
        f'.TH {name} {section} "" rove', ".SH NAME", f"{escape(name)} \\- {escape(title)}", *body, ".SH SEE ALSO",
        escape(", ".join(others)), ""])


def program_page(program):
    name = pathlib.Path(program).name
    text = subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout
    about, options = text.split("\nUsage: ", 1)
    usage, options = options.split("\n", 1)
    details = about.strip().split("\n")
    # What a program says of its own command line is better than what CLI11 finds out.
    synopsis = [line for line in details if line.startswith(f"{name} ")] or [f"{name} {usage.split(' ', 1)[1]}"]
    body = [".SH SYNOPSIS", *paragraphs(synopsis), ".SH DESCRIPTION",
            *paragraphs([line for line in details if line not in synopsis])]
    for line in options.split("\n"):
        if heading := re.match(r"(\S.*):$", line):
            body.append(f".SH {heading[1].upper()}")
        elif entry := re.match(r"  (\S.*?)(?:  +(\S.*))?$", line):
            body += tagged(entry[1], entry[2])
        elif line.strip():
            body.append(escape(line.strip()))
    return page(name, 1, re.split("[.:]", details[0])[0], body)


def config_section(file):
    """The comment at the top, then each table and key, as it stands there, with its comment."""
    intro, body, is_key = [], [], False
    for line in pathlib.Path(file).read_text().splitlines():
        table = re.match(r"(?:# )?(\[\[?[\w.]+\]\]?)(?:\s+# (.*))?$", line)
        key = re.match(r"((?:# )?\w+ = .*?)(?:\s+# (.*))?$", line) or re.match(r"((?:# )?\"[\w:]+\" = .*)()$", line)
        comment = re.match(r"\s*#\s?( *.*)$", line)
        if table or key:
            is_key = bool(key)
            body += tagged(*key.groups()) if key else [f".SS {escape(table[1])}", *escape(table[2] or "").splitlines()]
        elif comment and not comment[1].startswith("SPDX"):
            # A comment that begins its line is about what follows; an indented one goes on with a key's.
            if line.startswith("#") and is_key:
                body.append(".PP")
                is_key = False
            (body if body else intro).append(comment[1] if not body else escape(comment[1].strip()))
    return [f".SH {escape(pathlib.Path(file).name)}", *paragraphs(intro), *body]


def config_page(name, title, files):
    body = [
        ".SH DESCRIPTION", "The file is TOML. A key that is unknown, of a wrong type or out of range is refused with"
        " file, line, key and what is allowed. The tables below are those of the commented examples."]
    return page(name, 5, title, body + [line for file in files for line in config_section(file)])


if __name__ == "__main__":
    kind, *arguments = sys.argv[1:]
    print(program_page(*arguments) if kind == "program" else config_page(*arguments[:2], arguments[2:]), end="")
