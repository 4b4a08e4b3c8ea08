#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints manual pages on standard output.

    manual.py program PROGRAM            PROGRAM(1), from its --help as CLI11 prints it
    manual.py config NAME TITLE FILE...  NAME(5), from commented files of config/: their keys with the comments
"""
import pathlib
import re
import subprocess
import sys

SEE_ALSO = ("rove-run(1)", "rove.toml(5)", "rove-tent.toml(5)")


def escape(text):
    """Escapes text for roff: no line of it is a request, and its hyphens can be copied."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)


def paragraphs(lines):
    """Returns roff in which indented lines stay as they are and others are filled."""
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
    # The program's own description of its command line is better than the one that CLI11 derives.
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


def read_config(file):
    """Yields (kind, tag, text) for the lines of a commented example. First is the comment at the top ("intro"), then
    each table and key as it is written there, with its comment. A comment on a line of its own is "about" the key that
    follows, or "more" of the comment before."""
    in_intro, is_key = True, False
    for line in pathlib.Path(file).read_text().splitlines():
        table = re.match(r"(?:# )?(\[\[?[\w.]+\]\]?)(?:\s+# (.*))?$", line)
        key = re.match(r"((?:# )?\w+ = .*?)(?:\s+# (.*))?$", line) or re.match(r"((?:# )?\"[\w:]+\" = .*)()$", line)
        comment = re.match(r"\s*#\s?( *.*)$", line)
        if table or key:
            in_intro, is_key = False, bool(key)
            yield ("key", *key.groups()) if key else ("table", *table.groups())
        elif in_intro and (comment or not line):
            if comment is None or not comment[1].startswith("SPDX"):
                yield "intro", None, comment[1] if comment else ""
        elif comment:
            # A comment that begins its line is about the key that follows. An indented one continues a key's comment.
            yield "about" if line.startswith("#") and is_key else "more", None, comment[1].strip()
            is_key = is_key and not line.startswith("#")


def config_section(file):
    intro, body = [], []
    for kind, tag, text in read_config(file):
        if kind == "intro":
            intro.append(text)
        elif kind == "key":
            body += tagged(tag, text)
        elif kind == "table":
            body += [f".SS {escape(tag)}", *escape(text or "").splitlines()]
        else:
            body += [*([".PP"] if kind == "about" else []), escape(text)]
    return [f".SH {escape(pathlib.Path(file).name)}", *paragraphs(intro), *body]


def config_page(name, title, files):
    body = [
        ".SH DESCRIPTION", "The file is TOML. A key that is unknown, of a wrong type or out of range is refused with"
        " file, line, key and the allowed values. The tables below are from the commented examples."]
    return page(name, 5, title, body + [line for file in files for line in config_section(file)])


if __name__ == "__main__":
    kind, *arguments = sys.argv[1:]
    print(program_page(*arguments) if kind == "program" else config_page(*arguments[:2], arguments[2:]), end="")
