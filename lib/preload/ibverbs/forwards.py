#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""forwards.py map|asm symbols.def LIBIBVERBS: makes the libibverbs.so.1 of rove that replaces the installed one.

`map` prints the linker's version script: every symbol of LIBIBVERBS in its node, and rove's newer calls in theirs.
`asm` prints the functions that rove does not define. Each of them jumps to that of LIBIBVERBS, which forward.cc finds
at the first call.
"""
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import version_script  # noqa: E402

FORWARD = """
    .globl {symbol}
    .type {symbol}, @function
{symbol}:
    endbr64
    movq rove_forward_slots+{offset}(%rip), %r11
    testq %r11, %r11
    jz 1f
    jmp *%r11
1:  movl ${index}, %r11d
    jmp forward
    .size {symbol}, . - {symbol}
"""
# Preserves the registers that pass arguments. No argument of these functions is in a vector register.
FIND = """
    .type forward, @function
forward:
    pushq %rbp
    movq %rsp, %rbp
    pushq %rdi
    pushq %rsi
    pushq %rdx
    pushq %rcx
    pushq %r8
    pushq %r9
    pushq %rax
    andq $-16, %rsp
    movl %r11d, %edi
    call rove_find_forward
    movq %rax, %r11
    leaq -56(%rbp), %rsp
    popq %rax
    popq %r9
    popq %r8
    popq %rcx
    popq %rdx
    popq %rsi
    popq %rdi
    popq %rbp
    jmp *%r11
    .size forward, . - forward
"""


def symbols(library):
    """Returns (kind, name, "@@" if it is the default version or else "@", version) of each symbol."""
    listing = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    return re.findall(r"^\w+ ([TBD]) (\w+)(@@?)(IBVERBS_\S+)$", listing, re.MULTILINE)


def alias(name, version):
    return f"{name}__{version.replace('.', '_')}"


def number(node):
    return [int(part) for part in re.findall(r"\d+", node)] if "PRIVATE" not in node else [1000]


def main(what, table, library):
    installed = symbols(library)
    ours = {name: f"IBVERBS_{version}" for version, name in version_script.calls(pathlib.Path(table).read_text())}
    private = next(version for _, _, _, version in installed if "PRIVATE" in version)
    ours = {name: private if version == "IBVERBS_PRIVATE" else version for name, version in ours.items()}
    forwarded = [entry for entry in installed if entry[0] == "T" and not (entry[2] == "@@" and entry[1] in ours)]
    data = [entry for entry in installed if entry[0] != "T"]
    if what == "map":
        nodes = {}
        theirs = ((name, version) for _, name, at, version in forwarded + data if at == "@@")
        for name, version in [*ours.items(), *theirs]:
            nodes.setdefault(version, set()).add(name)
        nodes.setdefault("IBVERBS_1.0", set())
        before = ""
        for node in sorted(nodes, key=number):
            names = "".join(f"    {name};\n" for name in sorted(nodes[node]))
            hidden = ("  local:\n    _Z*;\n    rte_tel*;\n    telemetry_*;\n    callbacks;\n    *legacy_c*;\n"
                      "    rove_*;\n    *__IBVERBS_*;\n")
            behind = before if "PRIVATE" not in node else ""
            print(f"{node} {{\n  global:\n{names}{hidden if not before else ''}}}{behind};")
            before = f" {node}"
        return
    print("    .text")
    print(FIND)
    for index, (_, name, at, version) in enumerate(forwarded):
        symbol = name if at == "@@" else alias(name, version)
        print(FORWARD.format(symbol=symbol, index=index, offset=index * 8))
        if at == "@":
            print(f"    .symver {symbol}, {name}@{version}")
    strings = [(name, version) for _, name, _, version in forwarded]
    for label, position in (("names", 0), ("versions", 1)):
        print(f"    .section .data.rel.ro\n    .globl rove_forward_{label}\n    .hidden rove_forward_{label}\n"
              f"    .balign 8\nrove_forward_{label}:")
        print("".join(f"    .quad {label}_{index}\n" for index in range(len(strings))))
        lines = (f'{label}_{index}: .string "{pair[position]}"\n' for index, pair in enumerate(strings))
        print("    .section .rodata\n" + "".join(lines))
    print("    .bss\n    .globl rove_forward_slots\n    .hidden rove_forward_slots\n    .balign 8\n"
          f"rove_forward_slots: .skip {8 * len(strings)}")
    # Flags of one byte that providers read. The installed library sets its own; these keep their initial value.
    for _, name, _, _ in data:
        print(f"    .globl {name}\n    .type {name}, @object\n    .size {name}, 1\n{name}: .skip 1")
    print('    .section .note.GNU-stack,"",@progbits')


if __name__ == "__main__":
    main(*sys.argv[1:])
