"""The facts that are always measured in full: those that somebody set a limit on, or predicted."""

from __future__ import annotations

from flashcore.model.suite import Prediction
from flashcore.stages.always_measured import always_measured
from tests import factory


def test_limits_and_predictions_name_the_facts_of_a_case() -> None:
    here = Prediction("isolated_p50", 2.0, 1.0, "us", "a document", shape="mission")
    anywhere = Prediction("instructions", 2.0, 1.0, "1", "a document")
    elsewhere = Prediction("dram_bytes", 2.0, 1.0, "B", "a document", shape="long")
    suite = factory.suite(
        variants=[
            factory.variant("base"),
            factory.variant("child", parent="base", predictions=(here, anywhere, elsewhere)),
            factory.variant("other"),
            factory.reference("library"),
        ],
        budgets=[
            factory.budget("tensor_active", minimum=10, shapes=("mission",)),
            factory.budget("l2_hit", minimum=10, variants=("o*",), device="H200"),
            factory.budget("l1_hit", minimum=10, variants=("other",), device="L4"),
            factory.budget("max_error", maximum=10, shapes=("long",)),
        ],
    )
    assert always_measured(suite, "NVIDIA H200", "mission") == {
        "base": {"isolated_p50", "instructions", "tensor_active"},
        "child": {"isolated_p50", "instructions", "tensor_active"},
        "other": {"tensor_active", "l2_hit"},
        "library": set(),
    }
    assert always_measured(suite, None, "mission")["other"] == {"tensor_active"}
