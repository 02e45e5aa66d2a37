"""Read the third body with what ``docs/format.md`` says and nothing of ours, value by value: slow and plain."""

from __future__ import annotations

import itertools
import json
import re
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash
from pcodec import standalone

MASK = 2**64 - 1


def read_extent(data: bytes) -> tuple[list[dict[str, Any]], list[dict[str, list[Any]]]]:
    """Return the footer, and of each block its columns."""
    assert data[:5] == data[-5:] == b"KYMA\x03"
    (length,) = struct.unpack("<I", data[-9:-5])
    footer = read_footer(data[-9 - length : -9])
    extent = footer[-1]["extent"]
    seen = [(0, 5), (len(data) - 9 - length, len(data))]

    def piece(place: dict[str, Any]) -> bytes:
        found = data[place["at"] : place["at"] + place["len"]]
        assert xxhash.xxh3_64_hexdigest(found) == place["sum"]
        seen.append((place["at"], place["at"] + place["len"]))
        return found

    words = {name: texts(piece(place), place["count"], None) for name, place in extent["dictionaries"].items()}
    lines = {}
    for name, place in extent.get("templates", {}).items():
        held = [texts(piece(each), each["count"], None) for each in (place, place["words"])]
        lines[name] = (*held, place["heads"])
    directories = {name: directory(piece(place)) for name, place in extent["shredded"].items()}
    for known in directories.values():
        places = [*known["dictionaries"].values(), *(held for own in known["lines"].values() for held in own["places"])]
        seen += [(place["at"], place["at"] + place["len"]) for place in places]
    listed = {name: [piece(place) for place in places] for name, places in extent.get("postings", {}).items()}
    blocks = []
    for number, entry in enumerate(footer):
        columns: dict[str, list[Any]] = {}
        for column in extent["schema"]["columns"]:
            name, page = column["name"], piece(entry["tide"][column["name"]])
            if column["type"] == "dynamic":
                columns[name] = shredded(page, directories[name], number, entry["row_count"], data)
            else:
                columns[name] = nullable(page, entry["row_count"], column["type"], words.get(name) or lines.get(name))
            if name in lines:
                length, checksum = lines[name][2][number]
                assert xxhash.xxh3_64_hexdigest(page[:length]) == checksum
            if name in listed:
                check_postings(listed[name][number], columns[name])
        for name, base in extent.get("differences", {}).items():
            apart = [each["name"] for each in extent["schema"]["columns"] if each["name"] in (name, base)]
            assert len(apart) == 2
            assert base not in extent["differences"]
            columns[name] = [
                each if each is None else signed(each + other)
                for each, other in zip(columns[name], columns[base], strict=True)
            ]
        blocks.append(columns)
    at = 0
    for start, end in sorted(seen):  # no byte is without a checksum
        assert start == at, (start, at)
        at = end
    assert at == len(data)
    return footer, blocks


def read_footer(stored: bytes) -> list[dict[str, Any]]:
    """Read a footer that is compressed, or JSON as it is."""
    text = stored
    if stored[:1] != b"[":
        kind, size = struct.unpack_from("<BI", stored)
        assert (kind, struct.unpack("<Q", stored[-8:])) == (2, (xxhash.xxh3_64_intdigest(stored[:-8]),))
        text = pa.decompress(stored[5:-8], decompressed_size=size, codec="zstd", asbytes=True)
    else:
        assert stored[-27:] == b',"sum":"' + xxhash.xxh3_64_hexdigest(stored[:-27]).encode() + b'"}]'
    found: list[dict[str, Any]] = json.loads(text)
    return found


def check_postings(page: bytes, lines: list[Any]) -> None:
    """Hold for every token of every text that the row is among those of the token."""
    shift, digits, count, groups = struct.unpack_from("<BBII", page)
    hashes_page, counts_page, gaps_page, *filters = parts(page[10:], 4 if digits == 2 else 3)
    gaps = iter(integers(gaps_page, groups))
    known = {}
    for hashed, many in zip(integers(hashes_page, count), integers(counts_page, count), strict=True):
        known[hashed] = set(itertools.accumulate(next(gaps) for _ in range(many))) if many else None
    for row, line in enumerate(lines):
        for token in re.findall("[0-9a-z]{2,}", re.sub("[A-Z]", lambda each: each[0].lower(), line or "")):
            hashed = token_hash(token.encode()) >> 40
            if digits == 1 or not re.search("[0-9]", token):
                own = known[hashed]
                assert own is None or row >> shift in own
            elif digits == 2:
                assert all(filters[0][bit >> 3] >> (bit & 7) & 1 for bit in probes(hash_of_int(hashed), filters[0]))


def probes(hashed: int, held: bytes) -> list[int]:
    """Give the bits that a hash sets in a filter."""
    low, high, bits = hashed & 0xFFFFFFFF, hashed >> 32 | 1, (len(held) * 8).bit_length() - 1
    return [((low + probe * high) & 0xFFFFFFFF) >> (32 - bits) for probe in range(4)]


def hash_of_int(value: int) -> int:
    """Hash an integer as filters do."""
    found = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & MASK
    found = (found ^ found >> 27) * 0x94D049BB133111EB & MASK
    return found ^ found >> 31


def token_hash(data: bytes) -> int:
    """Hash as filters do."""
    found = 0x9E3779B97F4A7C15
    for at in range(0, len(data), 8):
        found = (found ^ int.from_bytes(data[at : at + 8], "little")) * 0xBF58476D1CE4E5B9 & MASK
        found ^= found >> 32
    return hash_of_int(found ^ len(data))


def nullable(page: bytes, count: int, kind: str, words: Any) -> list[Any]:
    if page[0] == 32:
        return values(page[1:], count, kind, words)
    if page[0] == 33:
        return [None] * count
    assert page[0] == 34
    (size,) = struct.unpack_from("<I", page, 1)
    valid = booleans(page[5 : 5 + size], count)
    found = iter(values(page[5 + size :], sum(valid), kind, words))
    return [next(found) if each else None for each in valid]


def values(page: bytes, count: int, kind: str, words: Any) -> list[Any]:
    if kind == "string":
        return [text.decode() for text in texts(page, count, words)]
    if kind == "bool":
        return booleans(page, count)
    if kind == "real":
        return reals(page, count)
    if kind.startswith("vector"):
        size = int(kind[7:-1])
        raw = page[1:] if page[0] == 1 else unzstd(page[1:], count * size * 4)
        flat = struct.unpack(f"<{count * size}f", raw)
        return [tuple(flat[at : at + size]) for at in range(0, count * size, size)]
    return integers(page, count)


def integers(page: bytes, count: int) -> list[int]:
    codec = page[0]
    if codec == 8:  # to be added to another column's
        return integers(page[1:], count)
    if codec == 0:
        return [struct.unpack_from("<q", page, 1)[0]] * count
    if codec == 3:
        width, first, base = struct.unpack_from("<Bqq", page, 1)
        found = [first]
        for step in narrow(unzstd(page[18:], (count - 1) * width), width):
            found.append(signed(found[-1] + base + step))
        return found
    width, base = struct.unpack_from("<Bq", page, 1)
    rest = page[10:]
    if codec == 4:
        small = np.zeros(count, dtype=f"<u{width}")
        standalone.simple_decompress_into(rest, small)
        return [signed(base + each) for each in small.tolist()]
    if codec == 6:
        planes = []
        for _ in range(width):
            size = int.from_bytes(rest[:4], "little")
            planes.append(rest[4 : 4 + size] if size == count else unzstd(rest[4 : 4 + size], count))
            rest = rest[4 + size :]
        return [signed(base + int.from_bytes(each, "little")) for each in zip(*planes, strict=True)]
    return [signed(base + each) for each in narrow(rest if codec == 1 else unzstd(rest, count * width), width)]


def reals(page: bytes, count: int) -> list[float]:
    if page[0] == 5:
        found = np.zeros(count)
        standalone.simple_decompress_into(page[1:], found)
        return list(found.tolist())
    if page[0] == 7:
        return [float(whole) / 10.0 ** page[1] for whole in integers(page[2:], count)]
    return [struct.unpack("<d", struct.pack("<q", bits))[0] for bits in integers(page, count)]


def booleans(page: bytes, count: int) -> list[bool]:
    if page[0] == 0:
        return [bool(page[1])] * count
    bits = page[1:] if page[0] == 1 else unzstd(page[1:], (count + 7) // 8)
    return [bool(bits[at // 8] >> at % 8 & 1) for at in range(count)]


def texts(page: bytes, count: int, words: Any) -> list[bytes]:
    if page[0] == 16:
        return [page[1:]] * count
    if page[0] == 20:
        return templated(page[1:], count, words[0], words[1])
    if page[0] == 19:
        assert words is not None
        return [words[number] for number in integers(page[1:], count)]
    sizes_size, size = struct.unpack_from("<II", page, 1)
    lengths = integers(page[9 : 9 + sizes_size], count)
    rest = page[9 + sizes_size :]
    letters = rest if page[0] == 17 else unzstd(rest, size)
    ends = np.cumsum([0, *lengths]).tolist()
    return [letters[start:end] for start, end in itertools.pairwise(ends)]


def templated(page: bytes, count: int, templates: list[bytes], words: list[bytes]) -> list[bytes]:
    numbers_page, page = cut(page)
    numbers = integers(numbers_page, count)
    total = int.from_bytes(page[:4], "little")
    rest, page = cut(page[4:])
    pages = int.from_bytes(page[:4], "little")
    kinds_page, page = cut(page[4:])
    lengths_page, page = cut(page)
    kinds, lengths = iter(integers(kinds_page, pages)), iter(integers(lengths_page, pages))
    many = {number: numbers.count(number) for number in set(numbers)}
    small = sum(many[n] * templates[n].count(b"\xff") for n in many if many[n] < 128)
    rests = iter(texts(rest, small, None))
    found: dict[int, list[Any]] = {}
    for number in sorted(many):
        for slot in range(templates[number].count(b"\xff")):
            own = found.setdefault(number, [])
            if many[number] < 128:
                own.append([next(rests) for _ in range(many[number])])
                continue
            kind, length = next(kinds), next(lengths)
            own.append(variable(page[:length], kind, many[number], words, own[:slot]))
            page = page[length:]
    assert not page
    columns = {number: zip(*own, strict=True) for number, own in found.items()}
    lines = []
    for number in numbers:
        pieces = templates[number].split(b"\xff")
        held = next(columns[number]) if len(pieces) > 1 else ()
        lines.append(b"".join(itertools.chain.from_iterable(zip(pieces, [*held, b""], strict=True))))
    assert sum(map(len, lines)) == total
    return lines


def variable(page: bytes, kind: int, count: int, words: list[bytes], earlier: list[list[bytes]]) -> list[bytes]:
    if kind == 0:
        return texts(page, count, None)
    if kind == 2:
        return [words[number] for number in integers(page, count)]
    if kind == 3:
        return earlier[int.from_bytes(page, "little")]
    width, prefix, suffix = struct.unpack_from("<BHH", page)
    before, after = page[5 : 5 + prefix], page[5 + prefix : 5 + prefix + suffix]
    digits = integers(page[5 + prefix + suffix :], count)
    return [before + str(number).zfill(width).encode() + after for number in digits]


def cut(data: bytes) -> tuple[bytes, bytes]:
    size = int.from_bytes(data[:4], "little")
    return data[4 : 4 + size], data[4 + size :]


def directory(data: bytes) -> dict[str, Any]:
    nodes, leaves, dictionaries, blocks, pages = struct.unpack_from("<5I", data)
    counts = [nodes, nodes, leaves, leaves, *[dictionaries] * 5, blocks, *[pages] * 4]
    found: list[Any] = []
    first, rest = some_parts(data[20:], 14)
    for part, count in zip(first, counts, strict=True):
        found.append(texts(part, count, None) if len(found) == 1 else integers(part, count))
    places = zip(*found[4:9], strict=True)
    listed, at = [], 0
    for size in found[9]:
        own, begin = {}, 0
        for leaf, length, count, checksum in list(zip(*found[10:14], strict=True))[at : at + size]:
            own[leaf] = (begin, length, count, checksum & MASK)
            begin += length
        listed.append(own)
        at += size
    return {
        "parents": found[0],
        "keys": found[1],
        "nodes": found[2],
        "kinds": found[3],
        "dictionaries": {leaf: {"at": a, "len": n, "count": c, "sum": s & MASK} for leaf, a, n, c, s in places},
        "blocks": listed,
        "lines": lines_of(rest, blocks) if rest else {},
    }


def lines_of(data: bytes, blocks: int) -> dict[int, dict[str, Any]]:
    """Return, by leaf, where the templates, the words and the postings of each block are."""
    (count,) = struct.unpack_from("<I", data)
    counts = [count, count, *[2 * count] * 4, *[count * blocks] * 3]
    leaves, every_word, *places = (integers(*each) for each in zip(parts(data[4:], 9), counts, strict=True))
    dictionaries = [{"at": a, "len": n, "count": c, "sum": s & MASK} for a, n, c, s in zip(*places[:4], strict=True)]
    listed = [{"at": a, "len": n, "sum": s & MASK} for a, n, s in zip(*places[4:], strict=True)]
    assert set(every_word) <= {0, 1}
    return {
        leaf: {
            "places": [
                *dictionaries[2 * at : 2 * at + 2],
                *(p for p in listed[at * blocks : (at + 1) * blocks] if p["len"]),
            ],
            "dictionaries": dictionaries[2 * at : 2 * at + 2],
            "postings": listed[at * blocks : (at + 1) * blocks],
        }
        for at, leaf in enumerate(leaves)
    }


def shredded(data: bytes, known: dict[str, Any], block: int, rows: int, whole: bytes) -> list[bytes | None]:
    pages = {}
    for leaf, (begin, length, count, checksum) in known["blocks"][block].items():
        pages[leaf] = (data[begin : begin + length], count)
        assert xxhash.xxh3_64_intdigest(pages[leaf][0]) == checksum
    shapes_page = pages.pop(-1)[0]
    shape_count, leaf_count = struct.unpack_from("<2I", shapes_page)
    bits, sizes, listed, numbers = parts(shapes_page[8:], 4)
    valid = booleans(bits, rows)
    leaves = iter(integers(listed, leaf_count))
    shapes = [[next(leaves) for _ in range(size)] for size in integers(sizes, shape_count)]
    rest = iter(texts(*pages.pop(-2), None) if -2 in pages else [])
    columns = {leaf: iter(_items(page, count, leaf, known, whole)) for leaf, (page, count) in pages.items()}
    for leaf in set(known["lines"]) & set(pages):
        place, (page, count) = known["lines"][leaf]["postings"][block], pages[leaf]
        if place["len"]:
            own = [each.decode() for each in texts(page, count, _lines_at(known, leaf, whole))]
            check_postings(_verified(place, whole), own)
    row_shapes = iter(integers(numbers, sum(valid)))
    found: list[bytes | None] = []
    for is_valid in valid:
        if not is_valid:
            found.append(None)
            continue
        held = []
        for leaf in shapes[next(row_shapes)]:
            kind = known["kinds"][leaf]
            item = b"\xf6" if kind == 0 else b"\xa0" if kind == 1 else next(columns.get(leaf, rest))
            held.append((_way(known, known["nodes"][leaf]), item))
        found.append(_value(held, 0))
    return found


def _items(page: bytes, count: int, leaf: int, known: dict[str, Any], whole: bytes) -> list[bytes]:
    """Return the values of a leaf as CBOR."""
    kind = known["kinds"][leaf]
    if kind == 2:
        return [b"\xf5" if each else b"\xf4" for each in booleans(page, count)]
    if kind == 3:
        return [head(0, each) if each >= 0 else head(1, -1 - each) for each in integers(page, count)]
    if kind == 4:
        return [_shortest(each) for each in reals(page, count)]
    words: Any = _lines_at(known, leaf, whole) if leaf in known["lines"] else None
    if (place := known["dictionaries"].get(leaf)) is not None:
        words = texts(_verified(place, whole), place["count"], None)
    found = texts(page, count, words)
    return [head(3, len(text)) + text for text in found] if kind == 5 else found


def _lines_at(known: dict[str, Any], leaf: int, whole: bytes) -> list[list[bytes]]:
    return [texts(_verified(place, whole), place["count"], None) for place in known["lines"][leaf]["dictionaries"]]


def _verified(place: dict[str, Any], whole: bytes) -> bytes:
    stored = whole[place["at"] : place["at"] + place["len"]]
    assert xxhash.xxh3_64_intdigest(stored) == place["sum"]
    return stored


def _way(known: dict[str, Any], node: int) -> list[bytes]:
    way = []
    while node:
        way.append(known["keys"][node])
        node = known["parents"][node]
    return way[::-1]


def _value(held: list[tuple[list[bytes], bytes]], depth: int) -> bytes:
    if len(held) == 1 and len(held[0][0]) == depth:
        return held[0][1]
    groups: list[tuple[bytes, list[tuple[list[bytes], bytes]]]] = []
    for way, item in held:
        if not groups or groups[-1][0] != way[depth]:
            groups.append((way[depth], []))
        groups[-1][1].append((way, item))
    pairs = (head(3, len(key)) + key + _value(own, depth + 1) for key, own in groups)
    return head(5, len(groups)) + b"".join(pairs)


def head(major: int, argument: int) -> bytes:
    if argument < 24:
        return bytes([major << 5 | argument])
    size = next(size for size in (1, 2, 4, 8) if argument < 1 << 8 * size)
    return bytes([major << 5 | {1: 24, 2: 25, 4: 26, 8: 27}[size]]) + argument.to_bytes(size, "big")


def _shortest(value: float) -> bytes:
    if value != value:
        return b"\xf9\x7e\x00"
    for mark, form in ((b"\xf9", ">e"), (b"\xfa", ">f")):
        try:
            packed = struct.pack(form, value)
        except OverflowError:
            continue
        if struct.unpack(form, packed)[0] == value:
            return mark + packed
    return b"\xfb" + struct.pack(">d", value)


def parts(data: bytes, count: int) -> list[bytes]:
    found, rest = some_parts(data, count)
    assert not rest
    return found


def some_parts(data: bytes, count: int) -> tuple[list[bytes], bytes]:
    found = []
    for _ in range(count):
        part, data = cut(data)
        found.append(part)
    return found, data


def narrow(raw: bytes, width: int) -> list[int]:
    return [int.from_bytes(raw[at : at + width], "little") for at in range(0, len(raw), width)]


def signed(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63


def unzstd(data: bytes, size: int) -> bytes:
    return bytes(pa.decompress(data, decompressed_size=size, codec="zstd", asbytes=True))
