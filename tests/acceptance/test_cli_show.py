"""`rival show` of a run with composites: a tree for people, everything for programs."""

from __future__ import annotations

from pathlib import Path

from rival_client.settings import Settings
from rival_workers import StepError, create_workflow, embedded, step
from rival_workers.definition.registry import Registry
from tests.acceptance.conftest import Cli


def hello() -> str:
    return "hello"


def numbers(input: int) -> list[int]:
    return list(range(input))


def double(item: int = 7) -> int:
    if item == 7:
        raise ValueError("seven")
    return item * 2


def is_odd(input: int) -> bool:
    return input % 2 == 1


MANY = """run  many
workflow  sums (version <version>)
status  completed
created  <time>
took  <duration>
input  11
result  [0, 2, 4, 6, 8, 10, 12, null, 16, 18, 20]

step  status  attempts  queued  took
hello  completed  1  <duration>  <duration>
odd?  completed  <duration>  <duration>
  odd?!when  completed  1  <duration>  <duration>
  odd?/say  completed  1  <duration>  <duration>
each  completed  <duration>  <duration>
  each!items  completed  1  <duration>  <duration>
{}
"""
FAILED = """
step  attempt  outcome  took  error
{0}  1  failed  <duration>  ValueError: seven

{0}, attempt 1:
  Traceback (most recent call last):
    File "<repository>/tests/acceptance/test_cli_show.py", line …, in double
      raise ValueError("seven")
  ValueError: seven
"""


def item(number: int) -> str:
    status, why = ("failed", "  ValueError: seven") if number == 7 else ("completed", "")
    own = f"  each[{number}]  {status}  <duration>{why}"
    return f"{own}\n    each[{number}]/double  {status}  1  <duration>  <duration>{why}"


def test_a_run_is_a_tree_and_many_items_are_one_line_unless_all_are_requested(bare: Cli, tmp_path: Path) -> None:
    registry = Registry()
    workflow = create_workflow("sums").step(hello).branch("odd?", when=is_odd, then=[step(hello, name="say")])
    workflow = workflow.for_each("each", items=numbers, do=[double], concurrency=4, on_failure="continue")
    workflow.register(registry)
    file = tmp_path / "runs.db"
    with embedded(file, registry=registry) as rival:
        rival.run("sums", 11, "many")
        rival.run("sums", 2, "few")
        assert {rival.wait("sums", run, 20).status for run in ("many", "few")} == {"completed"}
    bare.env["RIVAL_DATABASE_URL"] = Settings(database_url=f"sqlite:///{file}").require_database()

    shown = bare("show", "many")
    folded = "11 items: 10 done, 1 failed (--all shows each)"
    shown.prints(MANY.format(f"  each[…]  {folded}"))
    # In the column of remarks, not in that of durations, which it would widen.
    header, *_, last = shown.out.rstrip("\n").splitlines()[8:]
    assert last.index(folded) > header.index("took") + len("took")

    bare("show", "many", "--all").prints(MANY.format("\n".join(map(item, range(11)))) + FAILED.format("each[7]/double"))
    bare("show", "few").prints(
        """
        run  few
        workflow  sums (version <version>)
        status  completed
        created  <time>
        took  <duration>
        input  2
        result  [0, 2]

        step  status  attempts  queued  took
        hello  completed  1  <duration>  <duration>
        odd?  skipped  <duration>  <duration>
          odd?!when  completed  1  <duration>  <duration>
        each  completed  <duration>  <duration>
          each!items  completed  1  <duration>  <duration>
          each[0]  completed  <duration>
            each[0]/double  completed  1  <duration>  <duration>
          each[1]  completed  <duration>
            each[1]/double  completed  1  <duration>  <duration>
        """
    )
    told = bare("show", "many", "--json").json
    assert len(told["steps"]) == 4 + 2 + 11 * 2
    assert [one["result"] for one in told["steps"] if one["path"] == "each[3]/double"] == [6]


def test_what_undid_a_step_is_shown_with_it(bare: Cli, tmp_path: Path) -> None:
    registry = Registry()
    create_workflow("booking").step(hello, name="reserve", compensate=hello).step(double).register(registry)
    file = tmp_path / "runs.db"
    with embedded(file, registry=registry) as rival:
        rival.run("booking", 7, "b-1")
        assert rival.wait("booking", "b-1", 20).status == "failed"
    bare.env["RIVAL_DATABASE_URL"] = Settings(database_url=f"sqlite:///{file}").require_database()
    shown = [line.split()[:2] for line in bare("show", "b-1").out.splitlines() if line]
    at = shown.index(["reserve", "completed"])
    assert shown[at : at + 4] == [
        ["reserve", "completed"],
        ["reserve!compensate", "completed"],
        ["double", "failed"],
        ["!compensate", "completed"],
    ]


def charge(run: object) -> None:
    raise StepError("declined", behavior="retry") from ValueError("card 7")


def broken() -> None:
    raise RuntimeError("\x1b[2J[red]handler")


CHARGE = """  ValueError: card 7

  The above exception was the direct cause of the following exception:

  Traceback (most recent call last):
    File "<repository>/tests/acceptance/test_cli_show.py", line …, in charge
      raise StepError("declined", behavior="retry") from ValueError("card 7")
  rival_workers.errors.StepError: declined"""
HANDLER = """  Traceback (most recent call last):
    File "<repository>/tests/acceptance/test_cli_show.py", line …, in broken
      raise RuntimeError("\\x1b[2J[red]handler")
  RuntimeError: \ufffd[2J[red]handler"""
UNCHANGED = "the outcome of the run does not change"


def test_show_and_logs_print_the_tracebacks_of_what_failed(bare: Cli, tmp_path: Path) -> None:
    registry = Registry()
    create_workflow("pay").step(charge, max_attempts=2, base_delay=0.01, on_error=broken).register(registry)
    file = tmp_path / "runs.db"
    with embedded(file, registry=registry) as rival:
        assert rival.run("pay", None, "p").run_id == "p"
        assert rival.wait("pay", "p", 20).status == "failed"
    bare.env["RIVAL_DATABASE_URL"] = Settings(database_url=f"sqlite:///{file}").require_database()

    bare("show", "p").prints(
        f"""run  p
workflow  pay (version <version>)
status  failed
created  <time>
took  <duration>
input  null
failed at  charge
error  StepError: declined

step  status  attempts  queued  took
charge  failed  2  <duration>  <duration>  StepError: declined
  charge!on_error  failed  1  <duration>  <duration>  RuntimeError: \ufffd[2J[red]handler

step  attempt  outcome  took  error
charge  1  failed  <duration>  StepError: declined
charge  2  failed  <duration>  StepError: declined
charge!on_error  1  failed  <duration>  RuntimeError: \ufffd[2J[red]handler

charge, attempts 1 and 2:
{CHARGE}

charge!on_error, attempt 1:
{HANDLER}
"""
    )
    attempts = bare("show", "p", "--json").json["attempts"]
    assert [one["path"] for one in attempts] == ["charge", "charge", "charge!on_error"]

    at = "(tests/acceptance/test_cli_show.py:… in {})".format
    bare("logs", "p").prints(
        f"""
<time> warning charge attempt 1 of 2 failed, next attempt in 0.01 s: StepError: declined {at("charge")}
{CHARGE}
<time> error  charge (attempt 2) attempt 2 of 2 failed, no retry: StepError: declined {at("charge")}
{CHARGE}
<time> error  charge!on_error attempt 1 of 1 failed, {UNCHANGED}: RuntimeError: \ufffd[2J[red]handler {at("broken")}
{HANDLER}
"""
    )
    message = f"attempt 1 of 1 failed, {UNCHANGED}: RuntimeError: \x1b[2J[red]handler {at('broken')}"
    entry = {"at": "<time>", "level": "error", "path": "charge!on_error", "attempt": 1, "message": message}
    fields = {"location": "tests/acceptance/test_cli_show.py:… in broken", "traceback": "Traceback…\n…"}
    bare("logs", "p", "--step", "charge!on_error", "--json").prints_json(entry | {"fields": fields, "id": ...})
