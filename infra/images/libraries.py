"""Installs libraries into a folder of an image: from wheels where some were prepared, without what is never imported.

python3 libraries.py FOLDER REQUIREMENTS [REQUIREMENT…] [--beside FOLDER] [--index URL] [--warm MODULE,MODULE]

Runs inside the build, with whatever Python the base image holds, and with nothing but its standard library.
"""

from __future__ import annotations

import argparse
import compileall
import os
import py_compile
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

WHEELS = Path("/wheels")
SEARCHED = ("tests", "SelfTest", "benchmarks")
"""Folders of these names hold a library's own tests, wherever they are."""

PRUNED = (
    "bin",
    "pyarrow/include", "pyarrow/src", "pyarrow/includes", "pyarrow/*.pyx", "pyarrow/*.pxi", "pyarrow/*.pxd",
    "pyarrow/*flight*", "pyarrow/*s3*", "pyarrow/_gcsfs*", "pyarrow/_azurefs*", "pyarrow/_hdfs*", "pyarrow/*orc*",
    "pyarrow/*gandiva*", "pyarrow/_cuda*", "pyarrow/_pyarrow_cpp_tests*", "pyarrow/*.so.*.*.*",
    "numpy/_core/include", "numpy/_core/lib/*.a", "numpy/random/lib/*.a", "numpy/f2py",
    "zstandard/_cffi*",
    "torch/bin/test*", "torch/bin/protoc*", "torch/include", "torch/share", "torch/test", "torch/lib/*test*.so",
)  # fmt: skip
"""Headers, sources, doubles, and the parts that link with file systems and protocols that no service speaks."""


def install(folder: Path, wanted: list[str], beside: Path | None, index: str) -> None:
    """Install the requirements (files end in .txt) into the folder; what lies beside already is not put in again."""
    pip = [sys.executable, "-m", "pip"]
    if subprocess.run([*pip, "--version"], capture_output=True).returncode:
        found = sorted(WHEELS.glob("pip-*.whl"))
        if not found:
            sys.exit("libraries: this base image has no pip, and no wheel of it was prepared: infra/images/wheels.sh")
        pip = [sys.executable, f"{found[-1]}/pip"]
    source = ["--no-index", "--find-links", str(WHEELS)] if WHEELS.is_dir() else []
    source += ["--extra-index-url", index] if index and not source else []
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
        if beside:
            listed = [*pip, "list", "--format", "freeze", "--disable-pip-version-check", "--path", str(beside)]
            constraints.write(subprocess.run(listed, check=True, capture_output=True, text=True).stdout)
            constraints.flush()
        requirements = [x for name in wanted for x in (["--requirement", name] if name.endswith(".txt") else [name])]
        subprocess.run(
            [
                *pip, "install", "--quiet", "--disable-pip-version-check", "--no-cache-dir", "--no-compile",
                "--root-user-action", "ignore", "--only-binary", ":all:", *source,
                "--constraint", constraints.name, "--target", str(folder), *requirements,
            ],
            check=True,
        )  # fmt: skip
    for entry in list(folder.iterdir()) if beside else []:
        if beside and (beside / entry.name).exists():
            remove(entry)


def remove(path: Path) -> None:
    """Remove a file or a folder."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def prune(folder: Path) -> None:
    """Take away what is never imported, and link names that pip has copied."""
    for pattern in PRUNED:
        for path in list(folder.glob(pattern)):
            remove(path)
    for at, names, _ in os.walk(folder):
        for name in [n for n in names if n in SEARCHED]:
            shutil.rmtree(Path(at) / name)
            names.remove(name)


def precompile(folder: Path, warm: str) -> None:
    """Byte code for everything, or, with modules named, for exactly what importing them loads."""
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH  # the same bytes in every build, and no look at the source
    if not warm:
        compileall.compile_dir(folder, quiet=2, workers=0, invalidation_mode=mode)
        return
    code = (
        f"import sys; sys.dont_write_bytecode = True\nimport {warm}\n"
        "print('\\n'.join(m.__file__ for m in sys.modules.values() if str(getattr(m, '__file__', '')).endswith('.py')))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True).stdout
    for file in loaded.splitlines():
        if Path(file).is_relative_to(folder):
            py_compile.compile(file, quiet=2, invalidation_mode=mode)


def main() -> None:
    """Install, prune, precompile; prints the size of what is left."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("requirements", nargs="+")
    parser.add_argument("--beside", type=Path)
    parser.add_argument("--index", default="")
    parser.add_argument("--warm", default="")
    asked = parser.parse_args()
    folder = asked.folder.resolve()
    install(folder, asked.requirements, asked.beside, asked.index)
    prune(folder)
    paths = [str(p) for p in (folder, asked.beside) if p]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    precompile(folder, asked.warm)
    size = sum(f.lstat().st_size for f in folder.rglob("*") if not f.is_dir())
    print(f"libraries: {size / 1e6:.0f} MB in {folder}", flush=True)


if __name__ == "__main__":
    main()
