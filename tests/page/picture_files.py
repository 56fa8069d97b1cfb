"""Pictures with the settings that other programs write into them, as base64."""

import base64
import struct
import zlib

A1111 = ("a red fox in the snow, (sharp:1.2)\nNegative prompt: rain, fog\n"
         "Steps: 27, Sampler: Euler a, CFG scale: 5.5, Seed: 123456, Size: 640x384, "
         "Version: v1.10.1")


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height, texts=None, colour=(90, 140, 190)):
    row = b"\0" + bytes(colour) * width
    out = b"\x89PNG\r\n\x1a\n" + chunk(
        b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    for name, text in (texts or {}).items():
        out += chunk(b"tEXt", name.encode() + b"\0" + text.encode("latin-1"))
    out += chunk(b"IDAT", zlib.compress(row * height)) + chunk(b"IEND", b"")
    return base64.b64encode(out).decode()


def exif(text):
    """A TIFF block that has nothing but the user comment, in UTF-16."""
    comment = b"UNICODE\0" + text.encode("utf-16-be")
    pointer = struct.pack(">HHHII", 1, 0x8769, 4, 1, 26) + bytes(4)
    return (b"MM\0*" + struct.pack(">I", 8) + pointer +
            struct.pack(">HHHII", 1, 0x9286, 7, len(comment), 44) + bytes(4) + comment)


def jpeg_with(jpeg, text):
    """The JPEG file of a base64 text, with the text in its EXIF block."""
    data, block = base64.b64decode(jpeg), b"Exif\0\0" + exif(text)
    segment = b"\xff\xe1" + struct.pack(">H", len(block) + 2) + block
    return base64.b64encode(data[:2] + segment + data[2:]).decode()


def webp_with(webp, width, height, text):
    """Likewise a WebP file, which gets the extended header that EXIF needs."""
    body, block = base64.b64decode(webp)[12:], exif(text)
    if body[:4] == b"VP8X":
        body = body[18:]
    flags = struct.pack("<I", 0x08) + (width - 1).to_bytes(3, "little")
    out = b"WEBPVP8X" + struct.pack("<I", 10) + flags + (height - 1).to_bytes(3, "little")
    out += body + b"EXIF" + struct.pack("<I", len(block)) + block + bytes(len(block) % 2)
    return base64.b64encode(b"RIFF" + struct.pack("<I", len(out)) + out).decode()
