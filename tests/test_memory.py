"""The memory plan and what there is."""

from pathlib import Path

import psutil
import pytest

from mashbox import memory
from mashbox.engine.worker import kernels
from mashbox.engine.worker.speculate import MOST_ROWS
from mashbox.errors import DoesNotFit
from mashbox.facts import ModelFacts
from mashbox.memory import RUNTIME_BYTES, available_memory, check_fits, plan_memory

FACTS = ModelFacts(
    architecture="llama",
    context_length=32768,
    layers=10,
    hidden=512,
    heads=8,
    kv_heads=2,
    head_dim=64,
    value_head_dim=64,
    vocab=32000,
    parameters=100_000_000,
    weight_file_bytes=60_000_000,
    bpw=4.8,
    quant="Q4_K_M",
    kv_numbers=10 * 2 * 128,
    state_numbers=1000,
)


def test_the_plan_adds_up() -> None:
    plan = plan_memory(FACTS, 4096, 3, 2)
    assert plan.weights == 200_000_000
    assert plan.kv == 3 * (4096 * 2560 * 2 + 4000)
    assert plan.working > RUNTIME_BYTES
    assert plan.total == plan.weights + plan.kv + plan.working
    assert plan_memory(FACTS, 4096, 3, 2, weight_bytes=4).weights == 400_000_000


def test_the_fast_plan_knows_what_a_step_works_in() -> None:
    sources = Path(kernels.__file__).parent / "cpu"
    assert f"kSpan = {memory._SPAN};" in (sources / "ops.h").read_text()
    assert f"kApart = {memory._SPAN_ROWS};" in (sources / "attention.cpp").read_text()
    assert memory._RUN_ROWS == MOST_ROWS
    short, long = (plan_memory(FACTS, ctx, 4, 2, packed=60_000_000) for ctx in (1024, 32768))
    assert long.working - short.working >= 16 * 8 * (31744 // 128) * (64 + 8) * 4
    assert short.working > memory.FAST_RUNTIME_BYTES + 32 * 32000 * 4


def test_what_fits_passes_and_one_byte_less_does_not() -> None:
    plan = plan_memory(FACTS, 4096, 3, 4)
    check_fits(plan, plan.total)
    with pytest.raises(DoesNotFit, match=r"3 slots of 4096 tokens"):
        check_fits(plan, plan.total - 1)


def test_the_remedy_fits() -> None:
    plan = plan_memory(FACTS, 32768, 8, 4)
    room = plan.total // 2
    with pytest.raises(DoesNotFit) as caught:
        check_fits(plan, room)
    words = caught.value.remedy.removesuffix(".").split()
    ctx, slots = (int(words[words.index(name) + 2]) for name in ("--ctx", "--slots"))
    assert 0 < ctx < 32768
    assert 0 < slots < 8
    check_fits(plan_memory(FACTS, ctx, 8, 4), room)
    check_fits(plan_memory(FACTS, 32768, slots, 4), room)


def test_a_model_too_large_by_itself_says_so() -> None:
    plan = plan_memory(FACTS, 256, 1, 4)
    with pytest.raises(DoesNotFit, match="choose a smaller model"):
        check_fits(plan, plan.weights // 2)


def group(folder: Path, **values: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in values.items():
        (folder / name.replace("__", ".")).write_text(value + "\n")


def test_without_limits_it_is_what_the_machine_has(tmp_path: Path) -> None:
    free = psutil.virtual_memory().available
    assert available_memory(tmp_path / "none", tmp_path / "none") == pytest.approx(free, rel=0.2)


def test_a_group_of_version_2_limits(tmp_path: Path) -> None:
    (tmp_path / "own").write_text("0::/slice/service\n")
    groups = tmp_path / "groups"
    group(groups / "slice" / "service", memory__max="max", memory__current="1000")
    group(groups / "slice", memory__max="1000000", memory__current="400000", memory__stat="inactive_file 5\n")
    assert available_memory(groups, tmp_path / "own") == 600_005


def test_a_group_of_version_1_limits(tmp_path: Path) -> None:
    (tmp_path / "own").write_text("11:cpu:/box\n4:memory:/box\n")
    group(tmp_path / "memory" / "box", memory__limit_in_bytes="5000", memory__usage_in_bytes="2000")
    assert available_memory(tmp_path, tmp_path / "own") == 3000


def test_inside_a_container_the_root_is_the_limit(tmp_path: Path) -> None:
    (tmp_path / "own").write_text("0::/\n")
    group(tmp_path, memory__max="7000", memory__current="9000")
    assert available_memory(tmp_path, tmp_path / "own") == 0
