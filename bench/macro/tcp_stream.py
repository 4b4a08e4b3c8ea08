#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sends one TCP stream with a given congestion control, for bench/loss. The receiving end measures the bytes that
arrive in some seconds after it has accepted the connection, and prints "tcp_stream GBPS"; without a connection it
prints 0."""
import argparse
import socket
import time

CHUNK = 1 << 20
CONNECT_S = 5       # how long a connection may take; over a dead path it fails


def receive(address, seconds):
    with socket.create_server(address) as listener:
        listener.settimeout(CONNECT_S)
        try:
            stream = listener.accept()[0]
        except TimeoutError:
            return 0.0
    buffer, got = bytearray(CHUNK), 0
    begun = time.monotonic()
    with stream:
        while (left := begun + seconds - time.monotonic()) > 0:
            stream.settimeout(left)
            try:
                count = stream.recv_into(buffer)
            except TimeoutError:
                break
            if count == 0:
                break
            got += count
    return got * 8 / 1e9 / (time.monotonic() - begun)


def send(address, congestion):
    with socket.socket() as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())
        stream.settimeout(CONNECT_S)
        try:
            stream.connect(address)
            stream.settimeout(None)
            while True:
                stream.sendall(bytes(CHUNK))
        except OSError:     # no path, or the other end has measured enough
            pass


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--congestion", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--listen", action="store_true")
    options = parser.parse_args()
    address = options.address, options.port
    if options.listen:
        print(f"tcp_stream {receive(address, options.seconds):.6f}")
    else:
        send(address, options.congestion)


if __name__ == "__main__":
    main()
