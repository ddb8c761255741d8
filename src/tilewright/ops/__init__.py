"""Operator kinds, one file a family. Importing this package fills the registry."""

from __future__ import annotations

from tilewright.ops import contract as contract
from tilewright.ops import elementwise as elementwise
from tilewright.ops import gather as gather
from tilewright.ops import movement as movement
from tilewright.ops import pad as pad
from tilewright.ops import quantized as quantized
from tilewright.ops import random as random
from tilewright.ops import reduce as reduce
from tilewright.ops import scan as scan
from tilewright.ops import scatter as scatter
from tilewright.ops import sort as sort
from tilewright.ops import strassen as strassen
from tilewright.ops import symbolic as symbolic
from tilewright.ops import window as window
from tilewright.ops import winograd as winograd
