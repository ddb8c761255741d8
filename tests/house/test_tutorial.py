"""The page of schedules names every primitive, and its table has a row for each step that the benchmark finds on it."""

from __future__ import annotations

import re

import pytest
from benchmarks.timing import Samples
from benchmarks.tutorial import PAGE, describe, is_parallel, programs, section_of, stages, titled_code

from tilewright.schedule.schedule import PRIMITIVES

TEXT = PAGE.read_text(encoding="utf-8")
SMALL = '''# A page

## A matrix product, step by step

```python
SIZE = 4
def show(s):
    print(s.func)
```

### Loops

```python
matmul = tw.parse(f"""
func matmul(x: f32[{SIZE}, {SIZE}], w: f32[{SIZE}, {SIZE}], y: f32[{SIZE}, {SIZE}]):
  for i in 0..{SIZE}, j in 0..{SIZE}, k in 0..{SIZE}:
    block dot(vi = i, vj = j, reduce vk = k):
      init: y[vi, vj] = 0.0
      y[vi, vj] += x[vi, vk] * w[vk, vj]
""")
s = tw.Schedule(matmul)
show(s)
```

### Threads

```python
s.parallel("i")
```

```python
print(s.trace)
```

## Something else

```python
raise AssertionError
```
'''


def test_every_primitive_has_a_row() -> None:
    rows = re.findall(r"^\| (`.*?`) \|", section_of(TEXT, "All primitives"), re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(named) == sorted(PRIMITIVES)


def test_the_table_has_a_row_for_each_step() -> None:
    section = section_of(TEXT)
    table = section.split("<!-- tutorial: begin -->")[1].split("<!-- tutorial: end -->")[0]
    rows = re.findall(r"^\| (?!after|---)([^|]*?) \|", table, re.MULTILINE)
    steps = list(dict.fromkeys(title for title, _ in titled_code(section) if title))
    assert [row for row in rows if " cores" not in row] == [*steps, "The compiler's own schedule"]


def test_stages_are_the_programs_of_another_size() -> None:
    found = stages(SMALL, 12)
    assert [stage.title for stage in found] == ["Loops", "Threads", "The compiler's own schedule"]
    assert all("x: f32[12, 12]" in str(stage.function) for stage in found)
    assert [is_parallel(stage.function) for stage in found[:2]] == [False, True]


def test_programs_are_called_with_every_number_of_threads() -> None:
    calls = programs(stages(SMALL, 12)[:2], 12)
    assert list(calls)[:2] == ["Loops", "Threads"]
    for call in calls.values():
        call()


def test_rates_are_of_the_best_call() -> None:
    report = describe({"Loops": Samples((4e-6, 2e-6))}, 4e9, 10)
    assert report.rows == [("Loops", "1.0", "25.0%")]


def test_a_page_without_the_section_is_refused() -> None:
    with pytest.raises(ValueError, match="step by step"):
        section_of("# Nothing\n")
