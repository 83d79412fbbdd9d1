"""The command line: Hydra in front, one clear message and an exit code behind."""

import os
import re
import shlex
import sys
from collections.abc import Callable

import hydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict

from configs import CONFIG_DIR
from utils.config import validate_config
from utils.errors import EXIT_FAILED_CASES, EXIT_USER_ERROR, FailedCasesError, UserError
from utils.log import setup_logging

_PLAIN_OVERRIDE = re.compile(r"\+?(?P<key>[A-Za-z_][\w.]*)=")


def run_command(task: Callable[[DictConfig], object]) -> None:
    """Compose the configuration from the command line, check it and run `task` on it.

    A mistake of the user's (`UserError`, or an override that Hydra cannot read) is printed without
    a traceback and ends with exit code 2, as does what the system refuses (a full disk, say);
    cases that failed while others went through end with 1.
    """
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # Hydra hands errors on instead of printing them
    sys.argv[1:] = [_forced(argument) for argument in sys.argv[1:]]

    exit_codes = [0]

    @hydra.main(version_base=None, config_path=str(CONFIG_DIR), config_name="config")
    def main(composed: DictConfig) -> None:
        try:
            cfg = validate_config(composed)
            setup_logging(cfg.VERBOSE)
            task(cfg)
        except UserError as error:
            exit_codes.append(_report(str(error), EXIT_USER_ERROR))
        except FailedCasesError as error:
            exit_codes.append(_report(str(error), EXIT_FAILED_CASES))
        except OSError as error:  # a full disk, a folder without permission, a name too long
            where = f"{error.filename}: " if error.filename else ""
            exit_codes.append(_report(f"{where}{error.strerror or error}", EXIT_USER_ERROR))

    try:
        main()
    except HydraException as error:
        hint = "quote lists and spaces, as in 'KEY=[4,5,7]'; --help shows every key"
        exit_codes.append(_report(f"{error}\n({hint})", EXIT_USER_ERROR))
    except KeyboardInterrupt:
        exit_codes.append(_report("Interrupted.", 130))
    sys.exit(max(exit_codes))


def compose_config(*overrides: str, **changes: object) -> DictConfig:
    """The checked configuration for use from Python, a notebook for instance.

    Args:
        overrides: as on the command line, such as "+experiment=phantom".
        changes: sections with values that are hard to write as text, such as
            `DATASET={"VAL": {"IMAGES_PATH": ["a.png", "b.png"]}}`.

    Raises:
        UserError: lists everything that is wrong.
    """
    with hydra.initialize_config_dir(str(CONFIG_DIR), version_base=None):
        composed = hydra.compose("config", [_forced(override) for override in overrides])
    with open_dict(composed):
        return validate_config(OmegaConf.unsafe_merge(composed, changes))


def same_command(script: str, without: tuple[str, ...] = ()) -> str:
    """The command line that runs `script` with this command's overrides.

    Args:
        script: such as "evaluate.py".
        without: beginnings of the keys that do not matter to it.
    """
    overrides = [argument.removeprefix("++") for argument in sys.argv[1:] if "=" in argument]
    kept = [override for override in overrides if not override.startswith(without)]
    return shlex.join(["python", script, *kept])


def _forced(argument: str) -> str:
    """Let Hydra pass every key on, known or not, so that one check reports all of them at once."""
    match = _PLAIN_OVERRIDE.match(argument)
    is_group = match and (CONFIG_DIR / match["key"]).is_dir()
    if not match or is_group or match["key"].startswith("hydra."):
        return argument
    return "++" + argument.removeprefix("+")


def _report(message: str, code: int) -> int:
    # h5py complains once more of a file that it could not write, when it lets go of it
    sys.unraisablehook = lambda ignored: None
    print(f"Error: {message}", file=sys.stderr)
    return code
