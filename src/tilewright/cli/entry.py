"""The way into the command line: which commands there are, and the one of them that is loaded.

A command's module imports the compiler, which takes longer than printing a page of help. So `application(words)` loads
the modules of the commands that occur in `words`, by name, and puts a line of help in place of each other one.
This and `--import` (imports.py) are the only places that import by name; a command's module imports what it needs at
its top.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from tilewright import __version__
from tilewright.cli.guard import INTERRUPTED, guarded
from tilewright.cli.streams import end_lost_output, is_lost_output, open_closed_streams
from tilewright.core.frames import with_room

SUMMARIES = {
    "run": "Run a model once and print its outputs.",
    "compile": "Compile a model to one file that runs without the compiler.",
    "bench": "Time a model, against other runtimes where they are installed.",
    "profile": "Show where the time of a call goes, kernel by kernel.",
    "show": "Print a model as it is after any stage of compilation.",
    "why": "Tell why a kernel is as it is, and what else was priced.",
    "tune": "Measure other ways to run a model's kernels; keep the faster.",
    "cache": "List, verify or clear what the store keeps.",
    "doctor": "Print what is known of this machine and installation.",
}
"""The commands in the order of the help, each with the first line of its own help."""

_ABOUT = """A compiler and runtime for machine-learning models.

\b
Examples:
  tilewright run model.onnx --random
  tilewright compile model.onnx -o model.tw
  tilewright bench model.onnx --threads 1
  tilewright profile model.onnx --trace timeline.json
  tilewright show model.onnx --stages
  tilewright why model.onnx conv1
  tilewright tune model.onnx --budget 60s
  tilewright doctor
"""


@with_room
def main() -> None:
    """Run the command that the process was started with, and end the process."""
    words = sys.argv[1:]
    # Python looks for cycles when it ends: among all that a compiler made, for as long as a quarter of compiling it.
    atexit.register(gc.freeze)
    open_closed_streams()
    try:
        application(words)(args=words, prog_name="tilewright")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except OSError as error:
        if not is_lost_output(error):
            raise
        sys.exit(end_lost_output(error))


def application(words: Sequence[str]) -> typer.Typer:
    """The application, able to run the commands that occur in `words` and to describe the others."""
    app = typer.Typer(
        add_completion=False,
        help=_ABOUT,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # the styled help takes longer to import than everything else together
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    )
    app.callback()(_options)
    for name, summary in SUMMARIES.items():
        if name in words:
            module = importlib.import_module(f"tilewright.cli.{name}")
            app.command(name)(guarded(getattr(module, name)))
        else:
            app.command(name, help=summary)(_placeholder())
    return app


def _options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and leave.", callback=lambda on: _version(on), is_eager=True),
    ] = False,
) -> None:
    """The options before the command."""


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tilewright {__version__}")
        raise typer.Exit


def _placeholder() -> Callable[[], None]:
    """What stands for a command that is only listed: a command that runs occurs in the words, and so is loaded."""

    def listed() -> None:
        """Nothing."""

    return listed
