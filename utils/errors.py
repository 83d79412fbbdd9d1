"""The one kind of error that is the user's to mend."""

EXIT_USER_ERROR = 2
EXIT_FAILED_CASES = 1


class UserError(ValueError):
    """A mistake in the configuration or the data; shown without a traceback, exit code 2.

    The message names the config key or the file, what was found and what would work.
    """

    @classmethod
    def listing(cls, title: str, problems: list[str], shown: int = 50) -> "UserError":
        """One error out of many `problems`, of which the first `shown` are spelled out."""
        lines = [f"  - {problem}" for problem in problems[:shown]]
        if len(problems) > shown:
            lines.append(f"  … and {len(problems) - shown} more")
        return cls("\n".join([f"{title} ({len(problems)}):", *lines]))


class FailedCasesError(RuntimeError):
    """Some cases could not be processed, the others are finished; exit code 1."""
