"""What a run needs to go on after it was interrupted."""

import re
from pathlib import Path
from typing import Any, Protocol

import keras
from keras import ops

from utils.errors import UserError
from utils.folder_lock import lock_folder
from utils.log import logger
from utils.paths import atomic_path, read_json, write_json
from utils.weights_size import weights_size

FORMAT = 1
KEPT = 2  # states: should the newest turn out damaged, the one before it is there
_NAME = "epoch_{}"
_SEED_STATE = "seed_generator_state"  # what Keras calls the variable of dropout's random numbers


class Part(Protocol):
    """A callback with something to remember, as values that JSON can hold."""

    def state(self) -> dict[str, Any]:
        """What to remember after an epoch."""

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `state` returned."""


class RunState(keras.callbacks.Callback):
    """Writes the state of the run after every epoch; must be the last of the callbacks.

    `epoch_<n>.weights.h5` has model and optimizer, `epoch_<n>.json`, written after it, the rest:
    only the two together count. The states of the last two epochs are kept. While this object
    exists, no other process can write states into the folder.

    Args:
        folder: where the states lie.
        identity: what the run is, written along.
        parts: callbacks whose memory belongs to the run, by name.
        writes: whether this process writes (others of the same run only keep the history).

    Attributes:
        epoch: whole epochs behind the run.
        finished: whether the restored run had come to its end, results included.
        history: every logged value of every epoch, from the first one of the run.
    """

    def __init__(
        self, folder: Path, identity: dict[str, Any], parts: dict[str, Part], writes: bool = True
    ):
        super().__init__()
        self._folder, self.identity, self._parts = folder, identity, parts
        self._writes = writes
        self._lock = lock_folder(folder, "CALLBACKS.MODEL_CHECKPOINT.PATH") if writes else None
        self.epoch, self.finished = 0, False
        self.history: dict[str, list[float]] = {}

    def restore(self, model: keras.Model, states: list[dict[str, Any]]) -> None:
        """Bring the compiled `model` and all parts to the first of `states` that is undamaged.

        The learning rate stays the one that `model` was compiled with; a schedule goes on by the
        steps behind.

        Raises:
            UserError: none of them can be read.
        """
        optimizer = model.optimizer
        if not optimizer.built:  # state does not load into what is not there
            optimizer.build(model.trainable_variables)
        has_schedule = not isinstance(optimizer.learning_rate, keras.Variable)
        rate = ops.convert_to_numpy(optimizer.learning_rate)
        for state in states:
            path = self._weights(state["epoch"])
            try:
                model.load_weights(path)
                steps = int(ops.convert_to_numpy(optimizer.iterations))
                if steps != state["steps"]:
                    raise ValueError(f"found {steps} steps; expected {state['steps']}")
            except (OSError, ValueError, KeyError) as error:
                logger.warning(f"{path}: cannot be loaded ({str(error).strip().splitlines()[0]})")
                continue
            if not has_schedule:
                optimizer.learning_rate = rate
            for variable, value in zip(_seed_states(model), state["seeds"], strict=True):
                variable.assign(value)
            for name, part in state["parts"].items():
                self._parts[name].restore(part)
            self.epoch, self.history = state["epoch"], state["history"]
            self.finished = state["finished"]
            return
        raise UserError(
            f"RESUME: no state in {self._folder} can be loaded; RESUME=False starts anew"
        )

    def on_epoch_end(self, epoch: int, logs: dict[str, float]) -> None:
        """Take the epoch's numbers down and write the state."""
        self.epoch, self.finished = epoch + 1, False
        for name, value in logs.items():
            self.history.setdefault(name, []).append(float(value))
        if not self._writes:
            return
        with atomic_path(self._weights(self.epoch), weights_size(self.model)) as temporary:
            self.model.save_weights(temporary)
        self._write()
        delete_states(self._folder, kept=KEPT)

    def finish(self) -> None:
        """Note that nothing is left to do, results included."""
        self.finished = True
        if self._writes:
            self._write()

    def _write(self) -> None:
        state = {
            "format": FORMAT,
            "epoch": self.epoch,
            "finished": self.finished,
            "steps": int(ops.convert_to_numpy(self.model.optimizer.iterations)),
            "seeds": [ops.convert_to_numpy(v).tolist() for v in _seed_states(self.model)],
            "parts": {name: part.state() for name, part in self._parts.items()},
            "history": self.history,
            "identity": self.identity,
        }
        write_json(_state_file(self._folder, self.epoch), state)

    def _weights(self, epoch: int) -> Path:
        return self._folder / f"{_NAME.format(epoch)}.weights.h5"


def read_states(folder: Path) -> list[dict[str, Any]]:
    """The states in `folder`, the newest first; none where no run was interrupted.

    Raises:
        UserError: a state was written by another version of this software.
    """
    states = [
        read_json(_state_file(folder, epoch), "The state of the run")
        for epoch in list_states(folder)
    ]
    for state in states:
        if state.get("format") != FORMAT:
            raise UserError(
                f"RESUME: the state in {folder} has format {state.get('format')!r}; this version "
                f"reads {FORMAT}"
            )
    return states


def list_states(folder: Path) -> list[int]:
    """The epochs after which the states in `folder` were written, the newest first."""
    pattern = re.compile(_NAME.format(r"(\d+)\.json"))
    matches = [pattern.fullmatch(path.name) for path in folder.glob("*.json")]
    return sorted((int(match[1]) for match in matches if match), reverse=True)


def delete_states(folder: Path, kept: int = 0) -> None:
    """Remove all but the newest `kept` states, and what a killed process left half written."""
    names = [_NAME.format(epoch) for epoch in list_states(folder)[:kept]]
    for suffix in (".json", ".weights.h5"):  # in this order: without its JSON a state is none
        for path in folder.glob(f"*{suffix}"):
            if path.name.removesuffix(suffix) not in names:
                path.unlink()


def _state_file(folder: Path, epoch: int) -> Path:
    return folder / f"{_NAME.format(epoch)}.json"


def _seed_states(model: keras.Model) -> list[keras.Variable]:
    """The random number states of the layers, which weight files leave out."""
    return [variable for variable in model.variables if variable.name == _SEED_STATE]
