"""What comes of random models: compiled several at a time, run, compared with what they should give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from onnx import NodeProto

import tilewright as tw
from fuzz import control, movement, pointwise, products, quantized, reductions, resizing  # noqa: F401
from fuzz.drawing import Model, draw, free_names, put_together
from fuzz.judging import wrong_results
from fuzz.recipes import RECIPES
from fuzz.refusals import is_limit
from tilewright.report.errors import RuntimeFault, UserError


@dataclass(frozen=True)
class Outcome:
    """Of one model: right, refused (for a documented limit), or a defect, and what there is to say about it."""

    seed: int
    kind: str
    text: str
    operators: tuple[str, ...] = ()


def drawn(seed: int) -> Model:
    """The model with this number."""
    return draw(seed, RECIPES)


def of_models(models: Sequence[Model]) -> list[Outcome]:
    """What comes of models that share a version of the operator set, compiled as one; of each by itself where that is
    not right."""
    kind, text = outcome(models)
    if kind == "right":
        return [Outcome(m.seed, kind, "", tuple(m.operators)) for m in models]
    found = [Outcome(m.seed, *outcome([m]), tuple(m.operators)) for m in models]
    if all(o.kind == "right" for o in found):  # only together they fail
        found[0] = Outcome(
            found[0].seed, "defect", f"together with those up to {models[-1].seed}: {text}", found[0].operators
        )
    return found


def outcome(models: Sequence[Model]) -> tuple[str, str]:
    """(right, refused or defect; what there is to say about it)."""
    feeds = {name: a for m in models for name, a in m.feeds.items()}
    try:
        exe = tw.compile(put_together(models), denormals="keep")  # as the reference does
        found = exe.run(feeds)
        for model in models:
            wrong = wrong_results(model, found)
            if wrong:
                return "defect", wrong
    except (RuntimeFault, UserError) as error:
        return ("refused" if is_limit(models, error) else "defect"), str(error)
    except Exception as error:
        return "defect", f"{type(error).__name__}: {error}"
    return "right", ""


def reduced(model: Model) -> tuple[Model, tuple[str, str]]:
    """The least part of a model, of those that end at one of its results or leave out a node, of which the same kind
    comes; and what comes of it."""
    found = outcome([model])
    for node in reversed(model.nodes):
        part = without(model, node)
        came = outcome([part]) if part.nodes else ("right", "")
        if came[0] == found[0]:
            model, found = part, came
    return model, found


def without(model: Model, node: NodeProto) -> Model:
    """The model without a node and what follows from it. What else it computed stays a result if nothing takes it."""
    gone = set(node.output)
    kept = []
    for n in model.nodes:
        if n is node or gone & free_names(n).keys():
            gone |= set(n.output)
        else:
            kept.append(n)
    used = {name for n in kept for name in free_names(n)}
    made = {name for n in kept for name in n.output}
    return replace(
        model,
        nodes=kept,
        inputs=[i for i in model.inputs if i.name in used],
        constants={name: a for name, a in model.constants.items() if name in used},
        feeds={name: a for name, a in model.feeds.items() if name in used},
        expected={n: a for n, a in model.values.items() if n in made and (n in model.expected or n not in used)},
    )
