"""Writes the package's name and version as an installation would leave them: the program asks for its own version.

python3 describe.py PYPROJECT FOLDER
"""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path(sys.argv[1]).read_text())["project"]
folder = Path(sys.argv[2]) / f"{project['name']}-{project['version']}.dist-info"
folder.mkdir()
folder.joinpath("METADATA").write_text(
    f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
)
