"""Compiled functions are the functions themselves, with eager execution as the fallback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from dgvf_agents.execution.compiling import Compiled

WITHOUT_A_COMPILER = """
import warnings
import torch
from dgvf_agents.execution.compiling import Compiled

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    doubled, halved = Compiled(lambda x: 2 * x), Compiled(lambda x: x / 2)
    assert doubled(torch.ones(2)).tolist() == [2.0, 2.0] == doubled(torch.ones(2)).tolist()
    assert halved(torch.ones(2)).tolist() == [0.5, 0.5]
print(*(w.message for w in caught if "no compiler found" in str(w.message)), sep="\\n")
"""


def test_without_a_compiler_functions_run_eagerly_after_one_warning(tmp_path: Path) -> None:
    environment = {**os.environ, "CXX": str(tmp_path / "none"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", WITHOUT_A_COMPILER]
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    warnings = finished.stdout.strip().splitlines()
    assert len(warnings) == 1
    assert str(tmp_path / "none") in warnings[0]


def test_an_error_of_the_function_is_not_taken_for_a_missing_compiler() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("the compiler is fine")

    for enabled, raised in ((False, ValueError), (True, RuntimeError)):  # Dynamo wraps what it meets while tracing
        with pytest.raises(raised, match="the compiler is fine"):
            Compiled(broken, enabled)(torch.ones(2))


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated")
def test_functions_with_the_same_code_do_not_share_a_cache() -> None:
    def scaled(factor: float) -> Compiled[torch.Tensor]:
        return Compiled(lambda x: factor * x)

    first, second = scaled(2.0), scaled(3.0)
    for _ in range(2):
        assert first(torch.ones(2)).tolist() == [2.0, 2.0]
        assert second(torch.ones(2)).tolist() == [3.0, 3.0]


def test_every_function_is_compiled_with_all_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """`torch.compile` pops options from the dict it gets. CUDA uses Inductor with its defaults."""
    given = []

    def taking(function: Any, fullgraph: bool, backend: Any, options: dict[str, Any]) -> Any:
        given.append((set(options), backend == "inductor"))
        options.clear()
        return function

    monkeypatch.setattr(torch, "compile", taking)
    for device in ("cpu", "cpu", "cuda", "cuda"):
        assert Compiled(lambda x: x + 1, device=torch.device(device))(1) == 2
    assert given == [({"guard_filter_fn"}, False)] * 2 + [({"guard_filter_fn"}, True)] * 2


def test_on_the_cpu_kernels_are_called_from_cpp(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    def taking(graph: torch.fx.GraphModule, inputs: list[torch.Tensor], config_patches: dict[str, Any]) -> Any:
        given.append((config_patches, torch._functorch.config.ban_recompute_long_fusible_chains))
        return graph.forward

    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", taking)
    assert Compiled(lambda x: 2 * x)(torch.ones(2)).tolist() == [2.0, 2.0]
    assert given == [({"cpp_wrapper": True}, False)]


def test_compiler_settings_are_restored() -> None:
    """They are global to PyTorch, which other code uses too."""
    before = torch._functorch.config.get_config_copy(), torch._inductor.config.get_config_copy()
    x = torch.ones(2, requires_grad=True)
    Compiled(lambda x: torch.relu(x).square().sum())(x).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, 2.0]
    assert before == (torch._functorch.config.get_config_copy(), torch._inductor.config.get_config_copy())


def test_an_environment_variable_disables_compilation() -> None:
    imports = "import torch; from dgvf_agents.execution.compiling import Compiled"
    program = f"{imports}; print(*Compiled(lambda x: 2 * x)(torch.ones(2)))"
    environment = {**os.environ, "TORCH_COMPILE_DISABLE": "1"}
    finished = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.split()[0] == "tensor(2.)"
