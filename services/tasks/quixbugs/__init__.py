"""The QuixBugs programs as tasks: an importer of the benchmark's file and our own references for the known names."""

from services.tasks.quixbugs.importer import load_quixbugs
from services.tasks.quixbugs.reader import BadProgram

__all__ = ["BadProgram", "load_quixbugs"]
