"""Wrong targets and the whole message each gets."""

from __future__ import annotations

import dataclasses
import re

import pytest

from tilewright.report.errors import UserError
from tilewright.target import Target
from tilewright.target import target as target_module
from tilewright.target.features import known_features
from tilewright.target.host import current_host

NAMES = "native, x86-64, x86-64-v2, x86-64-v3, x86-64-v4, aarch64, riscv64, wasm"


@pytest.mark.parametrize("text", ["", "znver5", "x86-64-v5", "x86-64k", "x86", "+avx2", "native2"])
def test_an_unknown_target(text: str) -> None:
    with pytest.raises(UserError) as fault:
        Target.parse(text)
    message = f"""\
unknown target {text!r}
why:  a target is a name, then features to add or take away
fix:  take one of {NAMES}; with features: x86-64-v3 +avxvnni -f16c"""
    assert str(fault.value) == message


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("aarch64 +avx2", "+avx2"),
        ("aarch64 +dotprod -neon2 +sve", "-neon2 +sve"),
        ("aarch64 dotprod", "dotprod"),
        ("aarch64 +", "+"),
        ("aarch64 ++sve", "++sve"),
        ("aarch64 +sve+", "+"),
    ],
)
def test_an_unknown_feature(text: str, place: str) -> None:
    with pytest.raises(UserError) as fault:
        Target.parse(text)
    assert (
        str(fault.value)
        == f"""\
unknown feature in target {text!r}
at:   {place}
why:  a change is + or - and one of {", ".join(known_features("aarch64"))}
fix:  leave it out, or write for example aarch64 +aes"""
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("riscv64 -d", "every riscv64 machine has d, which calls of functions need"),
        ("riscv64 +v -f", "every riscv64 machine has d and f, which calls of functions need"),
        ("x86-64-v3 -sse2", "every x86_64 machine has sse2, which calls of functions need"),
        ("aarch64 -fp-armv8", "every aarch64 machine has fp-armv8 and neon, which calls of functions need"),
        ("aarch64 +sve256 +sve512", "vectors have one length, not those of sve256 and sve512"),
    ],
)
def test_no_machine_is_so(text: str, why: str) -> None:
    with pytest.raises(UserError) as fault:
        Target.parse(text)
    assert str(fault.value) == f"no machine is the target {text!r}\nwhy:  {why}\nfix:  leave the change out"


def test_an_architecture_without_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    host = dataclasses.replace(current_host(), triple="loongarch64-unknown-linux-gnu")
    monkeypatch.setattr(target_module, "current_host", lambda: host)
    target_module.native.cache_clear()
    try:
        with pytest.raises(UserError) as fault:
            Target.parse("native")
    finally:
        target_module.native.cache_clear()
    assert (
        str(fault.value)
        == """\
there is no machine model for loongarch64
at:   loongarch64-unknown-linux-gnu
why:  the models are for x86_64, aarch64, riscv64 and wasm32
fix:  compile for another machine by naming its target, such as x86-64-v3"""
    )


def test_what_the_message_proposes_is_right() -> None:
    with pytest.raises(UserError) as fault:
        Target.parse("nothing")
    names, proposal = re.fullmatch(r"take one of (.*); with features: (.*)", fault.value.fix).groups()
    for text in (*names.split(", "), proposal):
        assert str(Target.parse(text)) == text
