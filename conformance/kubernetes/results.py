"""Results of the suite: the output of `go test -v`, split by test, and its comparison with the known failures."""

import re
from pathlib import Path
from types import TracebackType
from typing import TextIO

RESULT = re.compile(r"\s*--- (PASS|FAIL|SKIP): TestConformance/(\w+) \(([\d.]+)s\)$")
SECTION = re.compile(r"=== (?:RUN|CONT|NAME)\s+TestConformance(?:/(\w+))?")
TAIL_LINES = 30
# Lines of a failed test that are printed.
REASON_LINES = 6


class SuiteLog:
    """Writes the output to a file, and that of each failed test to a file of its own."""

    def __init__(self, path: Path, folder: Path):
        self.path, self.folder = path, folder
        # Test -> PASS, FAIL or SKIP.
        self.results: dict[str, str] = {}
        self.lines: dict[str, list[str]] = {}
        self.current = ""
        self.out: TextIO | None = None

    def __enter__(self) -> "SuiteLog":
        self.out = self.path.open("w")
        self.folder.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        if self.out:
            self.out.close()

    def take(self, line: str) -> str | None:
        """Takes a line; the text to print if the line is the result of a test that was wanted."""
        assert self.out
        self.out.write(line)
        self.out.flush()
        if section := SECTION.match(line):
            self.current = section[1] or ""
        self.lines.setdefault(self.current, []).append(line)
        result = RESULT.match(line)
        if not result or result[2] in self.results:
            return None
        outcome, name, seconds = result.groups()
        self.results[name] = outcome
        own = self.lines.pop(name, [])
        if outcome != "FAIL":
            return f"{outcome} {name} ({seconds} s)" if outcome == "PASS" else None
        (self.folder / f"{name}.log").write_text("".join(own))
        return f"FAIL {name} ({seconds} s)\n{reason(own)}"

    def tail(self) -> str:
        return "\n".join(self.path.read_text().splitlines()[-TAIL_LINES:])


def reason(lines: list[str]) -> str:
    """The lines of a failed test that begin at its first error."""
    starts = [number for number, line in enumerate(lines) if re.search(r"\bError:|FailNow|panic:", line)]
    begin = starts[0] if starts else max(len(lines) - REASON_LINES, 0)
    return "".join(f"     {line}" for line in lines[begin:begin + REASON_LINES]).rstrip()


def read_known_failures(path: Path) -> dict[str, str]:
    """Test -> reason."""
    known = {}
    for line in path.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            name, reason_of = (part.strip() for part in line.split("|", 1))
            known[name] = reason_of
    return known


def judge(results: dict[str, str], known: dict[str, str], wanted: list[str]) -> int:
    """Prints unexpected results and the sum; returns the number of unexpected ones. All tests are wanted if none is named."""
    # The suite skips the tests of mesh profiles, which are no concern of a gateway.
    results = {name: outcome for name, outcome in results.items() if (outcome, name[:4]) != ("SKIP", "Mesh")}
    unexpected = []
    # Without names, a test that the suite skips is one whose feature is not claimed.
    for name, outcome in sorted(results.items()):
        if wanted and name not in wanted:
            continue
        if outcome == "PASS" and name in known:
            unexpected.append(f"PASSED {name}, which known_failures.txt says fails: {known[name]}")
        elif outcome != "PASS" and name not in known:
            unexpected.append(f"{'FAILED' if outcome == 'FAIL' else 'SKIPPED'} {name}")
    missing = [name for name in wanted or known if name not in results]
    unexpected += [f"MISSING {name}: it did not run" for name in missing]
    for line in unexpected:
        print(line)
    counted = [outcome for name, outcome in results.items() if not wanted or name in wanted]
    print(f"{counted.count('PASS')} passed, {counted.count('FAIL')} failed, {counted.count('SKIP')} skipped, "
          f"{len(unexpected)} unexpected")
    return len(unexpected)
