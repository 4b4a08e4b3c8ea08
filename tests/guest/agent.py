# SPDX-License-Identifier: Apache-2.0
"""Runs programs in the guest: `agent.py serve ADDRESS PORT` there, `agent.py run ADDRESS PORT PROGRAM ARGUMENTS...` on
the host.

Each TCP connection runs one program. The client sends the arguments as a line of JSON. It receives the program's
output, then a zero byte and the exit status. The program ends when the client closes the connection, so a killed client
leaves no program behind.
"""
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading

END = b"\0"


def serve_one(connection):
    with connection:
        arguments = json.loads(connection.makefile("rb").readline())
        try:
            child = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=connection, stderr=subprocess.STDOUT,
                                     cwd="/dev/shm",
                                     start_new_session=True)
        except OSError as error:
            connection.sendall(f"{arguments[0]}: {error}\n".encode() + END + b"127")
            return
        ended = os.pidfd_open(child.pid)
        readable, _, _ = select.select([ended, connection], [], [])
        if ended not in readable:   # The client sends nothing after its line, so it has closed the connection.
            os.killpg(child.pid, signal.SIGKILL)
        os.close(ended)
        status = child.wait()
        try:
            connection.sendall(END + str(status if status >= 0 else 128 - status).encode())
        except OSError:
            pass


def serve(address, port):
    with socket.create_server((address, int(port))) as listener:
        print("guest: ready", flush=True)
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=serve_one, args=(connection,), daemon=True).start()


def run(address, port, *arguments):
    with socket.create_connection((address, int(port)), 20) as connection:
        connection.settimeout(None)
        connection.sendall(json.dumps(arguments).encode() + b"\n")
        received = b""
        while END not in received and (received := connection.recv(65536)):
            sys.stdout.buffer.write(received.split(END)[0])
            sys.stdout.buffer.flush()
        status = received.partition(END)[2]
        while more := connection.recv(16):
            status += more
        return int(status or b"125")


if __name__ == "__main__":
    action, *rest = sys.argv[1:]
    sys.exit(serve(*rest) if action == "serve" else run(*rest))
