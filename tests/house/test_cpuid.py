"""Features as processors and systems tell them, of machines that are not at hand."""

from __future__ import annotations

from tilewright.target.cpuid import TILES, find_features, kept_for
from tilewright.target.features import known_features
from tilewright.target.host import read_arm_features, read_riscv_features

Leaves = dict[tuple[int, int], tuple[int, int, int, int]]
FULL: Leaves = {
    (0, 0): (0x24, 0, 0, 0),
    (1, 0): (0, 0, 0xFFFF_FFFF, 0xFFFF_FFFF),
    (7, 0): (1, 0xFFFF_FFFF, 0xFFFF_FFFF, 0xFFFF_FFFF),
    (7, 1): (0xFFFF_FFFF, 0, 0, 0xFFFF_FFFF),
    (0x1E, 1): (0xFFFF_FFFF, 0, 0, 0),
    (0x24, 0): (0, 2, 0, 0),
    (0x8000_0000, 0): (0x8000_0008, 0, 0, 0),
    (0x8000_0001, 0): (0, 0, 0xFFFF_FFFF, 0xFFFF_FFFF),
}
"""A processor that has everything."""


def features_of(leaves: Leaves, saved: int) -> frozenset[str]:
    """What is found on a processor that answers so, and otherwise, as processors do, with anything."""
    return find_features(lambda leaf, subleaf: leaves.get((leaf, subleaf), (0xFFFF_FFFF,) * 4), lambda: saved)


def test_what_a_processor_tells_is_read_by_leaf_and_by_what_the_system_saves() -> None:
    known = set(known_features("x86_64"))
    assert features_of(FULL, 0xFFFF_FFFF) == known
    plain = features_of(FULL, 0)
    assert {"sse4.2", "bmi2", "popcnt"} <= plain and not {"avx", "fma", "vaes", "avx512f", "amx-tile"} & plain
    vectors = features_of(FULL, 0b111)
    assert {"avx2", "fma", "avxvnni"} <= vectors and not {"avx512f", "avx512bf16", "amx-tile", "avx10.1"} & vectors
    assert not {"amx-tile"} & features_of(FULL, 0xE7) and "avx10.2" in features_of(FULL, 0xE7)
    unsaved = {**FULL, (1, 0): (0, 0, 0xFFFF_FFFF & ~(1 << 27), 0xFFFF_FFFF)}
    assert features_of(unsaved, 0xFFFF_FFFF) == plain, "the system must say that it saves anything"


def test_a_process_that_is_refused_tiles_has_none() -> None:
    everything = 0xFFFF_FFFF
    assert "amx-bf16" in features_of(FULL, kept_for(everything, lambda: True))
    refused = features_of(FULL, kept_for(everything, lambda: False))
    assert refused == {name for name in known_features("x86_64") if not name.startswith("amx-")}
    asked: list[bool] = []
    assert kept_for(0xE7, lambda: not asked.append(True)) == 0xE7 and not asked, "a system without tiles is not asked"
    assert kept_for(0xE7 | TILES, lambda: True) == 0xE7 | TILES


def test_leaves_that_a_processor_has_not_are_not_believed() -> None:
    old = {**FULL, (0, 0): (1, 0, 0, 0)}
    assert "avx" in features_of(old, 7) and not {"avx2", "avxvnni", "bmi"} & features_of(old, 7)
    assert not {"avxvnni", "sha512"} & features_of({**FULL, (7, 0): (0, *FULL[7, 0][1:])}, 7)
    assert not {"lzcnt", "64bit"} & features_of({**FULL, (0x8000_0000, 0): (0x8000_0000, 0, 0, 0)}, 7)
    older = features_of({**FULL, (0x24, 0): (0, 1, 0, 0)}, 0xE7)
    assert "avx10.1" in older and "avx10.2" not in older


def test_arm_features_are_read_from_the_words_of_linux() -> None:
    graviton = "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp"
    assert read_arm_features(graviton) == {"fp-armv8", "neon", "crc", "lse", "aes", "sha2"}
    assert read_arm_features("fp asimd aes sve sve2") == {"fp-armv8", "neon", "sve", "sve2"}
    assert set(read_arm_features(f"{graviton} sve sve2")) <= set(known_features("aarch64"))


def test_risc_v_features_are_read_from_the_text_of_linux() -> None:
    read = read_riscv_features("rv64imafdcv_zicbom_zicsr_zihintpause_zvl256b_sstc")
    assert read & set(known_features("riscv64")) == {
        *("64bit", "m", "a", "f", "d", "c", "v", "zihintpause", "zvl256b"),
    }
    assert not read_riscv_features("") & set(known_features("riscv64"))
