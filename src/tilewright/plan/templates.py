"""The templates of the package: a row each. Importing this module registers them."""

from __future__ import annotations

from typing import Any, Final

from tilewright.plan.attention.pieces import Pieces
from tilewright.plan.attention.template import Attentions
from tilewright.plan.gemm.template import Contractions
from tilewright.plan.gemm.transposed import TransposedContractions
from tilewright.plan.nests.template import Nests
from tilewright.plan.template import Template, register
from tilewright.plan.transforms.strassen import StrassenInput, StrassenOutput
from tilewright.plan.transforms.winograd import WinogradInput, WinogradOutput
from tilewright.plan.triangle import TriangularProducts
from tilewright.plan.window.channels_last import ChannelsLast
from tilewright.plan.window.columns import Columns, DynamicWindows
from tilewright.plan.window.shared import SharedVectors, Transposed

TEMPLATES: Final[tuple[Template[Any, Any], ...]] = (
    Attentions(),
    Pieces(),
    WinogradInput(),
    WinogradOutput(),
    StrassenInput(),
    StrassenOutput(),
    Columns(),
    DynamicWindows(),
    SharedVectors(),
    Transposed(),
    ChannelsLast(),
    TransposedContractions(),
    Contractions(),
    TriangularProducts(),
    Nests(),
)
"""Every kernel has a way to run: `nests` recognises all."""

for _template in TEMPLATES:
    register(_template)
