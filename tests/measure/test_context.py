"""Which cases are taken to which stage."""

from __future__ import annotations

from flashcore.measure.build import build
from flashcore.measure.context import Context
from flashcore.measure.settings import Settings
from flashcore.model.suite import Where
from tests import factory

SHAPES = [
    factory.shape("mission"), factory.shape("long"), factory.shape("longer"), factory.shape("tail", stages=("check",)),
]  # fmt: skip


def cases(stage: str, **settings: object) -> list[str]:
    variants = [factory.variant("own"), factory.peer("all"), factory.peer("some", where=Where(("*",), ("long*",)))]
    suite = factory.suite(variants=variants, shapes=SHAPES)
    chosen = Settings("kernels/attention", **settings)  # type: ignore[arg-type]
    context = Context(chosen, suite, None, None, build.Options(), tuple(variants), tuple(SHAPES))
    return [f"{v.name}/{s.name}" for v, s in context.cases(stage)]


def test_peers_are_profiled_on_their_own_first_shape() -> None:
    assert cases("profile") == ["own/mission", "all/mission", "own/long", "some/long", "own/longer"]
    assert "all/longer" in cases("bench")


def test_a_shape_is_taken_where_it_says_so_or_the_user_does() -> None:
    assert "own/tail" in cases("check") and "own/tail" not in cases("bench")
    assert "own/tail" in cases("bench", shapes=("tail",))
