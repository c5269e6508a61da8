# SPDX-License-Identifier: BSD-3-Clause
"""picture.py FILE WIDTH HEIGHT: checks that FILE is a PNG of this size and not empty: with many
shades both in its upper and in its lower half."""

import struct
import sys
import zlib


def rows(data, width, height, size):
    """The lines of the picture, with PNG's five filters undone."""
    step, before = width * size, bytes(width * size)
    for y in range(height):
        kind, line = data[y * (step + 1)], bytearray(data[y * (step + 1) + 1:(y + 1) * (step + 1)])
        for x in range(step):
            left = line[x - size] if x >= size else 0
            up = before[x]
            corner = before[x - size] if x >= size else 0
            if kind == 1:
                line[x] = (line[x] + left) & 255
            elif kind == 2:
                line[x] = (line[x] + up) & 255
            elif kind == 3:
                line[x] = (line[x] + (left + up) // 2) & 255
            elif kind == 4:
                guess = left + up - corner
                nearest = min((abs(guess - left), 0, left), (abs(guess - up), 1, up),
                              (abs(guess - corner), 2, corner))[2]
                line[x] = (line[x] + nearest) & 255
        before = bytes(line)
        yield before


def main():
    with open(sys.argv[1], "rb") as file:
        png = file.read()
    assert png[:8] == b"\x89PNG\r\n\x1a\n", "no PNG"
    at, packed, head = 8, b"", None
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at:at + 8])
        body = png[at + 8:at + 8 + length]
        head = struct.unpack(">IIBBBBB", body) if kind == b"IHDR" else head
        packed += body if kind == b"IDAT" else b""
        at += 12 + length
    width, height, depth, colour = head[:4]
    assert (width, height) == (int(sys.argv[2]), int(sys.argv[3])), f"{width} x {height}"
    size = {2: 3, 6: 4}[colour]
    assert depth == 8, depth
    halves = [set(), set()]
    for y, line in enumerate(rows(zlib.decompress(packed), width, height, size)):
        if y % 3 == 0:
            halves[2 * y // height].update(line[x:x + 3] for x in range(0, len(line), size))
    print(*(len(half) for half in halves), "colours")
    assert all(len(half) > 20 for half in halves), "it shows nothing"


main()
