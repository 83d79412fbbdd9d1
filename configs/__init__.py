"""The configuration: `config.yaml` holds every default, `schema.py` every type and choice."""

from pathlib import Path

CONFIG_DIR = Path(__file__).resolve().parent
